"""Workloads: full scale is MLPerf's model, names are those of the rules, schedules and loaders are exact."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib import resources

import numpy as np
import pytest
import tiny_runs
import torch
from mlscaling import schedules
from mlscaling.catalog import load_workload
from mlscaling.failures import classify
from mlscaling.workload_source import declared
from mlscaling.workloads import workload_by_name, workload_names
from mlscaling.workloads.base import Request
from mlscaling.workloads.resnet import centre_box, random_box

PARAMETERS = {
    "resnet": 25_557_032,  # torchvision.models.resnet50
    "bert": 336_226_108,  # transformers.BertForPreTraining of bert-large-uncased
    # ResNet-34 without last stage and classifier 8,170,304, extra blocks 3,574,400, six predictors 8,227,830
    "ssd": 19_972_534,
    # torchvision's 44,401,393 for 91 classes (MaskRCNN_ResNet50_FPN_Weights), less 5,382 for each of ten; as MLPerf, 81
    "maskrcnn": 44_347_573,
    # The reference's `49.0M params`, from its layers' shapes (LSTM: 4 h (i + h + 2)): pre_rnn 13,582,336, post_rnn
    # 29,384,704, pred_embed 523,776, dec_rnn 4,202,496, joint_pred 262,656, joint_enc 524,800, joint_net 525,312.
    "rnnt": 49_006_080,
}


def workload(name: str, *, scale: str = "full", **changes):
    spec = tiny_runs.run_spec(name, scale=scale, **changes)
    return workload_by_name(name, spec)


def full_model(name: str):
    with torch.device("meta"):
        return workload(name).model()


@pytest.mark.parametrize("name", workload_names())
def test_full_scale_has_the_references_number_of_parameters(name: str) -> None:
    assert sum(value.numel() for value in full_model(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", workload_names())
def test_full_scale_initialises_exactly_the_tensors_of_the_closed_rules(name: str) -> None:
    rules = resources.files("mlperf_logging.compliance_checker") / "training_1.1.0" / f"closed_{name}.yaml"
    block = re.search(r"sorted\(\[(.*?)\]\)", rules.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    expected = sorted(re.findall(r"""["']([^"']+)["']""", block[1]))
    assert sorted(workload(name).tensor_names(full_model(name))) == expected


@pytest.mark.parametrize(
    ("name", "hyperparameters", "files"),
    [
        ("resnet", {}, ["closed_resnet", "closed_resnet_lars"]),
        ("resnet", {"opt_name": "sgd"}, ["closed_resnet", "closed_resnet_sgd"]),
        ("bert", {}, ["closed_bert"]),
        ("ssd", {}, ["closed_ssd"]),
        ("maskrcnn", {}, ["closed_maskrcnn"]),
        ("rnnt", {}, ["closed_rnnt"]),
    ],
)
def test_logged_values_have_every_key_of_the_closed_rules(name: str, hyperparameters, files) -> None:
    import yaml

    logged = workload(name, hyperparameters=hyperparameters).log_values().keys()
    by_the_trainer = {"global_batch_size", "weights_initialization", "eval_accuracy", "train_samples", "eval_samples"}
    for file in files:
        rules = resources.files("mlperf_logging.compliance_checker") / "training_1.1.0" / f"{file}.yaml"
        keys = {row["KEY"]["NAME"] for row in yaml.safe_load(rules.read_text(encoding="utf-8")) if "KEY" in row}
        assert keys - by_the_trainer <= logged


def test_unknown_workload_is_answered_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"workload 'resnet50' is unknown; known: bert, .*resnet"):
        workload_by_name("resnet50", tiny_runs.run_spec("resnet"))


def test_unknown_size_is_answered_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"unknown keys widht; known: .*width"):
        workload("resnet", model={"widht": 2})


def test_missing_hyperparameter_names_batch_and_key() -> None:
    spec = tiny_runs.run_spec("resnet", global_batch_size=64)
    spec = dataclasses.replace(spec, hyperparameters={"opt_name": "sgd"})
    with pytest.raises(ValueError, match=r"'opt_weight_decay' is missing for global_batch_size 64"):
        workload_by_name("resnet", spec).optimizer(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("name", workload_names())
@pytest.mark.parametrize("scale", ["tiny", "full"])
def test_every_configured_batch_size_has_a_whole_recipe(name: str, scale: str) -> None:
    for size, record in tiny_runs.workload_spec(name).scales[scale].hyperparameters.items():
        found = workload(name, scale=scale, global_batch_size=size)
        base = record["opt_base_learning_rate"]
        assert found.optimizer(torch.nn.Linear(2, 2)).param_groups[0]["lr"] == base
        factor = found.schedule()
        horizon = (
            record.get("max_epochs", 0) * found.steps_per_epoch or record["max_samples"] // found.spec.global_batch_size
        )
        rates = [factor(step) for step in range(0, horizon, max(1, horizon // 500))]
        assert max(rates) <= 1
        assert max(rates) > 0.8, "the learning rate nearly reaches its base"
        assert rates[-1] < 0.35, "and has decayed when the run gives up"


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.25), (3, 1.0), (4, 0.01 + 0.99 * 0.9**2), (8, 0.01 + 0.99 * 0.5**2), (13, 0.01), (99, 0.01)],
)
def test_polynomial_schedule(step: int, expected: float) -> None:
    factor = schedules.warmup_then_polynomial(warmup_steps=4, decay_steps=10, power=2, end_factor=0.01)
    assert factor(step) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("start_step", "step", "expected"),
    [(0, 0, 0.1), (0, 8, 0.9), (0, 9, 0.9), (0, 49, 0.5), (0, 99, 0.0), (0, 150, 0.0), (-5, 0, 0.6), (-5, 4, 0.95)],
)
def test_linear_schedule_may_begin_within_its_warmup(start_step: int, step: int, expected: float) -> None:
    factor = schedules.warmup_within_linear_decay(start_step=start_step, warmup_steps=10, training_steps=100)
    assert factor(step) == pytest.approx(expected)


def test_scaled_resnet_is_resnet50_but_for_its_width() -> None:
    with torch.device("meta"):
        narrow = workload("resnet", scale="tiny").model()
    full = full_model("resnet")
    assert [name for name, _ in narrow.named_parameters()] == [name for name, _ in full.named_parameters()]
    shapes = zip(narrow.parameters(), full.parameters(), strict=True)
    widths = {large.shape[0] // small.shape[0] for small, large in shapes if large.shape[0] >= 1000 or large.ndim == 4}
    assert widths == {8, 100}, "an eighth everywhere; one hundredth of the classes"
    assert full.layer2[0].conv2.stride == (2, 2), "v1.5: the 3×3 convolution strides"
    assert full.layer2[0].conv1.stride == (1, 1)


def test_crops_are_inside_and_follow_the_draws() -> None:
    draws = np.random.default_rng(0).random((500, 40))
    for row in draws:
        left, top, right, bottom = random_box((200, 100), draws=row, scale_min=0.08, ratio_max=4 / 3)
        assert 0 <= left < right <= 200
        assert 0 <= top < bottom <= 100
        area = (right - left) * (bottom - top) / 20_000
        assert 0.07 < area <= 1
        assert 0.7 < (right - left) / (bottom - top) < 1.4
    assert random_box((9, 9), draws=np.zeros(40), scale_min=1.0, ratio_max=1.0) == (0, 0, 9, 9)


def test_a_crop_that_never_fits_is_the_central_square() -> None:
    assert random_box((1000, 10), draws=np.full(40, 0.999), scale_min=0.9, ratio_max=4 / 3) == (495, 0, 505, 10)
    assert centre_box((256, 512), share=224 / 256) == (16, 144, 240, 368)


def test_images_depend_on_seed_epoch_and_sample_only(digits) -> None:
    spec = tiny_runs.run_spec("resnet", data_dir=digits)
    train = workload_by_name("resnet", spec).samples("train")
    images, classes = train[Request(3, np.array([5, 700, 1535]))]
    assert images.shape == (3, 3, 48, 48)
    assert images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)
    again, _ = train[Request(3, np.array([1535, 5]))]
    assert torch.equal(again, images[[2, 0]])
    assert classes.tolist() == [0, 4, 9]
    others = [
        train[Request(4, np.array([5]))][0],
        workload_by_name("resnet", dataclasses.replace(spec, seed=99)).samples("train")[Request(3, np.array([5]))][0],
    ]
    assert all(not torch.equal(other, images[:1]) for other in others)
    val = workload_by_name("resnet", spec).samples("eval")
    assert torch.equal(val[Request(0, np.array([7]))][0], val[Request(1, np.array([7]))][0])


def test_shards_give_the_same_rows_held_in_memory_or_read_from_disk(articles, monkeypatch) -> None:
    from mlscaling.workloads import bert

    held = bert.PretrainingSamples(articles, split="train")
    monkeypatch.setattr(bert, "HELD_BYTES", 0)
    streamed = bert.PretrainingSamples(articles, split="train")
    request = Request(0, np.array([3071, 0, 1535, 1536, 1535]))
    assert len(held) == len(streamed) == 3072
    for one, other in zip(held[request], streamed[request], strict=True):
        assert torch.equal(one, other)
        assert one.dtype == torch.int64


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"no image", None], ids=["cut", "text", "gone"]
)
def test_a_damaged_prepared_image_is_a_failure_of_the_data_that_names_it(digits, tmp_path, damage) -> None:
    (tmp_path / "train" / "n90000000").mkdir(parents=True)
    (tmp_path / "train.txt").write_text("n90000000/x.JPEG\n")
    path = tmp_path / "train" / "n90000000" / "x.JPEG"
    if damage:
        path.write_bytes(damage(next((digits / "train").glob("*/*.JPEG")).read_bytes()))
    samples = workload("resnet", scale="tiny", data_dir=tmp_path).samples("train")
    with pytest.raises(ValueError, match=f"mlscaling data error: {path}: .*prepare the dataset anew") as error:
        samples[Request(0, np.array([0]))]
    assert classify([f"0: ValueError: {error.value}"], otherwise="").failure_class == "data"


def test_a_damaged_shard_is_a_failure_of_the_data_that_names_it(articles, tmp_path) -> None:
    path = tmp_path / "train_00000.hdf5"
    path.write_bytes((articles / path.name).read_bytes()[:5000])
    with pytest.raises(ValueError, match=f"mlscaling data error: {path}: .*prepare the dataset anew"):
        workload("bert", scale="tiny", data_dir=tmp_path).samples("train")


@pytest.mark.parametrize("name", workload_names())
def test_names_read_from_a_modules_source_are_those_it_has(name: str) -> None:
    found, module = declared(name), workload(name, scale="tiny")
    assert found.sizes == set(module.full_scale)
    assert found.static_shapes == module.static_shapes
    asked = set()
    real = type(module).hyperparameter
    type(module).hyperparameter = lambda self, key, *default: asked.add(key) or real(self, key, *default)
    try:
        module.optimizer(module.model())
        module.schedule()
        module.log_values()
    finally:
        type(module).hyperparameter = real
    assert asked <= found.hyperparameters
    assert asked


@pytest.mark.parametrize(
    ("name", "totals", "quality"), [("resnet", [8, 6], 0.75), ("bert", [4, 20, 5], 0.25), ("rnnt", [8, 3, 60], 0.05)]
)
def test_quality_is_a_ratio_of_counts(name: str, totals, quality: float) -> None:
    assert workload(name).quality(totals) == quality


@pytest.mark.slow
@pytest.mark.parametrize("name", workload_names())
def test_full_scale_takes_an_optimiser_step_on_one_real_shaped_sample(name: str, monkeypatch) -> None:
    """BERT-large takes 7 GiB and 45 s of a core; how its 336 million weights are drawn is tested at the tiny scale."""
    monkeypatch.setattr(torch.nn.init, "trunc_normal_", lambda value, **_: value.normal_(std=0.02))
    found = workload(name)
    torch.manual_seed(0)
    model = found.model().train()
    optimizer = found.optimizer(model)
    before = [some_of(value) for value in model.parameters()]
    loss = found.loss(model, BATCHES[name]())
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
    changed = [not torch.equal(old, some_of(new)) for old, new in zip(before, model.parameters(), strict=True)]
    assert sum(changed) > 0.3 * len(changed)
    assert all(torch.isfinite(value).all() for value in model.parameters())


def some_of(value: torch.Tensor) -> torch.Tensor:
    """A thousand of its numbers: a copy of all would take as much memory as the model."""
    return value.detach().flatten()[:: max(1, value.numel() // 1000)].clone()


def image_batch():
    return torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8), torch.tensor([1, 999])


def sequence_batch():
    tokens = torch.randint(5, 30522, (1, 512))
    ones = torch.ones_like(tokens)
    positions, labels = torch.arange(76)[None], torch.randint(5, 30522, (1, 76))
    return tokens, ones, ones, positions, labels, torch.tensor([1])


def spoken_batch():
    """An utterance of two seconds, among LibriSpeech's shortest."""
    tokens = torch.randint(0, 1023, (1, 10))
    return 0.1 * torch.randn(1, 32_000), torch.tensor([32_000]), tokens, torch.tensor([10]), torch.rand(1, 12, 2)


