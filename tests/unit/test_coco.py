"""COCO: preparation of its zips, every damage that they may have, and mAP as pycocotools itself has it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlscaling.datasets import coco, preparation
from mlscaling.detection import annotations, precision
from mlscaling.detection.index import Index
from mlscaling.detection.precision import Detections, average_precision
from mlscaling.detection.samples import DetectionSamples
from mlscaling.spec import DatasetSpec
from PIL import Image

TRIANGLE = [[10.0, 10.0, 30.0, 10.0, 10.0, 40.0]]
CROWD = {"size": [40, 50], "counts": [400, 100, 1500]}


def jpeg(mode: str = "RGB", size: tuple[int, int] = (50, 40)) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 128 if mode == "L" else (128,) * len(mode)).save(buffer, "JPEG")
    return buffer.getvalue()


def instance(number: int, image: int, **changes: Any) -> dict[str, Any]:
    box = [10.0, 10.0, 20.0, 30.0]
    values = {"id": number, "image_id": image, "category_id": 7, "bbox": box, "area": 300.0, "iscrowd": 0}
    values |= {"segmentation": TRIANGLE, **changes}
    return {key: value for key, value in values.items() if value is not None}


def split(images: list[int], objects: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A file of instances; the order of its members is COCO's."""
    listed = [{"id": n, "file_name": f"{n:012d}.jpg", "height": 40, "width": 50} for n in images]
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}]
    return {"info": {}, "licenses": [], "images": listed, "annotations": objects, "categories": categories, **changes}


