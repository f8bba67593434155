"""Prepared COCO images of one split: where each one's JPEG lies, and its objects, as flat arrays.

JPEGs stand one behind the other in a few shards, `<split>_00000.jpegs`, so that a training opens a few files instead of
118,000. Beside them lies the index, `<split>.npz`, which a rank reads in a second; COCO's JSON would take it half a
minute and gigabytes.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """A split of n images with m objects; the objects of image i are `first_object[i]` … `first_object[i + 1]` − 1."""

    image_ids: np.ndarray
    """COCO's identifiers in ascending order, int64 (n,)."""
    sizes: np.ndarray
    """Height and width in pixels, int32 (n, 2)."""
    shards: np.ndarray
    """Number of the image's shard, int32 (n,)."""
    offsets: np.ndarray
    """Place of its JPEG in the shard, bytes, int64 (n,)."""
    lengths: np.ndarray
    """Length of its JPEG, bytes, int64 (n,)."""
    first_object: np.ndarray
    """int64 (n + 1,)."""
    boxes: np.ndarray
    """Left, top, width, height in pixels as annotated, float64 (m, 4)."""
    labels: np.ndarray
    """1 … number of categories, in the order of COCO's identifiers, int64 (m,); 0 is the background."""
    areas: np.ndarray
    """Area of the mask, square pixels as annotated, float64 (m,)."""
    crowds: np.ndarray
    """Whether the annotation is of a group of objects, bool (m,)."""
    first_byte: np.ndarray
    """Place of each mask in `masks`, int64 (m + 1,)."""
    masks: np.ndarray
    """Compressed run lengths of all masks, uint8."""
    categories: np.ndarray
    """Names of the categories in the order of the labels, str."""

    def __len__(self) -> int:
        return len(self.image_ids)

    def objects(self, row: int) -> slice:
        """Objects of an image."""
        return slice(int(self.first_object[row]), int(self.first_object[row + 1]))

    def run_lengths(self, row: int) -> list[dict[str, Any]]:
        """Masks of an image's objects as pycocotools takes them."""
        height, width = self.sizes[row].tolist()
        found = self.objects(row)
        places = self.first_byte[found.start : found.stop + 1].tolist()
        return [
            {"size": [height, width], "counts": self.masks[begin:end].tobytes()}
            for begin, end in itertools.pairwise(places)
        ]

    def save(self, path: Path) -> None:
        """Write beside, then rename; equal indices give equal bytes."""
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("wb") as file:
            np.savez(file, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        os.replace(partial, path)

    @classmethod
    def load(cls, folder: Path, *, split: str) -> Self:
        """Read the index of a prepared split.

        Raises:
            FileNotFoundError: where the dataset is not prepared.
        """
        path = index_path(folder, split)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such index; prepare the dataset first")
        with np.load(path) as arrays:
            return cls(**{f.name: arrays[f.name] for f in dataclasses.fields(cls)})


def index_path(folder: Path, split: str) -> Path:
    """File of a split's index."""
    return folder / f"{split}.npz"


def shard_path(folder: Path, split: str, number: int) -> Path:
    """File of one shard of a split."""
    return folder / f"{split}_{number:05d}.jpegs"
