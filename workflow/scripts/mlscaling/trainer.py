"""The timed training loop of every workload, its MLLOG events and where it stops.

Events and their order follow the round's rules (mlperf_logging, `compliance_checker/training_*/common.yaml`). Data is
touched only between `run_start` and `run_stop`; the model is built before.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlscaling import acceleration, distributed
from mlscaling.acceleration import Precision
from mlscaling.distributed import Ranks
from mlscaling.loaders import EvalRequests, TrainRequests, loader, on_device
from mlscaling.mlperf.log import RunLog
from mlscaling.process_settings import configure
from mlscaling.run_events import progress, settings, submission
from mlscaling.spec import RunSpec
from mlscaling.stopping import Plan, plan, reached
from mlscaling.workloads import workload_by_name
from mlscaling.workloads.base import Batch, Evaluation, Samples, Workload

Status = Literal["success", "aborted"]

FIRST_BUCKET_MIB = 1.0
"""DDP's first bucket; a compiled model may have no smaller ones."""
WARM_UP_STEPS = 3
"""A compiler may specialise at the second pass, and records CUDA graphs at the third."""


class Training:
    """A model in training: built before the run starts, stepped inside it."""

    def __init__(self, spec: RunSpec, *, workload: Workload, place: Ranks, device: torch.device) -> None:
        acceleration.check_options(spec, static_shapes=workload.static_shapes)
        self.spec = spec
        self.workload = workload
        self.device = device
        self.precision = Precision(spec.options, device=device)
        self.skipped_steps = 0
        torch.manual_seed(spec.seed)  # the same weights on all ranks, whatever their number
        self.model = workload.model().to(device)
        workload.load_initial_weights(self.model)
        optimizer = workload.optimizer(self.model)
        self.optimizer = acceleration.fused(optimizer) if device.type == "cuda" else optimizer
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, workload.schedule())
        self.stepped = self._wrapped()
        torch.manual_seed((spec.seed + 1_000_003 * (place.rank + 1)) % 2**63)  # dropout differs between ranks

    def _wrapped(self) -> nn.Module:
        compiles = bool(self.spec.options.get("compile"))
        if self.spec.options.get("cuda_graphs") and not compiles:
            self._capture_graphs()
        wrapped: nn.Module = self.model
        if not distributed.is_alone():
            # Buffers are averaged before each evaluation instead of broadcast in each forward pass.
            wrapped = DistributedDataParallel(
                wrapped,
                forward_sync_buffers=False,
                gradient_as_bucket_view=True,
                batched_grad_copy=True,
                bucket_cap_mb=max(bucket_mib(wrapped), FIRST_BUCKET_MIB if compiles else 0.0),
            )
        return acceleration.compiled(wrapped, self.spec.options) if compiles else wrapped

    def _capture_graphs(self) -> None:
        batch = self._synthetic_batch()
        if batch is None:
            raise ValueError(
                f"mlscaling config error: cuda_graphs needs workload {self.spec.workload} to make a synthetic batch"
            )
        self.model.train()
        with acceleration.unchanged(self.model, device=self.device):
            with acceleration.inputs_of(self.model) as seen, self.precision.autocast():
                self.workload.loss(self.model, batch)
            acceleration.capture_graphs(self.model, seen[0], precision=self.precision)

    def _synthetic_batch(self) -> Batch | None:
        with torch.random.fork_rng(devices=[]):
            batch = self.workload.synthetic_batch(self.spec.local_batch_size)
        return None if batch is None else on_device(batch, self.device)

    def warm_up(self) -> bool:
        """Compile, and choose algorithms, on a synthetic batch before the run starts; whether there was one.

        Touching the data is forbidden there, knowing its shapes is not (mlcommons/training_policies #399, round 1.1).
        Weights, statistics and random numbers are as if nothing had happened. Where a workload makes no such batch,
        all of it happens in the timed run.
        """
        batch = self._synthetic_batch()
        if batch is None:
            return False
        self.stepped.train()
        with acceleration.unchanged(self.model, device=self.device):
            for _ in range(WARM_UP_STEPS):
                self._passes(itertools.repeat(batch))
        return True

    def train(self, batches: Iterator[Batch], *, num_steps: int) -> None:
        """Take optimiser steps; the schedule follows those that are taken (see `Precision.step`)."""
        self.stepped.train()
        for _ in range(num_steps):
            self._passes(batches)
            if self.precision.step(self.optimizer):
                self.schedule.step()
            else:
                self.skipped_steps += 1
            self.optimizer.zero_grad(set_to_none=True)

    def _passes(self, batches: Iterator[Batch]) -> None:
        """Forward and backward passes of a step; gradients meet other ranks' only in the last one."""
        num_passes = self.spec.gradient_accumulation_steps
        for number in range(num_passes):
            is_last = number == num_passes - 1
            with contextlib.nullcontext() if is_last else self._unsynchronized():
                self._backward(next(batches), num_passes=num_passes)

    def _backward(self, batch: Batch, *, num_passes: int) -> None:
        with self.precision.autocast():
            loss = self.workload.loss(self.stepped, on_device(batch, self.device))
        self.precision.backward(loss if num_passes == 1 else loss / num_passes)

    def _unsynchronized(self) -> AbstractContextManager[Any]:
        if distributed.is_alone():
            return contextlib.nullcontext()
        return self.stepped.no_sync()  # type: ignore[operator, no-any-return]

    @torch.no_grad()
    def evaluate(self, batches: Iterator[Batch]) -> Evaluation:
        """Exact quality over all ranks.

        Raises:
            ValueError: if the evaluated samples are not exactly `eval_samples`.
        """
        distributed.average_buffers(self.model)
        self.model.eval()
        with self.precision.autocast():
            shares = (on_device(batch, self.device) for batch in batches)
            found = self.workload.evaluate(self.model, shares, device=self.device)
        if found.num_samples != self.spec.eval_samples:
            raise ValueError(
                f"evaluated {found.num_samples} samples, the run has eval_samples {self.spec.eval_samples}"
            )
        return found