class Raw:
    """A miniature COCO: four images to train on, two to validate; tests change a part before they write it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        objects = [instance(1, 9), instance(2, 9, category_id=3), instance(3, 4), instance(4, 2), instance(5, 5)]
        self.files = {
            "train": split([9, 2, 4, 5], objects),
            "val": split([6, 8], [instance(1, 8), instance(2, 8, iscrowd=1, segmentation=CROWD)]),
        }
        self.images = {
            s: {i["file_name"]: jpeg() for i in content["images"]} for s, content in self.files.items()
        }  # fmt: skip
        self.spec = DatasetSpec(
            name="coco", title="", format="coco", raw={name: {} for name in ARCHIVES},
            options={"train_shards": 2, "val_shards": 1}, source="https://cocodataset.org",
        )  # fmt: skip

    def write(self) -> None:
        raw = self.folder / "raw"
        raw.mkdir(exist_ok=True)
        for s in ("train", "val"):
            with zipfile.ZipFile(raw / f"{s}2017.zip", "w") as archive:
                for name, content in self.images[s].items():
                    archive.writestr(f"{s}2017/{name}", content)
        with zipfile.ZipFile(raw / coco.ANNOTATIONS, "w", zipfile.ZIP_DEFLATED) as archive:
            for s, content in self.files.items():
                archive.writestr(f"annotations/instances_{s}2017.json", json.dumps(content))

    def prepare(self, **options: Any) -> dict[str, Any]:
        names = {"raw_dir": self.folder / "raw", "data_dir": self.folder / "data"}
        preparation.prepare_dataset(self.spec, manifest=self.folder / "manifest.json", **names, **options)
        return json.loads((self.folder / "manifest.json").read_text())


ARCHIVES = ("train2017.zip", "val2017.zip", coco.ANNOTATIONS)


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_images_and_objects_are_those_of_the_annotations(raw: Raw) -> None:
    raw.write()
    assert raw.prepare()["splits"] == {"train": 4, "val": 2}
    train = Index.load(raw.folder / "data", split="train")
    assert train.image_ids.tolist() == [2, 4, 5, 9]
    assert train.categories.tolist() == ["dog", "cat"], "in the order of COCO's identifiers"
    assert [train.labels[train.objects(row)].tolist() for row in range(4)] == [[2], [2], [2], [2, 1]]
    assert train.shards.tolist() == [0, 0, 1, 1]
    samples = DetectionSamples(raw.folder / "data", split="train", seed=0, with_masks=True)
    sample = samples.sample(3)
    assert sample.boxes.tolist() == [[10, 10, 30, 40]] * 2
    assert sample.masks.shape == (2, 40, 50)
    assert sample.masks[0].sum() == pytest.approx(300, rel=0.1)


@pytest.mark.parametrize(
    ("objects", "kept"),
    [
        ([instance(1, 4)], [4]),
        ([instance(1, 4), instance(2, 9, iscrowd=1, segmentation=CROWD)], [4]),
        ([instance(1, 4), instance(2, 9, bbox=[10.0, 10.0, 0.5, 30.0])], [4]),
        ([instance(1, 4), instance(2, 4, iscrowd=1, segmentation=CROWD), instance(3, 9)], [4, 9]),
    ],
    ids=["no object", "only a crowd", "a box of half a pixel", "a crowd beside an object"],
)
def test_images_without_an_object_to_train_on_are_left_out(raw: Raw, objects, kept: list[int]) -> None:
    raw.files["train"] = split([4, 9], objects)
    raw.write()
    raw.prepare()
    train = Index.load(raw.folder / "data", split="train")
    assert train.image_ids.tolist() == kept
    assert not train.crowds.any()
    assert len(train.labels) == len(kept)


def test_validation_keeps_every_image_and_crowds(raw: Raw) -> None:
    raw.write()
    raw.prepare()
    val = Index.load(raw.folder / "data", split="val")
    assert val.image_ids.tolist() == [6, 8]
    assert val.objects(0) == slice(0, 0)
    assert val.crowds.tolist() == [False, True]
    from pycocotools import mask

    assert mask.area(val.run_lengths(1)).tolist() == [int(mask.area(val.run_lengths(1)[0])), 100]


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_grey_and_cmyk_images_are_read_as_rgb(raw: Raw, mode: str) -> None:
    raw.images["train"]["000000000004.jpg"] = jpeg(mode)
    raw.write()
    raw.prepare()
    samples = DetectionSamples(raw.folder / "data", split="train", seed=0)
    assert samples.sample(1).image.shape == (40, 50, 3)


def test_raw_files_beside_the_archives_are_copied(raw: Raw) -> None:
    raw.write()
    (raw.folder / "raw" / "resnet.pth").write_bytes(b"weights")
    raw.spec = dataclasses.replace(raw.spec, raw={**raw.spec.raw, "resnet.pth": {}})
    manifest = raw.prepare()
    assert (raw.folder / "data" / "resnet.pth").read_bytes() == b"weights"
    assert "resnet.pth" in manifest["raw"]


# --- what is wrong ---------------------------------------------------------------------------------------------------


def without_image(raw: Raw) -> None:
    del raw.images["train"]["000000000004.jpg"]


def of_another_size(raw: Raw) -> None:
    raw.images["train"]["000000000004.jpg"] = jpeg(size=(40, 50))


def no_image(raw: Raw) -> None:
    raw.images["val"]["000000000006.jpg"] = b"<html>"


def changed(part: str, **changes: Any) -> Callable[[Raw], None]:
    def damage(raw: Raw) -> None:
        raw.files["train"][part].append(instance(77, 9, **changes))

    return damage


def without_split(raw: Raw) -> None:
    del raw.files["val"]


DAMAGES = [
    (without_image, r"train2017.zip lacks 1 of 4 annotated images: train2017/000000000004.jpg"),
    (of_another_size, r"train2017/000000000004.jpg: is 40 × 50 pixels, its annotation says 50 × 40"),
    (no_image, r"val2017.zip, val2017/000000000006.jpg: is no image"),
    (changed("annotations", image_id=1), r"annotation 77 is of image 1, which is not listed"),
    (changed("annotations", segmentation=[]), r"instances_train2017.json: entry 77 has no segmentation"),
    (changed("annotations", bbox=None, area=None), r"entry 77 has no bbox, area"),
    (changed("annotations", category_id=8), r"categories \[8\] have annotations but are not listed"),
    (without_split, r"annotations_trainval2017.zip, .*no item named 'annotations/instances_val2017.json'"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[message[:40] for _, message in DAMAGES])
def test_what_does_not_fit_is_named(raw: Raw, damage, message: str) -> None:
    damage(raw)
    raw.write()
    with pytest.raises(ValueError, match=message):
        raw.prepare()
    assert not (raw.folder / "manifest.json").exists()


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_truncated_archive_is_named(raw: Raw, name: str) -> None:
    raw.write()
    path = raw.folder / "raw" / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=f"{name}.* is no whole .*archive"):
        raw.prepare()


def test_a_damaged_image_is_named(raw: Raw) -> None:
    raw.write()
    path = raw.folder / "raw" / "train2017.zip"
    content = bytearray(path.read_bytes())
    content[200] ^= 1  # within the first image
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"train2017.zip, train2017/000000000009.jpg: is damaged: Bad CRC-32"):
        raw.prepare()


def test_a_wrong_checksum_is_named(raw: Raw) -> None:
    raw.write()
    raw.spec = dataclasses.replace(raw.spec, raw={name: {"md5": "0" * 32} for name in ARCHIVES})
    with pytest.raises(
        ValueError, match=r"annotations_trainval2017.zip is damaged .*expected md5 0+, found .*cocodataset"
    ):
        raw.prepare()


def test_too_little_disk_space_is_said_before_anything_is_written(raw: Raw, monkeypatch, capsys) -> None:
    raw.write()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 10, 10))
    with pytest.raises(OSError, match=r"not enough disk space: the images take 0.00 GiB in .*data.partial"):
        raw.prepare()
    assert not list(raw.folder.rglob("*.jpegs*"))
    assert "the images take" in capsys.readouterr().out


# --- interruptions ---------------------------------------------------------------------------------------------------


def test_an_interrupted_preparation_continues(raw: Raw, monkeypatch) -> None:
    made, real = [], coco.make_shard

    def dies_at_second(shard: coco.Shard) -> None:
        if made == ["train_00000.jpegs"]:
            made.append("died")
            raise KeyboardInterrupt
        made.append(shard.path.name)
        real(shard)

    raw.write()
    monkeypatch.setattr(coco, "make_shard", dies_at_second)
    with pytest.raises(KeyboardInterrupt):
        raw.prepare()
    raw.prepare()
    assert made == ["train_00000.jpegs", "died", "train_00001.jpegs", "val_00000.jpegs"], "the first shard is kept"


def test_several_processes_give_the_same_bytes(raw: Raw, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Raw(tmp_path_factory.mktemp("other"))
    for one in (raw, other):
        one.write()
    assert raw.prepare() == other.prepare(num_processes=2)


# --- the stream of annotations ---------------------------------------------------------------------------------------

TEXTS = ['{"a": [], "b": {"c": [1, {"d": "]}"}]}, "e": [12345, [6], {}], "f": 7}', ' { "a" : [ 1 , 2 ] } ']


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize("text", TEXTS)
def test_json_is_read_as_a_stream_whatever_is_read_at_once(monkeypatch, text: str, size: int) -> None:
    monkeypatch.setattr(annotations, "CHUNK_CHARACTERS", size)
    whole: dict[str, Any] = json.loads(text)
    expected = [(k, v) for k, value in whole.items() for v in (value if isinstance(value, list) else [value])]
    assert list(annotations.members(io.BytesIO(text.encode()))) == expected


@pytest.mark.parametrize("text", ["", "[1]", '{"a": [1, 2', '{"a": [1, 2}', '{"a" 1}', '{"a": 1'])
def test_json_that_ends_early_is_no_shorter_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting"):
        list(annotations.members(io.BytesIO(text.encode())))


def test_annotations_may_come_before_their_images(raw: Raw) -> None:
    content = raw.files["train"]
    raw.files["train"] = {key: content[key] for key in ("annotations", "categories", "images")}
    raw.write()
    assert raw.prepare()["splits"]["train"] == 4


# --- mean average precision ------------------------------------------------------------------------------------------


def found_by_chance(index: Index, *, seed: int = 0) -> dict[int, Detections]:
    """The objects of every image, displaced and of a doubtful label, and some more; equal scores occur."""
    from pycocotools import mask

    draw = np.random.default_rng(seed)
    found = {}
    for row in range(len(index)):
        objects = index.objects(row)
        boxes = index.boxes[objects].repeat(2, axis=0) + draw.normal(0, 1.5, (2 * (objects.stop - objects.start), 4))
        boxes[:, 2:] = np.maximum(1, boxes[:, 2:])
        labels = np.where(draw.random(len(boxes)) < 0.8, index.labels[objects].repeat(2), 1)
        masks = mask.decode(index.run_lengths(row)).repeat(2, axis=2) if len(boxes) else None
        runs = mask.encode(np.asfortranarray(np.roll(masks, 2, axis=0))) if len(boxes) else []
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        scores = np.round(draw.random(len(boxes)), 1)
        found[row] = Detections(boxes=corners, scores=scores, labels=labels, masks=runs)
    return found


@pytest.mark.parametrize("kind", ["bbox", "segm"])
def test_average_precision_is_that_of_pycocotools_on_the_raw_annotations(
    shapes: Path, tiny_data: Path, kind: str
) -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    index = Index.load(shapes, split="val")
    found = found_by_chance(index)
    with zipfile.ZipFile(tiny_data / "raw" / "coco_shapes" / coco.ANNOTATIONS) as archive:
        (tiny_data / "val.json").write_bytes(archive.read("annotations/instances_val2017.json"))
    identifiers = [1, 3, 4]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(tiny_data / "val.json")
        entries = [
            {"image_id": int(index.image_ids[row]), "category_id": identifiers[label - 1], "score": float(score)}
            | ({"bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]]} if kind == "bbox" else {"segmentation": runs})
            for row, one in found.items()
            for box, label, score, runs in zip(one.boxes.tolist(), one.labels.tolist(), one.scores, one.masks, strict=True)
        ]  # fmt: skip
        official = COCOeval(truth, truth.loadRes(entries), kind)
        official.evaluate()
        official.accumulate()
        official.summarize()
    assert 0.1 < official.stats[0] < 0.9
    assert average_precision(index, found, kind=kind) == official.stats[0]


def test_average_precision_does_not_depend_on_how_images_are_spread(shapes: Path, monkeypatch) -> None:
    index = Index.load(shapes, split="val")
    found = found_by_chance(index)
    together = average_precision(index, found, kind="bbox")
    for ranks in (2, 3, 100):
        shares = [{row: found[row] for row in found if row % ranks == rank} for rank in range(ranks)]
        monkeypatch.setattr(
            precision,
            "gather_over_ranks",
            lambda mine, s=shares: [precision.matches(index, one, kind="bbox") for one in s],
        )
        assert average_precision(index, shares[0], kind="bbox") == together


def test_nothing_found_is_a_precision_of_nought(shapes: Path) -> None:
    index = Index.load(shapes, split="val")
    none = Detections(boxes=np.zeros((0, 4)), scores=np.zeros(0), labels=np.zeros(0, dtype=np.int64))
    assert average_precision(index, dict.fromkeys(range(len(index)), none), kind="bbox") == 0
