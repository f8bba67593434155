"""SSD and Mask R-CNN: their models, batches and recipes, and that real runs log what MLPerf's rules want."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch
import torchvision
from mlscaling import schedules, stopping, trainer
from mlscaling.datasets.preparation import prepare_dataset
from mlscaling.detection.samples import DetectionBatch, DetectionSamples, Sample, collated, flipped
from mlscaling.mlperf.compliance import check_compliance
from mlscaling.mlperf.rounds import Target
from mlscaling.workloads import workload_by_name
from mlscaling.workloads.base import Request
from mlscaling.workloads.ssd import Augmented

NAMES = ("ssd", "maskrcnn")
FEW = {"train_samples": 32, "eval_samples": 11, "evaluate_every_samples": 32}
"""Eleven images divide neither by ranks nor by batches."""


def workload(name: str, **changes):
    return workload_by_name(name, tiny_runs.run_spec(name, **changes))


def full(name: str, **model):
    with torch.device("meta"):
        return workload(name, scale="full", model=model).model()


@pytest.fixture(scope="session")
def few_shapes(tiny_data: Path) -> Path:
    """A small set of its own."""
    options = {"train_images": 32, "val_images": 11}
    spec = tiny_runs.dataset_spec("coco_shapes", counts={"train": 32, "val": 11}, options=options)
    folder = tiny_data / "few_shapes"
    prepare_dataset(spec, raw_dir=folder / "raw", data_dir=folder / "data", manifest=folder / "manifest.json")
    return folder / "data"


def small(name: str, data_dir: Path, **changes):
    """A run of two short evaluations that never reaches its target."""
    hyperparameters = {"max_epochs": 2, **changes.pop("hyperparameters", {})}
    target = {"BBOX": 2.0, "SEGM": 2.0} if name == "maskrcnn" else 2.0
    return tiny_runs.run_spec(
        name, data_dir=data_dir, hyperparameters=hyperparameters, **{"target": target, **FEW, **changes}
    )


# --- models ----------------------------------------------------------------------------------------------------------


def test_mask_rcnn_of_91_classes_is_torchvisions() -> None:
    weights = torchvision.models.detection.MaskRCNN_ResNet50_FPN_Weights.COCO_V1
    ours = full("maskrcnn", num_classes=91)
    assert sum(value.numel() for value in ours.parameters()) == weights.meta["num_params"] == 44_401_393
    with torch.device("meta"):
        theirs = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    shapes = {name: value.shape for name, value in theirs.state_dict().items() if "num_batches" not in name}
    assert {name: value.shape for name, value in ours.state_dict().items()} == shapes


def test_mask_rcnn_trains_neither_stem_nor_first_stage_nor_batch_norms() -> None:
    model = full("maskrcnn")
    frozen = {name.split(".")[2] for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {"conv1", "layer1"}
    assert not [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]


def test_ssd_has_the_references_maps_and_anchors() -> None:
    model = full("ssd").to_empty(device="cpu")
    maps = model.backbone(torch.zeros(1, 3, 300, 300))
    assert [(value.shape[1], value.shape[2]) for value in maps.values()] == [
        (256, 38), (512, 19), (512, 10), (256, 5), (256, 3), (256, 1),
    ]  # fmt: skip
    assert model.anchor_generator.num_anchors_per_location() == [4, 6, 6, 6, 4, 4]
    images = torchvision.models.detection.image_list.ImageList(torch.zeros(1, 3, 300, 300), [(300, 300)])
    assert len(model.anchor_generator(images, list(maps.values()))[0]) == 8732


@pytest.mark.parametrize(
    ("name", "file", "builder"), [("ssd", "resnet34.pth", "resnet34"), ("maskrcnn", "resnet50.pth", "resnet50")]
)
def test_the_trunk_starts_from_a_classifiers_weights(tmp_path: Path, name: str, file: str, builder: str) -> None:
    weights = getattr(torchvision.models, builder)().state_dict()
    torch.save(weights, tmp_path / file)
    found = workload(name, scale="full", data_dir=tmp_path, model={"backbone_weights": file})
    model = found.model()
    found.load_initial_weights(model)
    trunk = model.backbone.body.state_dict()
    assert len(trunk) > 100
    assert all(torch.equal(value, weights[key]) for key, value in trunk.items())
    del weights["layer2.0.conv1.weight"]
    torch.save(weights, tmp_path / file)
    with pytest.raises(ValueError, match=rf"{file} lacks 1 weights of the backbone: layer2.0.conv1.weight"):
        found.load_initial_weights(model)
    (tmp_path / file).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{file}: no such weights of a backbone; the dataset's YAML"):
        found.load_initial_weights(model)


def test_the_configured_weights_are_among_the_datasets_raw_files() -> None:
    raw = tiny_runs.configuration("datasets", "coco")["raw"]
    for name in NAMES:
        assert tiny_runs.configuration("workloads", name)["scales"]["full"]["model"]["backbone_weights"] in raw


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_every_trained_tensor_has_a_gradient(name: str, precision: torch.dtype) -> None:
    """Else DDP would need find_unused_parameters."""
    found = workload(name)
    torch.manual_seed(0)
    model = found.model().train()
    with torch.autocast("cpu", dtype=precision, enabled=precision is torch.bfloat16):
        loss = found.loss(model, found.synthetic_batch(3))
    loss.backward()
    assert torch.isfinite(loss)
    assert [key for key, value in model.named_parameters() if value.requires_grad and value.grad is None] == []


def test_ssd_trains_on_images_without_an_object() -> None:
    """A crop may leave none."""
    found = workload("ssd")
    torch.manual_seed(0)
    model = found.model().train()
    batch = DetectionBatch(*found.synthetic_batch(2))
    nothing = batch._replace(
        places=batch.places * torch.tensor([1, 1, 1, 0]), boxes=batch.boxes[:0], labels=batch.labels[:0]
    )
    loss = found.loss(model, nothing)
    loss.backward()
    assert torch.isfinite(loss)


# --- batches ---------------------------------------------------------------------------------------------------------


def sample(height: int, width: int, *, objects: int) -> Sample:
    draw = np.random.default_rng(height)
    masks = np.zeros((objects, height, width), dtype=np.uint8)
    boxes = []
    for mask in masks:
        left, top = draw.integers(0, width // 2), draw.integers(0, height // 2)
        mask[top : top + 4, left : left + 6] = 1
        boxes.append([left, top, left + 6, top + 4])
    image = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
    labels = np.arange(1, objects + 1)
    return Sample(image=image, boxes=np.array(boxes, dtype=np.float32).reshape(-1, 4), labels=labels, masks=masks)


@pytest.mark.parametrize("with_masks", [True, False])
def test_batches_hold_images_of_any_size(with_masks: bool) -> None:
    samples = [sample(20, 30, objects=2), sample(40, 16, objects=1), sample(24, 24, objects=3)]
    batch = collated(samples, rows=[7, 0, 3], with_masks=with_masks)
    assert batch.images.shape == (3, 3, 40, 30)
    assert batch.rows() == [7, 0, 3]
    for one, image, target in zip(samples, batch.inputs(), batch.targets(), strict=True):
        assert torch.equal((image * 255).round().byte().permute(1, 2, 0), torch.from_numpy(one.image))
        assert torch.equal(target["boxes"], torch.from_numpy(one.boxes))
        assert torch.equal(target["labels"], torch.from_numpy(one.labels))
        assert ("masks" in target) == with_masks
        assert not with_masks or torch.equal(target["masks"], torch.from_numpy(one.masks))


def test_flips_move_boxes_and_masks_alike() -> None:
    one = sample(20, 30, objects=3)
    other = flipped(one)
    for box, mask in zip(other.boxes, other.masks, strict=True):
        rows, columns = np.nonzero(mask)
        assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert np.array_equal(flipped(other).image, one.image)
    assert np.array_equal(flipped(other).boxes, one.boxes)


def test_samples_depend_on_seed_epoch_and_sample_only(few_shapes: Path) -> None:
    train = workload("maskrcnn", data_dir=few_shapes).samples("train")
    images = train[Request(3, np.arange(32))][0]
    assert torch.equal(train[Request(3, np.array([31, 4]))][0], images[[31, 4]])
    assert not torch.equal(train[Request(4, np.arange(32))][0], images)
    other = workload("maskrcnn", data_dir=few_shapes, seed=99).samples("train")
    assert not torch.equal(other[Request(3, np.arange(32))][0], images)
    val = workload("maskrcnn", data_dir=few_shapes).samples("eval")
    assert torch.equal(val[Request(0, np.array([7]))][0], val[Request(1, np.array([7]))][0])


def test_full_scale_augmentation_of_ssd(few_shapes: Path) -> None:
    change = Augmented(size=300, crop_attempts=50, jitter=True)
    train = DetectionSamples(few_shapes, split="train", seed=1, change=change)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    batch = DetectionBatch(*train[Request(0, np.arange(32))])
    assert torch.equal(torch.get_rng_state(), state), "the model's own random numbers are not touched"
    assert batch.images.shape == (32, 3, 300, 300)
    assert (batch.boxes >= 0).all()
    assert (batch.boxes <= 300).all()
    assert (batch.boxes[:, 2:] > batch.boxes[:, :2]).all()
    assert 16 < len(batch.boxes) < len(train.index.boxes), "crops lose some objects"
    torch.manual_seed(6)
    again = DetectionBatch(*train[Request(0, np.array([30, 3]))])
    assert torch.equal(again.images, batch.images[[30, 3]])
    assert not torch.equal(train[Request(1, np.array([3]))][0], batch.images[[3]])


def test_other_categories_than_the_models_are_refused(few_shapes: Path) -> None:
    found = workload("ssd", data_dir=few_shapes, model={"num_classes": 81})
    with pytest.raises(ValueError, match=r"has 4 classes with the background, the run's model.num_classes is 81"):
        found.samples("eval")


def test_detections_are_in_the_pixels_of_the_annotated_image(few_shapes: Path) -> None:
    """SSD sees a square of its own size; what it finds is measured in the image's."""
    found = workload("ssd", data_dir=few_shapes, model={"image_size": 128})
    box = torch.tensor([[10.0, 20.0, 30.0, 60.0]])
    output = {"boxes": box, "scores": torch.ones(1), "labels": torch.ones(1, dtype=torch.int64)}
    assert found._detections(output, scale=np.array([0.5, 0.25])).boxes.tolist() == [[2.5, 10.0, 7.5, 30.0]]