def bucket_mib(model: nn.Module) -> float:
    """Size of gradient buckets: PyTorch's 25 MiB, less where a model would not fill four of them.

    With one bucket nothing is sent before the whole backward pass has ended.
    """
    size: int = sum(value.numel() * value.element_size() for value in model.parameters())
    return min(25.0, size / 4 / 2**20)


def train(spec: RunSpec, *, log_file: Path, cache_cleared: bool = False) -> Status:
    """Train until the target or the horizon; rank 0 writes the log.

    Args:
        cache_cleared: whether the page cache of every node was dropped before.
    Returns:
        `success` at the target, `aborted` at the horizon: both are valid data.
    Raises:
        ValueError: for a spec that cannot be trained as it is, before the run starts.
    """
    place = distributed.ranks(world_size=spec.world_size)
    steps = plan(spec)
    workload = workload_by_name(spec.workload, spec)
    log = RunLog(log_file if place.is_first else None)
    log.events(submission(spec))
    log.event("cache_clear", cache_cleared)
    log.start("init_start")
    device = distributed.device_of(spec.device, local_rank=place.local_rank)
    configure(spec, device=device, static_shapes=workload.static_shapes)
    distributed.join(place, device=device)
    training = Training(spec, workload=workload, place=place, device=device)
    if device.type == "cuda" or spec.options.get("compile"):
        training.warm_up()
    log.events(settings(spec) | dict(workload.log_values()))
    for name in workload.tensor_names(training.model):
        log.event("weights_initialization", None, tensor=name)
    log.stop("init_stop")
    distributed.wait_for_all(device)
    log.start("run_start")
    status = run_blocks(training, steps, place=place, log=log)
    log.stop("run_stop", None, status=status)
    log.close()
    return status


