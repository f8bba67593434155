"""Images and objects of a prepared split as batches, whatever the images' sizes."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mlscaling.detection.index import Index, shard_path
from mlscaling.workloads.base import Batch, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One image and its objects."""

    image: np.ndarray
    """uint8 (height, width, 3)."""
    boxes: np.ndarray
    """Left, top, right, bottom in pixels, float32 (objects, 4)."""
    labels: np.ndarray
    """int64 (objects,)."""
    masks: np.ndarray
    """uint8 (objects, height, width); (0, height, width) where none are wanted."""


Change = Callable[[Sample, np.random.Generator], Sample]
"""What is done to an image before it is trained on; all chance comes from the generator."""


class DetectionBatch(NamedTuple):
    """Tensors of a batch. Images of other sizes than the largest are padded below and to the right."""

    images: Tensor
    """uint8 (samples, 3, height, width)."""
    places: Tensor
    """Row in the index, height, width, and number of objects of each image, int64 (samples, 4)."""
    boxes: Tensor
    """Of all objects, image after image, float32 (objects, 4)."""
    labels: Tensor
    """int64 (objects,)."""
    masks: Tensor
    """uint8 (objects, height, width); no object where no masks are wanted."""

    def inputs(self) -> list[Tensor]:
        """Float images in 0 … 1, each of its own size, as torchvision's models take them."""
        images = self.images.float() / 255
        return [image[:, :height, :width] for image, (_, height, width, _) in zip(images, self._places, strict=True)]

    def targets(self) -> list[dict[str, Tensor]]:
        """Objects of each image, as torchvision's models take them."""
        counts = [count for _, _, _, count in self._places]
        found = [
            {"boxes": boxes, "labels": labels}
            for boxes, labels in zip(torch.split(self.boxes, counts), torch.split(self.labels, counts), strict=True)
        ]
        if len(self.masks):
            for target, masks, place in zip(found, torch.split(self.masks, counts), self._places, strict=True):
                target["masks"] = masks[:, : place[1], : place[2]]
        return found

    def rows(self) -> list[int]:
        """Row of each image in the index."""
        return [row for row, _, _, _ in self._places]

    @property
    def _places(self) -> list[list[int]]:
        places: list[list[int]] = self.places.tolist()
        return places


class DetectionSamples:
    """JPEGs of one split, decoded anew for each use, with their objects where they are trained on."""

    def __init__(
        self, folder: Path, *, split: str, seed: int, change: Change | None = None, with_masks: bool = False
    ) -> None:
        self.index = Index.load(folder, split=split)
        self._folder = folder
        self._split = split
        self._seed = seed
        self._change = change
        self._is_trained_on = split == "train"
        self._with_masks = with_masks and self._is_trained_on

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, request: Request) -> Batch:
        """A `DetectionBatch`; what is drawn belongs to (seed, epoch, sample), whatever rank or worker loads it."""
        samples = []
        for index in request.indices.tolist():
            sample = self.sample(index)
            if self._change is not None:
                bits = np.random.Philox(key=[self._seed, request.epoch], counter=[0, 0, 0, index])
                sample = self._change(sample, np.random.Generator(bits))
            samples.append(sample)
        return collated(samples, rows=request.indices.tolist(), with_masks=self._with_masks)

    def sample(self, row: int) -> Sample:
        """An image of the index and its objects, as stored."""
        index = self.index
        content = os.pread(self._shards[int(index.shards[row])], int(index.lengths[row]), int(index.offsets[row]))
        with Image.open(io.BytesIO(content)) as file:
            image = np.array(file.convert("RGB"))
        objects = index.objects(row) if self._is_trained_on else slice(0, 0)
        boxes = index.boxes[objects].astype(np.float32)
        boxes[:, 2:] += boxes[:, :2]
        height, width = image.shape[:2]
        masks = np.zeros((0, height, width), dtype=np.uint8)
        if self._with_masks:
            from pycocotools import mask

            masks = mask.decode(index.run_lengths(row)).transpose(2, 0, 1)
        return Sample(image=image, boxes=boxes, labels=index.labels[objects], masks=masks)

    @functools.cached_property
    def _shards(self) -> list[int]:
        """Open files; reads name their place, so that they may be shared by processes."""
        number = int(self.index.shards.max()) + 1
        return [os.open(shard_path(self._folder, self._split, shard), os.O_RDONLY) for shard in range(number)]


def collated(samples: Sequence[Sample], *, rows: Sequence[int], with_masks: bool) -> DetectionBatch:
    """One batch of images of any sizes, channels-last in memory."""
    height = max(sample.image.shape[0] for sample in samples)
    width = max(sample.image.shape[1] for sample in samples)
    num_objects = [len(sample.labels) for sample in samples]
    images = np.zeros((len(samples), height, width, 3), dtype=np.uint8)
    masks = np.zeros((sum(num_objects) if with_masks else 0, height, width), dtype=np.uint8)
    first = 0
    for number, sample in enumerate(samples):
        images[number, : sample.image.shape[0], : sample.image.shape[1]] = sample.image
        if with_masks:
            masks[first : first + num_objects[number], : sample.image.shape[0], : sample.image.shape[1]] = sample.masks
            first += num_objects[number]
    places = [
        [row, *sample.image.shape[:2], count] for row, sample, count in zip(rows, samples, num_objects, strict=True)
    ]
    return DetectionBatch(
        images=torch.from_numpy(images).permute(0, 3, 1, 2),
        places=torch.tensor(places),
        boxes=torch.from_numpy(np.concatenate([sample.boxes for sample in samples])),
        labels=torch.from_numpy(np.concatenate([sample.labels for sample in samples])),
        masks=torch.from_numpy(masks),
    )


def flipped(sample: Sample) -> Sample:
    """Left and right exchanged."""
    width = sample.image.shape[1]
    boxes = np.stack(
        [width - sample.boxes[:, 2], sample.boxes[:, 1], width - sample.boxes[:, 0], sample.boxes[:, 3]], 1
    )
    return Sample(
        image=sample.image[:, ::-1], boxes=boxes, labels=sample.labels, masks=sample.masks[:, :, ::-1]
    )  # fmt: skip


def flipped_by_chance(sample: Sample, draw: np.random.Generator) -> Sample:
    """Flipped in one of two cases, as both references do."""
    return flipped(sample) if draw.random() < 0.5 else sample
