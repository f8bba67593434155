"""How this process computes, whatever it trains: threads, deterministic algorithms, and its memory."""

from __future__ import annotations

import ctypes

import torch

from mlscaling.spec import RunSpec

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h; 32 MiB is the last one's maximum


def configure(spec: RunSpec, *, device: torch.device, static_shapes: bool = False) -> None:
    """Threads, and on the CPU deterministic algorithms: equal specs then give equal evaluations.

    cuDNN tries all its algorithms on the first batch only where later batches have the same shapes; else each new
    shape would be tried anew.
    """
    torch.set_num_threads(spec.cpus_per_accelerator)
    if device.type == "cpu":
        keep_freed_memory()
    if spec.options.get("deterministic", device.type == "cpu"):
        torch.use_deterministic_algorithms(True, warn_only=True)
        # A debugging aid that costs a write of all memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
    else:
        torch.backends.cudnn.benchmark = static_shapes
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def keep_freed_memory() -> None:
    """Ask glibc not to give the memory of each step's tensors back to the system, only to fault it in again.

    Without it a step of the tiny ResNet has a thousand page faults, a tenth of its time, more or less by chance of the
    heap's layout. Other C libraries have no `mallopt`, and PyTorch's CPU allocator no setting of its own.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 1 << 30), (M_TOP_PAD, 64 << 20)):
            mallopt(parameter, value)
