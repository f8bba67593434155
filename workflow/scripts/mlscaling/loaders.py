"""Which samples a rank trains on and evaluates, and the loaders that bring them.

Training: each epoch is one permutation of the samples, drawn from the run's seed and equal on all ranks; step k takes
its next `global_batch_size` samples, of which every rank takes its own part. Every sample is used once in an epoch;
where the batch does not divide the epoch, the last step is filled from the start of the same permutation.
Evaluation: rank r takes samples r, r + world_size, …: every sample exactly once, none padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from mlscaling.distributed import Ranks
from mlscaling.spec import RunSpec
from mlscaling.workloads.base import Batch, Request, Samples


class TrainRequests(Sampler[Request]):
    """This rank's batches, one for each forward pass, from the first step to the last."""

    def __init__(self, spec: RunSpec, *, place: Ranks, num_steps: int) -> None:
        self._spec = spec
        self._place = place
        self._num_steps = num_steps

    def __iter__(self) -> Iterator[Request]:
        steps_per_epoch = -(-self._spec.train_samples // self._spec.global_batch_size)
        for step in range(self._num_steps):
            epoch, position = divmod(step, steps_per_epoch)
            if position == 0:
                order = epoch_order(self._spec, epoch=epoch)
            for part in self._parts(order[position * self._spec.global_batch_size :][: self._spec.global_batch_size]):
                yield Request(epoch, part)

    def _parts(self, samples: np.ndarray) -> np.ndarray:
        shape = (self._spec.gradient_accumulation_steps, self._place.world_size, self._spec.local_batch_size)
        parts: np.ndarray = samples.reshape(shape)[:, self._place.rank]
        return parts


def epoch_order(spec: RunSpec, *, epoch: int) -> np.ndarray:
    """Permutation of an epoch's samples, continued from its own start to whole global batches."""
    order = np.random.default_rng([spec.seed, epoch]).permutation(spec.train_samples)
    num_samples = -(-spec.train_samples // spec.global_batch_size) * spec.global_batch_size
    return np.resize(order, num_samples)


class EvalRequests(Sampler[Request]):
    """This rank's share of the evaluation samples, in batches."""

    def __init__(self, *, num_samples: int, batch_size: int, place: Ranks) -> None:
        self._num_samples = num_samples
        self._batch_size = batch_size
        self._place = place

    def __iter__(self) -> Iterator[Request]:
        mine = np.arange(self._place.rank, self._num_samples, self._place.world_size)
        for start in range(0, len(mine), self._batch_size):
            yield Request(0, mine[start : start + self._batch_size])


def loader(samples: Samples, requests: Sampler[Request], *, num_workers: int, device: torch.device) -> Iterable[Batch]:
    """Loader of whole batches: in this process on small CPU runs, else by prefetching workers into pinned memory."""
    workers: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if num_workers else {}
    batches: DataLoader[Any] = DataLoader(
        samples,  # type: ignore[arg-type]  # a request, not a number, is its index
        sampler=requests,
        batch_size=None,
        collate_fn=_unchanged,
        num_workers=num_workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),
        **workers,
    )
    return batches


def _unchanged(batch: Any) -> Any:
    return batch


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on the rank's device; copies from pinned memory overlap with the device's work."""
    if device.type == "cpu":
        return batch
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
