"""COCO 2017: the zips of images and of instance annotations → shards of JPEGs and an index for each split.

Raw layout (https://cocodataset.org/#download): `train2017.zip`, `val2017.zip` with a folder of that name, and
`annotations_trainval2017.zip` with `annotations/instances_{train,val}2017.json`. Raw files beside them, such as the
weights of a backbone that the benchmarks start from, are copied as they are.

What is kept follows the reference (mlcommons/training, object_detection): training leaves out crowds, objects without a
usable box and images without such an object; validation keeps every image, and crowds, which its metric ignores.
JPEGs are stored as they came, grey and CMYK ones too; the loader converts.
"""

from __future__ import annotations

import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlscaling.detection.annotations import Instances, read_instances
from mlscaling.detection.index import Index, index_path, shard_path
from mlscaling.spec import DatasetSpec

ANNOTATIONS = "annotations_trainval2017.zip"
SPLITS = ("train", "val")
PACKAGES = ("numpy", "pillow", "pycocotools")
GIBIBYTE = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One shard to be made, by one process."""

    archive: Path
    """Zip of the split's images."""
    path: Path
    """File to write."""
    members: tuple[str, ...]
    """Images in the shard's order."""
    sizes: tuple[tuple[int, int], ...]
    """Annotated height and width of each."""


def prepare(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path, num_processes: int = 1) -> dict[str, int]:
    """Make the shards of one split after the other, and its index last; what is there is skipped.

    Prints the disk space that the images take before the first is written.

    Returns:
        Number of images by split.
    Raises:
        ValueError: for a truncated archive, or images and annotations that do not fit each other, naming the file.
        OSError: where the disk has less space than the images take.
    """
    num_images = {}
    for split in SPLITS:
        if not index_path(out_dir, split).exists():
            make_split(spec, split=split, raw_dir=raw_dir, out_dir=out_dir, num_processes=num_processes)
        num_images[split] = len(Index.load(out_dir, split=split))
    for name in sorted(spec.raw.keys() - {ANNOTATIONS, *(archive_name(split) for split in SPLITS)}):
        shutil.copyfile(raw_dir / name, out_dir / f"{name}.partial")
        os.replace(out_dir / f"{name}.partial", out_dir / name)
    return num_images


def archive_name(split: str) -> str:
    """Zip of a split's images."""
    return f"{split}2017.zip"


def make_split(spec: DatasetSpec, *, split: str, raw_dir: Path, out_dir: Path, num_processes: int) -> None:
    """Make the shards of a split that are missing, several at a time, then its index."""
    instances = read_instances(raw_dir / ANNOTATIONS, f"annotations/instances_{split}2017.json")
    archive = raw_dir / archive_name(split)
    image_ids, objects = kept(instances, only_usable=split == "train")
    lengths = member_lengths(archive, names=[member_name(instances, i, split=split) for i in image_ids])
    num_shards = int(spec.options[f"{split}_shards"])
    index = indexed(instances, image_ids=image_ids, objects=objects, lengths=lengths, num_shards=num_shards)
    shards = [_shard(index, instances, number, archive, out_dir, split) for number in range(num_shards)]
    todo = [shard for shard in shards if not shard.path.exists()]
    check_space(out_dir, num_bytes=sum(int(lengths[index.shards == shards.index(shard)].sum()) for shard in todo))
    if num_processes == 1:
        for shard in todo:
            make_shard(shard)
    else:
        with ProcessPoolExecutor(num_processes) as pool:
            list(pool.map(make_shard, todo))
    index.save(index_path(out_dir, split))


def kept(instances: Instances, *, only_usable: bool) -> tuple[np.ndarray, np.ndarray]:
    """Identifiers of the split's images, ascending, and the numbers of its objects by image.

    With `only_usable` neither images nor objects that cannot be trained on.
    """
    owners = np.array(instances.image_ids, dtype=np.int64)
    objects = np.argsort(owners, kind="stable")
    image_ids = np.array(sorted(instances.images), dtype=np.int64)
    if only_usable:
        objects = objects[instances.usable()[objects]]
        image_ids = np.unique(owners[objects])
    return image_ids, objects


def member_name(instances: Instances, image_id: int, *, split: str) -> str:
    """Path of an image in the zip."""
    return f"{split}2017/{instances.images[int(image_id)].file_name}"