def run_blocks(training: Training, steps: Plan, *, place: Ranks, log: RunLog) -> Status:
    """Train and evaluate, block after block; the first touch of data."""
    spec = training.spec
    batches, shares = loaders(training, place=place, num_steps=steps.num_steps)
    for block in range(steps.num_blocks):
        throughput = train_block(training, batches, steps, block=block, log=log)
        trained = steps.trained_units(block)
        log.start("eval_start", None, epoch_num=trained)
        found = training.evaluate(iter(shares))
        log.event("eval_accuracy", found.quality, epoch_num=trained, samples_count=steps.trained_samples(block))
        log.stop("eval_stop", None, epoch_num=trained)
        log.event("tracked_stats", tracked(training, throughput=throughput), step=trained)
        if place.is_first:
            print(progress(spec, trained=trained, quality=found.quality, throughput=throughput), flush=True)
        if reached(spec, found.quality):
            return "success"
    return "aborted"


def tracked(training: Training, *, throughput: float) -> dict[str, float]:
    """Statistics of a block: its throughput and, where the loss is scaled, the steps skipped so far."""
    found = {"throughput": throughput}
    return found if not training.precision.scales_loss else found | {"skipped_steps": training.skipped_steps}


def train_block(training: Training, batches: Iterator[Batch], steps: Plan, *, block: int, log: RunLog) -> float:
    """Train until the next evaluation; training samples per second over all ranks."""
    epoch_nums = steps.epoch_nums(block)
    log.start(
        "block_start", None, first_epoch_num=epoch_nums[0], epoch_count=steps.epochs_per_block * steps.units_per_epoch
    )
    begin = time.perf_counter()
    for epoch_num in epoch_nums:
        log.start("epoch_start", None, epoch_num=epoch_num)
        training.train(batches, num_steps=steps.steps_per_epoch)
        log.stop("epoch_stop", None, epoch_num=epoch_num)
    if training.device.type == "cuda":
        torch.cuda.synchronize(training.device)
    seconds = time.perf_counter() - begin
    log.stop("block_stop", None, first_epoch_num=epoch_nums[0])
    return len(epoch_nums) * steps.steps_per_epoch * training.spec.global_batch_size / seconds


def loaders(training: Training, *, place: Ranks, num_steps: int) -> tuple[Iterator[Batch], Iterable[Batch]]:
    """All training batches of this rank in order, and its share of an evaluation."""
    spec, device = training.spec, training.device
    num_workers = int(spec.options.get("num_workers", 0 if spec.device == "cpu" else spec.cpus_per_accelerator))
    requests = TrainRequests(spec, place=place, num_steps=num_steps)
    shares = EvalRequests(num_samples=spec.eval_samples, batch_size=training.workload.eval_batch_size, place=place)
    return (
        iter(loader(opened(training.workload, "train"), requests, num_workers=num_workers, device=device)),
        loader(opened(training.workload, "eval"), shares, num_workers=num_workers, device=device),
    )


def opened(workload: Workload, split: str) -> Samples:
    """Open a split.

    Raises:
        ValueError: if it holds other samples than the run's spec counts. Where the benchmark counts samples, there may
            be more to train on than a nominal epoch.
    """
    spec = workload.spec
    samples = workload.samples(split)
    expected = spec.train_samples if split == "train" else spec.eval_samples
    may_be_more = split == "train" and spec.convergence_unit == "samples"
    if len(samples) < expected or (len(samples) > expected and not may_be_more):
        raise ValueError(
            f"{spec.data_dir}: split {split!r} holds {len(samples)} samples, the run has {split}_samples {expected}"
        )
    return samples


def main_rank(spec: RunSpec, log_file: Path, *, cache_cleared: bool = False) -> NoReturn:
    """One rank, from its entry point; ends the process, with 0 for a run that is valid data, whatever it reached."""
    train(spec, log_file=log_file, cache_cleared=cache_cleared)
    distributed.leave()
    distributed.exit_process(0)
