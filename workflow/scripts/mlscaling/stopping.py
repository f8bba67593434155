"""Where a run evaluates and where it stops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlscaling.mlperf.rounds import Target
from mlscaling.spec import RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Blocks of training between evaluations."""

    steps_per_epoch: int
    """Optimiser steps of one `epoch_start` … `epoch_stop`: an epoch, or a whole block where samples count."""
    epochs_per_block: int
    """Such spans between two evaluations."""
    num_blocks: int
    """Evaluations before the run gives up."""
    units_per_epoch: int
    """What one span adds to `epoch_num`: 1, or its samples where the benchmark counts samples."""
    samples_per_epoch: int
    """Samples that one span trains."""

    @property
    def num_steps(self) -> int:
        """Steps until the run gives up."""
        return self.steps_per_epoch * self.epochs_per_block * self.num_blocks

    def epoch_nums(self, block: int) -> list[int]:
        """`epoch_num` of the spans of a zero-based block: epochs from one, samples by what was trained at its start."""
        first = block * self.epochs_per_block
        offset = 1 if self.units_per_epoch == 1 else 0
        return [(first + number) * self.units_per_epoch + offset for number in range(self.epochs_per_block)]

    def trained_units(self, block: int) -> int:
        """Epochs or samples trained at the end of a block: `epoch_num` of its evaluation."""
        return (block + 1) * self.epochs_per_block * self.units_per_epoch

    def trained_samples(self, block: int) -> int:
        """Samples trained at the end of a block."""
        return (block + 1) * self.epochs_per_block * self.samples_per_epoch


def plan(spec: RunSpec) -> Plan:
    """Steps of a run.

    Raises:
        ValueError: where batch sizes contradict each other, the horizon is missing, or a benchmark that counts epochs
            is to be evaluated within one.
    """
    parts = spec.local_batch_size * spec.world_size * spec.gradient_accumulation_steps
    if parts != spec.global_batch_size:
        raise ValueError(
            f"global_batch_size {spec.global_batch_size} is not local_batch_size {spec.local_batch_size} × "
            f"{spec.world_size} ranks × gradient_accumulation_steps {spec.gradient_accumulation_steps}"
        )
    horizon = _horizon(spec)
    if spec.convergence_unit == "samples":
        steps = max(1, math.ceil(spec.evaluate_every_samples / spec.global_batch_size))
        samples = steps * spec.global_batch_size
        return Plan(
            steps_per_epoch=steps,
            epochs_per_block=1,
            num_blocks=max(1, horizon // samples),
            units_per_epoch=samples,
            samples_per_epoch=samples,
        )
    epochs, rest = divmod(spec.evaluate_every_samples, spec.train_samples)
    if rest or not epochs:
        raise ValueError(
            f"evaluate_every_samples {spec.evaluate_every_samples} is no multiple of train_samples "
            f"{spec.train_samples}, although {spec.mlperf_benchmark} counts epochs"
        )
    return Plan(
        steps_per_epoch=math.ceil(spec.train_samples / spec.global_batch_size),
        epochs_per_block=epochs,
        num_blocks=max(1, horizon // epochs),
        units_per_epoch=1,
        samples_per_epoch=spec.train_samples,
    )


def _horizon(spec: RunSpec) -> int:
    name = f"max_{spec.convergence_unit}"
    if name not in spec.hyperparameters:
        raise ValueError(
            f"workload {spec.workload}, global_batch_size {spec.global_batch_size}: "
            f"hyper-parameter {name!r}, where the run gives up, is missing"
        )
    return int(spec.hyperparameters[name])  # type: ignore[arg-type]  # checked with the configuration


def reached(spec: RunSpec, quality: float | Mapping[str, float]) -> bool:
    """Whether a quality meets the target, in every metric where there are several; NaN never does."""
    return Target.of(spec.target, mode=spec.quality_mode).reached(
        quality if isinstance(quality, Mapping) else {"": quality}
    )
