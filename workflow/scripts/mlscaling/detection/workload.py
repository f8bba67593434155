"""What SSD and Mask R-CNN have in common: samples of COCO, losses inside the model, mAP over ranks."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from mlscaling.detection.backbone import load_trunk
from mlscaling.detection.index import Index
from mlscaling.detection.precision import Detections, average_precision
from mlscaling.detection.samples import Change, DetectionBatch, DetectionSamples, Sample, collated
from mlscaling.distributed import sum_over_ranks
from mlscaling.spec import RunSpec
from mlscaling.workloads.base import Batch, Evaluation, Workload

SPLITS = {"train": "train", "eval": "val"}


class DetectionWorkload(Workload):
    """A torchvision detector, which gives its losses in training and its detections in evaluation."""

    metrics: ClassVar[Mapping[str, str]]
    """Name in the log, empty where it is the only one → pycocotools' `bbox` or `segm`."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self._with_masks = "segm" in self.metrics.values()

    def load_initial_weights(self, model: nn.Module) -> None:
        """Weights of a classifier for the trunk, where `backbone_weights` names a file beside the data."""
        if self.sizes["backbone_weights"]:
            trunk = model.get_submodule("backbone.body")
            load_trunk(trunk, Path(self.spec.data_dir) / self.sizes["backbone_weights"])

    def synthetic_batch(self, num_samples: int) -> Batch:
        """Random pixels with one object in each image, in the layout of `DetectionSamples`."""
        height, width = self.synthetic_size
        box = np.array([[width / 4, height / 4, width / 2, height / 2]], dtype=np.float32)
        mask = np.zeros((1 if self._with_masks else 0, height, width), dtype=np.uint8)
        mask[:, height // 4 : height // 2, width // 4 : width // 2] = 1
        pixels = torch.randint(256, (num_samples, height, width, 3), dtype=torch.uint8).numpy()
        samples = [Sample(image=image, boxes=box, labels=np.ones(1, dtype=np.int64), masks=mask) for image in pixels]
        return collated(samples, rows=range(num_samples), with_masks=self._with_masks)

    @property
    @abstractmethod
    def synthetic_size(self) -> tuple[int, int]:
        """Height and width of a usual image as the loader brings it."""

    @abstractmethod
    def change(self, split: str) -> Change | None:
        """What is done to each image of a split before the model sees it."""

    def samples(self, split: str) -> DetectionSamples:
        """Images of COCO.

        Raises:
            ValueError: where the data have another number of categories than the model.
        """
        folder, name = Path(self.spec.data_dir), SPLITS[split]
        samples = DetectionSamples(
            folder, split=name, seed=self.spec.seed, change=self.change(split), with_masks=self._with_masks
        )
        num_classes = len(samples.index.categories) + 1
        if num_classes != self.sizes["num_classes"]:
            raise ValueError(
                f"{folder}: split {name!r} has {num_classes} classes with the background, "
                f"the run's model.num_classes is {self.sizes['num_classes']}"
            )
        return samples

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sum of the model's losses."""
        parts = DetectionBatch(*batch)
        losses: Mapping[str, Tensor] = model(parts.inputs(), parts.targets())
        return torch.stack(list(losses.values())).sum()

    def evaluate(self, model: nn.Module, batches: Iterable[Batch], *, device: torch.device) -> Evaluation:
        """COCO's AP of all ranks' images, each evaluated once."""
        found: dict[int, Detections] = {}
        for batch in batches:
            parts = DetectionBatch(*batch)
            inputs = parts.inputs()
            outputs = model(inputs)
            for row, image, output in zip(parts.rows(), inputs, outputs, strict=True):
                found[row] = self._detections(output, scale=self._val.sizes[row] / image.shape[1:])
        values = {name: average_precision(self._val, found, kind=kind) for name, kind in self.metrics.items()}
        (num_samples,) = sum_over_ranks([len(found)], device=device)
        return Evaluation(quality=values.get("", values), num_samples=round(num_samples))

    def _detections(self, output: Mapping[str, Tensor], *, scale: np.ndarray) -> Detections:
        boxes = output["boxes"].double().cpu().numpy() * np.tile(scale[::-1], 2)
        return Detections(
            boxes=boxes,
            scores=output["scores"].double().cpu().numpy(),
            labels=output["labels"].cpu().numpy(),
            masks=encoded(output["masks"]) if self._with_masks else (),
        )

    @functools.cached_property
    def _val(self) -> Index:
        return Index.load(Path(self.spec.data_dir), split=SPLITS["eval"])


def encoded(masks: Tensor) -> list[dict[str, object]]:
    """Run lengths of masks, probabilities of (objects, 1, height, width): what is likelier than not."""
    from pycocotools import mask

    if not len(masks):
        return []
    pixels = (masks[:, 0] > 0.5).to(torch.uint8).cpu().numpy()
    runs: list[dict[str, object]] = mask.encode(np.asfortranarray(pixels.transpose(1, 2, 0)))
    return runs