def member_lengths(archive: Path, *, names: Iterable[str]) -> np.ndarray:
    """Bytes of each image, from the archive's directory; int64.

    Raises:
        ValueError: for a truncated archive, or images that it lacks.
    """
    try:
        with zipfile.ZipFile(archive) as files:
            sizes = {entry.filename: entry.file_size for entry in files.infolist()}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is no whole zip archive: {error}") from None
    names = list(names)
    missing = [name for name in names if name not in sizes]
    if missing:
        shown = ", ".join(missing[:10])
        raise ValueError(f"{archive} lacks {len(missing)} of {len(names)} annotated images: {shown}")
    return np.array([sizes[name] for name in names], dtype=np.int64)


def indexed(
    instances: Instances, *, image_ids: np.ndarray, objects: np.ndarray, lengths: np.ndarray, num_shards: int
) -> Index:
    """Index of a split whose images are spread over shards in the order of their identifiers."""
    shards = np.arange(len(image_ids)) * num_shards // max(1, len(image_ids))
    ends = np.cumsum(lengths)
    firsts = np.searchsorted(shards, np.arange(num_shards))
    begins = np.concatenate([[0], ends])[:-1]
    owners = np.array(instances.image_ids, dtype=np.int64)[objects]
    categories = sorted(instances.categories)
    masks = [instances.masks[number] for number in objects]
    return Index(
        image_ids=image_ids,
        sizes=np.array([(i.height, i.width) for i in map(instances.images.__getitem__, image_ids.tolist())], np.int32),
        shards=shards.astype(np.int32),
        offsets=begins - begins[firsts[shards]] if len(begins) else begins,
        lengths=lengths,
        first_object=np.searchsorted(owners, np.append(image_ids, np.iinfo(np.int64).max)),
        boxes=np.array(instances.boxes).reshape(-1, 4)[objects],
        labels=1 + np.searchsorted(categories, np.array(instances.category_ids, dtype=np.int64)[objects]),
        areas=np.array(instances.areas)[objects],
        crowds=np.array(instances.crowds, dtype=bool)[objects],
        first_byte=np.cumsum([0, *(len(mask) for mask in masks)]),
        masks=np.frombuffer(b"".join(masks), dtype=np.uint8),
        categories=np.array([instances.categories[category] for category in categories]),
    )


def _shard(index: Index, instances: Instances, number: int, archive: Path, out_dir: Path, split: str) -> Shard:
    mine = np.flatnonzero(index.shards == number)
    return Shard(
        archive=archive,
        path=shard_path(out_dir, split, number),
        members=tuple(member_name(instances, i, split=split) for i in index.image_ids[mine]),
        sizes=tuple((int(height), int(width)) for height, width in index.sizes[mine]),
    )


def check_space(folder: Path, *, num_bytes: int) -> None:
    """Say what the images take, and raise OSError where the disk has less."""
    free = shutil.disk_usage(folder).free
    need = f"the images take {num_bytes / GIBIBYTE:.2f} GiB in {folder}, {free / GIBIBYTE:.2f} GiB are free"
    print(need, flush=True)
    if num_bytes > free:
        raise OSError(f"not enough disk space: {need}")


def make_shard(shard: Shard) -> None:
    """Copy the images of a shard behind each other, each checked; write beside, then rename."""
    partial = shard.path.with_name(f"{shard.path.name}.partial")
    with zipfile.ZipFile(shard.archive) as files, partial.open("wb") as out:
        for name, size in zip(shard.members, shard.sizes, strict=True):
            try:
                content = files.read(name)  # checks its CRC-32
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise ValueError(f"{shard.archive}, {name}: is damaged: {error}") from None
            check_image(content, size=size, place=f"{shard.archive}, {name}")
            out.write(content)
    os.replace(partial, shard.path)


def check_image(content: bytes, *, size: tuple[int, int], place: str) -> None:
    """Raise ValueError where the bytes are no image of the annotated height and width; only the header is read."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            found = (image.height, image.width)
    except UnidentifiedImageError:
        raise ValueError(f"{place}: is no image") from None
    if found != size:
        raise ValueError(f"{place}: is {found[1]} × {found[0]} pixels, its annotation says {size[1]} × {size[0]}")