BATCHES = {
    "resnet": image_batch,
    "bert": sequence_batch,
    "ssd": lambda: workload("ssd").synthetic_batch(1),
    "maskrcnn": lambda: workload("maskrcnn").synthetic_batch(1),
    "rnnt": spoken_batch,
}
RENAMED = {"opt_learning_decay_steps": "opt_learning_rate_decay_steps"}
"""Where the round's RCPs have another name than its logs."""
CORRECTED = {
    # Of 32 samples and in epochs in the file; of the batch and in steps in the round's logs.
    ("ssd", 1536): {"opt_base_learning_rate": 0.0025 * 1536 / 32, "opt_learning_rate_warmup_steps": 200},
}


LISTED = ("ssd", "maskrcnn")
"""Workloads whose YAML lists them, since the RCPs have slips or other units."""


@pytest.mark.parametrize("name", [name for name in workload_names() if name in LISTED])
def test_listed_hyperparameters_are_those_of_the_rounds_rcps(name: str) -> None:
    text = (resources.files("mlperf_logging.rcp_checker") / "training_1.1.0" / f"rcps_{name}.json").read_text("utf-8")
    published = {record["BS"]: record["Hyperparams"] for record in json.loads(text).values()}
    records = tiny_runs.configuration("workloads", name)["scales"]["full"]["hyperparameters"]
    assert published.keys() <= {record["global_batch_size"] for record in records}
    for record in records:
        if (size := record["global_batch_size"]) not in published:
            continue
        expected = {RENAMED.get(key, key): value for key, value in published[size].items()}
        expected |= CORRECTED.get((name, size), {})
        shared = expected.keys() & record.keys()
        assert {key: record[key] for key in shared} == {key: expected[key] for key in shared}
        assert len(shared) >= min(5, len(expected) - 1)


