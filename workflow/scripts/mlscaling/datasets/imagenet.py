"""ImageNet-1k: the ILSVRC2012 archives → `train/<wnid>/*.JPEG`, `val/<wnid>/*.JPEG` (torchvision's ImageFolder).

Raw layout (https://image-net.org/challenges/LSVRC/2012): a tar of one tar per class, a flat tar of validation images,
and the development kit with the classes (`meta.mat`) and the validation ground truth, whose numbers are ILSVRC2012
identifiers. Beside each split lies a list of its files, so that a training need not scan a million directory entries.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from mlscaling.datasets import tars
from mlscaling.spec import DatasetSpec

TRAIN = "ILSVRC2012_img_train.tar"
VAL = "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
META = "data/meta.mat"
GROUND_TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"
PACKAGES = ("scipy",)


def prepare(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path, num_processes: int = 1) -> dict[str, int]:  # noqa: ARG001
    """Unpack one class after the other, renaming each when it is whole; classes that are there are skipped.

    One process whatever `num_processes` says: the work is reading one tar from front to back.

    Returns:
        Number of images by split.
    Raises:
        ValueError: for a truncated archive or a devkit that does not fit the images, naming the file.
    """
    extract_train(raw_dir / TRAIN, out_dir=out_dir / "train")
    extract_val(raw_dir / VAL, devkit=raw_dir / DEVKIT, out_dir=out_dir / "val")
    classes = {split: {path.name for path in (out_dir / split).iterdir()} for split in ("train", "val")}
    if classes["train"] != classes["val"]:
        differing = sorted(classes["train"] ^ classes["val"])
        raise ValueError(f"dataset {spec.name}: classes of only one split: {', '.join(differing[:10])}")
    return {split: write_list(out_dir, split=split) for split in ("train", "val")}


def extract_train(archive: Path, *, out_dir: Path) -> None:
    """Unpack the nested class tars as a stream, without writing them to disk."""
    with tars.opened(archive) as outer:
        for member in tars.files(outer):
            wnid = PurePosixPath(member.name).stem
            if (out_dir / wnid).exists():
                continue
            partial = _emptied(out_dir / f"{wnid}.partial")
            with (
                tars.content(outer, member) as stream,
                tars.opened(archive, inner=member.name, stream=stream) as images,
            ):
                for image in tars.files(images):
                    _copy(images, image, partial / PurePosixPath(image.name).name)
            os.replace(partial, out_dir / wnid)


def extract_val(archive: Path, *, devkit: Path, out_dir: Path) -> None:
    """Unpack the validation images into a folder for each class, named by the devkit's ground truth."""
    if out_dir.exists():
        return
    wnid_of_image = validation_classes(devkit)
    partial = _emptied(out_dir.with_name("val.partial"))
    with tars.opened(archive) as images:
        for image in tars.files(images):
            name = PurePosixPath(image.name).name
            # ILSVRC2012_val_00000001.JPEG is line 1 of the ground truth.
            number = int(PurePosixPath(name).stem.rpartition("_")[2])
            if not 1 <= number <= len(wnid_of_image):
                raise ValueError(f"{archive}: {name} has no line in the ground truth of {devkit}")
            folder = partial / wnid_of_image[number - 1]
            folder.mkdir(exist_ok=True)
            _copy(images, image, folder / name)
    os.replace(partial, out_dir)


def validation_classes(devkit: Path) -> list[str]:
    """Class (`wnid`) of each validation image, in the order of their numbers."""
    from scipy.io import loadmat

    names = {}
    with tars.opened(devkit) as kit:
        for member in tars.files(kit):
            for wanted in (META, GROUND_TRUTH):
                if member.name.endswith(wanted):
                    names[wanted] = tars.content(kit, member).read()
    missing = sorted({META, GROUND_TRUTH} - names.keys())
    if missing:
        raise ValueError(f"{devkit}: {', '.join(missing)} is missing")
    synsets = loadmat(io.BytesIO(names[META]), squeeze_me=True)["synsets"]
    wnid_of_identifier = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets}
    return [wnid_of_identifier[int(line)] for line in names[GROUND_TRUTH].decode("ascii").split()]


def write_list(out_dir: Path, *, split: str) -> int:
    """Write `<split>.txt`, one sorted `wnid/file` a line, and return the number of images."""
    names = sorted(path.relative_to(out_dir / split).as_posix() for path in (out_dir / split).glob("*/*"))
    partial = out_dir / f"{split}.txt.partial"
    partial.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    os.replace(partial, out_dir / f"{split}.txt")
    return len(names)


def _copy(images: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    with tars.content(images, member) as stream, target.open("wb") as file:
        shutil.copyfileobj(stream, file)


def _emptied(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
