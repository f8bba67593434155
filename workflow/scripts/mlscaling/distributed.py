"""Ranks and collectives: the only module that reads RANK, MASTER_ADDR or SLURM_*.

A rank finds its place from torchrun's variables, else from those of a Slurm step, else it is alone. The group is always
made by `env://`, so that one code path serves 1 … N nodes and every launcher.
"""

from __future__ import annotations

import datetime
import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """This process among all processes of a run."""

    rank: int
    """Global rank, 0 … world_size−1."""
    local_rank: int
    """Rank among those of the same node; selects the accelerator."""
    world_size: int
    """Number of ranks of the run."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes the log."""
        return self.rank == 0


SOURCES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)
"""Variables of rank, local rank and world size; the first row whose rank is set wins."""


def ranks(*, world_size: int, environment: Mapping[str, str] | None = None) -> Ranks:
    """Place of this process in a run of `world_size` ranks.

    A Slurm batch script sets SLURM_PROCID too, with the allocation's task count, although it is no rank of a step:
    SLURM_STEP_ID tells a step apart.

    Raises:
        ValueError: if the environment names another number of ranks than the run has.
    """
    variables = os.environ if environment is None else environment
    for names in SOURCES:
        if names[0] not in variables or (names[0] == "SLURM_PROCID" and "SLURM_STEP_ID" not in variables):
            continue
        missing = [name for name in names if name not in variables]
        if missing:
            raise ValueError(f"{names[0]} is set, so {', '.join(missing)} must be set too")
        rank, local_rank, found = (int(variables[name]) for name in names)
        if found != world_size:
            raise ValueError(f"{names[2]}={found}, but the run has {world_size} ranks (nodes × accelerators_per_node)")
        return Ranks(rank=rank, local_rank=local_rank, world_size=found)
    if world_size != 1:
        raise ValueError(f"the run has {world_size} ranks, but neither RANK nor SLURM_PROCID of a step is set")
    return Ranks(rank=0, local_rank=0, world_size=1)


def device_of(kind: str, *, local_rank: int) -> torch.device:
    """Device of a rank: by *local* rank, never by global rank.

    Where the launcher shows each rank only its own GPU (`--gpus-per-task`), that GPU is number 0.
    """
    if kind == "cpu":
        return torch.device("cpu")
    if kind != "cuda":
        raise ValueError(f"device {kind!r} is unknown; legal: cpu, cuda")
    visible = torch.cuda.device_count()
    if visible == 0:
        raise ValueError("device is cuda, but this rank sees no GPU")
    if visible > 1 and local_rank >= visible:
        raise ValueError(f"local rank {local_rank} has no GPU of its own: {visible} visible")
    device = torch.device("cuda", local_rank if visible > 1 else 0)
    torch.cuda.set_device(device)
    return device


def join(
    place: Ranks, *, device: torch.device, timeout_min: float = 10, store: Store | None = None
) -> None:  # fmt: skip
    """Join the process group: NCCL between GPUs, gloo between CPUs; nothing where the rank is alone.

    Args:
        place: this process among all.
        device: its device.
        timeout_min: longest time that a collective may take.
        store: where the ranks have met already; else they meet by `env://`.
    """
    if place.world_size == 1:
        return
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=None if store else "env://",
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=datetime.timedelta(minutes=timeout_min),
        device_id=device if device.type == "cuda" else None,
    )


def meeting_place(place: Ranks, *, limit_s: float) -> Store:
    """A store that all ranks can reach, before there is a process group; rank 0 serves it and waits for nobody.

    torchrun's agent serves one at the same address already.

    Raises:
        torch.distributed.DistNetworkError: this rank does not reach rank 0 in time.
    """
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=place.is_first and not served,
        timeout=datetime.timedelta(seconds=limit_s),
        wait_for_workers=False,
    )
    return dist.PrefixStore("preflight", store)  # type: ignore[attr-defined]


def call_roll(store: Store, place: Ranks, *, says: str, limit_s: float) -> list[str | None]:
    """What every rank says, on rank 0 in the order of ranks, None for those that are silent at the time limit.

    The others return at once, with an empty list.
    """
    store.set(f"rank {place.rank}", says)
    if not place.is_first:
        return []
    deadline = time.monotonic() + limit_s
    waiting = set(range(place.world_size))
    while waiting and time.monotonic() < deadline:
        waiting -= {rank for rank in waiting if store.check([f"rank {rank}"])}
        time.sleep(0.05 if waiting else 0)
    return [None if rank in waiting else store.get(f"rank {rank}").decode() for rank in range(place.world_size)]


def told_by_first(store: Store, place: Ranks, *, says: str, limit_s: float) -> str:
    """What rank 0 says, on every rank."""
    if place.is_first:
        store.set("first says", says)
    else:
        store.wait(["first says"], datetime.timedelta(seconds=limit_s))
    return str(store.get("first says").decode())


def is_alone() -> bool:
    """Whether no process group exists."""
    return not dist.is_initialized()


def sum_over_ranks(values: Sequence[float], *, device: torch.device) -> list[float]:
    """Element-wise sums over all ranks in float64: exact for counts below 2⁵³."""
    if is_alone():
        return list(values)
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return [float(value) for value in total.tolist()]


def largest_over_ranks(value: float, *, device: torch.device) -> float:
    """The largest of the ranks' values, on every rank."""
    if is_alone():
        return value
    largest = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return float(largest.item())


def gather_over_ranks(value: Any) -> list[Any]:
    """A picklable value of every rank, in order of ranks, on every rank: for metrics that are no sums."""
    if is_alone():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def average_buffers(module: torch.nn.Module) -> None:
    """Replace floating-point buffers (batch-norm statistics) by their mean over ranks, by one collective.

    Each rank sees its own samples, so the running statistics differ; an evaluation must use the same ones everywhere.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    if is_alone() or not buffers:
        return
    flat = torch.cat([buffer.flatten().double() for buffer in buffers])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for buffer, mean in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(mean.view_as(buffer))


def wait_for_all(device: torch.device) -> None:
    """Return when every rank has come here and its device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if not is_alone():
        dist.barrier(device_ids=[device.index] if device.type == "cuda" else None)


def leave() -> None:
    """Leave the process group.

    The caller has dropped its DDP model: with gloo, about one of four runs that still held it ended in SIGABRT at
    interpreter exit (torch 2.14), none that collected it, met at a barrier and left in this order.
    """
    gc.collect()
    if not is_alone():
        dist.barrier()
        dist.destroy_process_group()


def exit_process(code: int, *, exit_now: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """End without interpreter teardown; files are flushed.

    gloo's threads may still abort a finished run there, and one rank alone spends a second on freeing what it imported.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    exit_now(code)
