"""The contract of a workload: what the trainer needs to know of an MLPerf benchmark, and nothing of how it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mlscaling.distributed import sum_over_ranks
from mlscaling.spec import RunSpec, Value

Batch = tuple[Tensor, ...]
"""Tensors of one forward pass; the first dimension is the sample, or its parts where another tensor counts those."""


class Request(NamedTuple):
    """Samples that make up one batch; what is random in them follows from the run's seed, the epoch and the sample."""

    epoch: int
    """Zero-based epoch."""
    indices: np.ndarray
    """Numbers of the samples in their split, int64 of shape (samples,)."""


class Samples(Protocol):
    """Prepared samples of one split; opened inside the timed run."""

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def __getitem__(self, request: Request) -> Batch:
        """One batch, on the CPU."""
        ...


class Evaluation(NamedTuple):
    """Result of one evaluation, the same on every rank."""

    quality: float | Mapping[str, float]
    """In the benchmark's metric, or metric → quality where it has several; logged as it is."""
    num_samples: int
    """Samples evaluated over all ranks."""


class Workload(ABC):
    """One benchmark, set up for one run."""

    full_scale: ClassVar[Mapping[str, Value]]
    """Sizes of MLPerf's model; a run spec's `model` overrides them."""
    num_counters: ClassVar[int] = 2
    """Length of `counts`."""
    eval_batch_size: ClassVar[int] = 128
    """Samples that a rank evaluates in one forward pass."""
    static_shapes: ClassVar[bool] = False
    """Whether all training batches have the same shapes; CUDA graphs need it, and cuDNN's search for algorithms."""

    def __init__(self, spec: RunSpec) -> None:
        unknown = sorted(spec.model.keys() - self.full_scale.keys())
        if unknown:
            known = ", ".join(sorted(self.full_scale))
            raise ValueError(f"workload {spec.workload}: model has unknown keys {', '.join(unknown)}; known: {known}")
        self.spec = spec
        self.sizes: dict[str, Any] = {**self.full_scale, **spec.model}

    def hyperparameter(self, name: str, default: Any = None) -> Any:
        """A hyper-parameter by its MLLOG name.

        Raises:
            ValueError: if it is missing and has no default.
        """
        value = self.spec.hyperparameters.get(name, default)
        if value is None:
            raise ValueError(
                f"workload {self.spec.workload}, scale {self.spec.scale}: hyper-parameter {name!r} is missing for "
                f"global_batch_size {self.spec.global_batch_size}"
            )
        return value

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in one epoch."""
        return -(-self.spec.train_samples // self.spec.global_batch_size)

    @abstractmethod
    def model(self) -> nn.Module:
        """A newly initialised model; the caller has seeded PyTorch's generator."""

    def load_initial_weights(self, model: nn.Module) -> None:  # noqa: B027
        """Load the weights that the benchmark starts from; nothing where it starts from new ones.

        They are part of the model, not of the data, and are read before the run starts.
        """

    def synthetic_batch(self, num_samples: int) -> Batch | None:  # noqa: ARG002
        """A training batch of the right shapes that holds no data, on the CPU; None where none is made.

        It compiles the model, lets libraries choose algorithms and captures CUDA graphs before the run starts.
        """
        return None

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """MLPerf's optimiser for the model."""

    @abstractmethod
    def schedule(self) -> Callable[[int], float]:
        """Zero-based optimiser step → factor on the base learning rate."""

    @abstractmethod
    def log_values(self) -> Mapping[str, Value]:
        """MLLOG key → value of the hyper-parameters that the round's rules ask for."""

    @abstractmethod
    def tensor_names(self, model: nn.Module) -> list[str]:
        """Names of the initialised tensors as the round's rules spell them."""

    @abstractmethod
    def samples(self, split: str) -> Samples:
        """Open the prepared samples of `train` or `eval`; the first touch of data."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean training loss of a batch."""

    def counts(self, model: nn.Module, batch: Batch) -> Tensor:
        """Counters of an evaluation batch, float64; the first counts the samples."""
        raise NotImplementedError(f"workload {self.spec.workload} has neither counts nor an evaluate of its own")

    def quality(self, totals: list[float]) -> float:
        """Quality from the counters' sums over all batches and ranks."""
        raise NotImplementedError(f"workload {self.spec.workload} has neither quality nor an evaluate of its own")

    def evaluate(self, model: nn.Module, batches: Iterable[Batch], *, device: torch.device) -> Evaluation:
        """Evaluate this rank's share and combine over ranks; a metric that is no ratio of counts overrides this."""
        total: Tensor | None = None
        for batch in batches:
            counts = self.counts(model, batch)
            total = counts if total is None else total + counts
        # A rank may have no share of a small evaluation set; it must take part in the sum all the same.
        totals = sum_over_ranks([0.0] * self.num_counters if total is None else total.tolist(), device=device)
        return Evaluation(quality=self.quality(totals), num_samples=round(totals[0]))