# --- recipes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.125), (3, 0.5), (7, 1.0), (9, 1.0), (10, 0.1), (19, 0.1), (20, 0.01)]
)
def test_rates_fall_after_some_steps(step: int, expected: float) -> None:
    factor = schedules.warmup_then_falls(warmup_steps=8, warmup_slope=0.125, fall_steps=[10, 20], fall_factor=0.1)
    assert factor(step) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "size", "rates"),
    [
        # (step, rate): warm-up from nothing over 300 steps; a tenth after 40 epochs of 115 steps.
        ("ssd", 1024, {0: 0.8 / 300, 299: 0.8, 4599: 0.8, 4600: 0.08, 5750: 0.008}),
        # The rate gains 0.000192 in each of 625 steps.
        ("maskrcnn", 96, {0: 0.000192, 624: 0.12, 11_999: 0.12, 12_000: 0.012, 16_000: 0.0012}),
        # The round's file has more steps than its factor needs.
        ("maskrcnn", 48, {0: 0.0, 200: 0.06 - 599 * 0.000096, 799: 0.06}),
    ],
)
def test_schedules_are_the_references(name: str, size: int, rates: dict[int, float]) -> None:
    found = workload(name, scale="full", global_batch_size=size)
    factor = found.schedule()
    base = found.hyperparameter("opt_base_learning_rate")
    assert {step: base * factor(step) for step in rates} == pytest.approx(rates)