@pytest.mark.parametrize("ruleset", ["1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0"])
@pytest.mark.parametrize(
    ("name", "names", "left_out", "common"),
    [
        (
            "resnet",
            {"optimizer": "opt_name", "epsilon": "lars_epsilon"},
            {"model_bn_span"},
            {"opt_end_learning_rate": 0.0001, "opt_learning_rate_decay_poly_power": 2, "lars_epsilon": 0},
        ),
        ("bert", {}, {"gradient_accumulation_steps"}, {}),
    ],
)
def test_full_scale_takes_the_hyperparameters_of_the_rounds_rcps(name, names, left_out, common, ruleset) -> None:
    file = resources.files("mlperf_logging.rcp_checker") / f"training_{ruleset}" / f"rcps_{name}.json"
    published = {record["BS"]: record for record in json.loads(file.read_text("utf-8")).values()}
    found, problems = load_workload(name, config_dir=tiny_runs.ROOT / "config", file="", key="", ruleset=ruleset)
    assert problems == []
    records = found.scales["full"].hyperparameters
    assert records.keys() == published.keys()
    unit = found.convergence_unit
    for size, record in records.items():
        expected = {
            names.get(key, key): value for key, value in published[size]["Hyperparams"].items() if key not in left_out
        }
        slowest = max(published[size]["Epochs to converge"])
        assert record == common | expected | {f"max_{unit}": record[f"max_{unit}"]}
        assert 1.2 * slowest <= record[f"max_{unit}"] < 1.2 * slowest + 1


def test_a_decay_in_epochs_as_some_rcps_of_round_1_0_have_it_is_refused() -> None:
    with pytest.raises(
        ValueError, match="opt_learning_rate_decay_steps 35 at global_batch_size 1632 is less than an epoch"
    ):
        workload("resnet", hyperparameters={"opt_learning_rate_decay_steps": 35}).schedule()


def test_bert_is_evaluated_as_the_rules_say_at_every_batch_size() -> None:
    """training_rules.adoc of round 1.1: FLOOR(0.05*(230.23*GBS+3000000), 25000) samples."""
    interval = tiny_runs.workload_spec("bert").scales["full"].evaluate_every_samples
    for size in range(1, 66_000):
        assert interval.at(size) == (5 * (23023 * size + 300_000_000) // 10_000) // 25_000 * 25_000
    readme = {256: 150_000, 1024: 150_000, 1536: 150_000, 2048: 150_000, 3072: 175_000, 4096: 175_000}
    assert {size: interval.at(size) for size in readme} == readme, "the reference's table"
    assert workload("bert", global_batch_size=13056).spec.evaluate_every_samples == 300_000
