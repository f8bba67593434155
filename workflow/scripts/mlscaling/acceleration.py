"""How a step runs fast on its device: precision, fused optimisers, `torch.compile` and CUDA graphs.

Each is an execution option of the study and changes neither the model nor its samples. Everything here takes the device
it is given, so that a CPU can stand in for a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from mlscaling.execution_options import graph_problem
from mlscaling.spec import RunSpec
from mlscaling.systems import Scalar

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INITIAL_LOSS_SCALE = 2.0**16
"""PyTorch's and NVIDIA's; a power of two, so that scaling is exact."""


class Precision:
    """Autocast of the passes; where gradients would underflow (float16), the loss is scaled and steps may be skipped.

    Gradients are summed over ranks before they are looked at, so an infinity of one rank is seen by all: every rank
    skips the same steps and has the same scale.
    """

    def __init__(self, options: Mapping[str, Scalar], *, device: torch.device) -> None:
        name = str(options.get("precision", "float32"))
        if name not in PRECISIONS:
            raise ValueError(f"option precision {name!r} is unknown; legal: {', '.join(PRECISIONS)}")
        self._dtype = PRECISIONS[name]
        self._device = device
        self._scaler = (
            torch.amp.GradScaler(device.type, init_scale=INITIAL_LOSS_SCALE) if self._dtype is torch.float16 else None
        )

    @property
    def scales_loss(self) -> bool:
        """Whether steps may be skipped."""
        return self._scaler is not None

    @property
    def loss_scale(self) -> float:
        """Factor on the loss; 1 where it is not scaled."""
        return 1.0 if self._scaler is None else float(self._scaler.get_scale())

    def autocast(self, *, cache_enabled: bool = True) -> AbstractContextManager[Any]:
        """Context of every forward pass; a graph holds the casts of weights, so it is captured without their cache."""
        if self._dtype is torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype, cache_enabled=cache_enabled)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a pass's share of the loss."""
        torch.autograd.backward(loss if self._scaler is None else self._scaler.scale(loss))

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take the optimiser's step unless a scaled gradient overflowed; whether it was taken."""
        if self._scaler is None:
            optimizer.step()
            return True
        before = self.loss_scale
        self._scaler.step(optimizer)
        self._scaler.update()
        return self.loss_scale >= before  # it shrinks after a skipped step only


def fused(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The same optimiser with PyTorch's one-kernel step where it has one; others as they are.

    timm's LAMB and LARS have no such kernel; they update many tensors at once by themselves on a GPU.
    """
    if "fused" not in optimizer.defaults:
        return optimizer
    chosen = {"fused": True, "foreach": None}
    groups = [{**group, **chosen} for group in optimizer.param_groups]
    return type(optimizer)(groups, **{**optimizer.defaults, **chosen})


def compiled(model: nn.Module, options: Mapping[str, Scalar]) -> nn.Module:
    """The model as `torch.compile` makes it, with CUDA graphs of its own if both are asked for.

    The caller has wrapped it for DDP already: PyTorch then cuts the graph where a bucket of gradients is full, so that
    it is sent while the rest of the backward pass runs (pytorch.org/docs, notes/ddp).
    """
    mode = "reduce-overhead" if options.get("cuda_graphs") else None
    return torch.compile(model, mode=mode)  # type: ignore[return-value]


def capture_graphs(model: nn.Module, inputs: tuple[Any, ...], *, precision: Precision) -> None:
    """Capture forward and backward passes as CUDA graphs, which training replays; before DDP wraps the model.

    Gradients are summed over ranks and the optimiser steps outside of the graphs, so neither the learning rate nor
    NCCL is frozen in them. Evaluation uses the model's own forward pass.
    """
    with precision.autocast(cache_enabled=False):
        torch.cuda.make_graphed_callables(model, inputs)


@contextlib.contextmanager
def unchanged(model: nn.Module, *, device: torch.device) -> Iterator[None]:
    """Undo what passes do to a model besides gradients: batch-norm statistics and random numbers."""
    before = {name: value.clone() for name, value in model.named_buffers()}
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for name, value in model.named_buffers():
                value.copy_(before[name])
        model.zero_grad(set_to_none=True)


@contextlib.contextmanager
def inputs_of(model: nn.Module) -> Iterator[list[tuple[Any, ...]]]:
    """Collect what a model is called with."""
    seen: list[tuple[Any, ...]] = []
    handle = model.register_forward_pre_hook(lambda _, arguments: seen.append(arguments))
    try:
        yield seen
    finally:
        handle.remove()


def check_options(spec: RunSpec, *, static_shapes: bool) -> None:
    """Refuse options that cannot be kept.

    Raises:
        ValueError: a config error, naming the option and what it needs.
    """
    if problem := graph_problem(
        spec.options,
        device=spec.device,
        gradient_accumulation_steps=spec.gradient_accumulation_steps,
        workload=spec.workload,
        static_shapes=static_shapes,
    ):
        raise ValueError(f"mlscaling config error: {problem}")