def test_mask_rcnn_trains_biases_at_twice_the_rate_without_decay() -> None:
    found = workload("maskrcnn")
    others, biases = found.optimizer(found.model()).param_groups
    rate = found.hyperparameter("opt_base_learning_rate")
    assert (others["lr"], biases["lr"]) == (rate, 2 * rate)
    assert (others["weight_decay"], biases["weight_decay"]) == (0.0001, 0.0)
    assert all(value.ndim == 1 for value in biases["params"])


@pytest.mark.parametrize(
    ("quality", "expected"),
    [
        ({"BBOX": 0.377, "SEGM": 0.339}, True),
        ({"BBOX": 0.5, "SEGM": 0.3389}, False),
        ({"BBOX": 0.3769, "SEGM": 0.5}, False),
        ({"BBOX": 0.5, "SEGM": float("nan")}, False),
        ({"BBOX": 0.5}, False),
    ],
)
def test_a_target_of_two_metrics_is_reached_by_both(quality, expected: bool) -> None:
    spec = tiny_runs.run_spec("maskrcnn", scale="full")
    assert stopping.reached(spec, quality) is expected
    assert type(spec).from_json(spec.to_json()) == spec


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_equal_runs_evaluate_alike_and_the_official_checker_accepts_them(
    name: str, few_shapes: Path, tmp_path: Path, capsys
) -> None:
    found = []
    for number, seed in enumerate((1, 1, 2)):
        assert trainer.train(small(name, few_shapes, seed=seed), log_file=tmp_path / f"{number}.txt") == "aborted"
        found.append(tiny_runs.events(tmp_path / f"{number}.txt"))
    values = {event["key"]: event["value"] for event in found[0]}
    if name == "maskrcnn":
        assert values["eval_accuracy"].keys() == values["target_quality"].keys() == {"BBOX", "SEGM"}
        assert "(target BBOX 2, SEGM 2)" in capsys.readouterr().out
    losses = [first_loss(name, few_shapes, seed=seed) for seed in (1, 1, 2)]
    assert tiny_runs.series(found[0]) == tiny_runs.series(found[1])
    assert losses[0] == losses[1] != losses[2]
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "1.1.0"]
    command += ["--werror", "--log_output", "checker.log", "0.txt"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "SUCCESS" in result.stderr, result.stderr
    target = Target.of({"BBOX": 2.0, "SEGM": 2.0} if name == "maskrcnn" else 2.0, mode="max")
    verdict = check_compliance(tmp_path / "0.txt", ruleset="1.1.0", target=target, with_official=False)
    assert verdict["passed"], verdict["findings"]


def first_loss(name: str, data_dir: Path, *, seed: int) -> float:
    """Two epochs find nothing yet, with any seed; the loss tells seeds apart."""
    spec = small(name, data_dir, seed=seed)
    found = workload_by_name(name, spec)
    torch.manual_seed(seed)
    model = found.model().train()
    return float(found.loss(model, found.samples("train")[Request(0, np.arange(8))]).detach())


def test_a_run_stops_where_both_metrics_reach_their_target(few_shapes: Path, tmp_path: Path) -> None:
    for number, (box, status) in enumerate(((0.0, "success"), (1.1, "aborted"))):
        spec = dataclasses.replace(small("maskrcnn", few_shapes), target={"BBOX": box, "SEGM": 0.0})
        log = tmp_path / f"{number}.txt"
        assert trainer.train(spec, log_file=log) == status
        found = check_compliance(log, ruleset="1.1.0", target=Target.of(spec.target, mode="max"), with_official=False)
        assert found["passed"], found["findings"]
        assert found["summary"]["status"] == status


@pytest.mark.training
@pytest.mark.parametrize("name", NAMES)
def test_target_is_reached(name: str, shapes: Path, tmp_path: Path) -> None:
    spec = tiny_runs.run_spec(name, data_dir=shapes)
    assert trainer.train(spec, log_file=tmp_path / "log.txt") == "success"
    reached = [
        stopping.reached(spec, quality) for _, quality in tiny_runs.series(tiny_runs.events(tmp_path / "log.txt"))
    ]
    assert reached == [False] * (len(reached) - 1) + [True]
