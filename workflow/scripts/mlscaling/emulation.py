"""Several nodes on one host: one process per rank, each pinned to its own cores.

The one-host counterpart of `srun`: same environment contract (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR …), output
lines labelled with the rank, and one failing rank ends them all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

GRACE_S = 5.0
"""Seconds between asking the remaining ranks to end and killing them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """Where one rank runs."""

    rank: int
    """Global rank."""
    node: int
    """Emulated node."""
    local_rank: int
    """Rank within its node."""
    cores: tuple[int, ...]
    """Cores that it is pinned to; empty where the platform cannot pin."""


def available_cores() -> tuple[int, ...]:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def rank_places(*, nodes: int, ranks_per_node: int, cpus_per_rank: int, cores: Sequence[int]) -> list[RankPlace]:
    """Cores of each rank, in order; ranks share cores when there are not enough."""
    places = []
    for rank in range(nodes * ranks_per_node):
        mine = {cores[(rank * cpus_per_rank + offset) % len(cores)] for offset in range(cpus_per_rank)}
        node, local_rank = divmod(rank, ranks_per_node)
        places.append(RankPlace(rank=rank, node=node, local_rank=local_rank, cores=tuple(sorted(mine))))
    return places


def rank_environment(place: RankPlace, *, world_size: int, ranks_per_node: int, port: int) -> dict[str, str]:
    """Variables by which a rank finds the others, as torchrun names them."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(ranks_per_node),
        "GROUP_RANK": str(place.node),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def emulate(command: Sequence[str], *, nodes: int, ranks_per_node: int, cpus_per_rank: int) -> int:
    """Start the command once per rank and wait; returns 0, or the status of the first rank that failed.

    A rank that ends by a signal counts as status 128 + signal, as in a shell.
    """
    cores = available_cores()
    places = rank_places(nodes=nodes, ranks_per_node=ranks_per_node, cpus_per_rank=cpus_per_rank, cores=cores)
    if len(places) * cpus_per_rank > len(cores):
        needed = len(places) * cpus_per_rank
        print(f"emulate: {needed} cores are asked for, {len(cores)} are there: ranks share cores", flush=True)
    port = _free_port()
    ranks: list[subprocess.Popen[bytes]] = []
    previous = {number: signal.signal(number, _raise_exit) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for place in places:
            variables = rank_environment(place, world_size=len(places), ranks_per_node=ranks_per_node, port=port)
            ranks.append(_start_rank(command, place=place, variables=variables))
        labels = [_label_output(rank, number=number) for number, rank in enumerate(ranks)]
        status = _wait(ranks)
        _end(ranks)
        for label in labels:
            label.join(timeout=GRACE_S)
        return status
    finally:
        _end(ranks)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _raise_exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_rank(
    command: Sequence[str], *, place: RankPlace, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:  # fmt: skip
    def prepare() -> None:
        die_with_parent()
        if place.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, place.cores)

    return subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=prepare,
    )


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent ends, however it ends (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, number)


def _label_output(rank: subprocess.Popen[bytes], *, number: int) -> threading.Thread:
    def copy(stream: IO[bytes]) -> None:
        for line in stream:
            sys.stdout.buffer.write(b"%d: %s" % (number, line if line.endswith(b"\n") else line + b"\n"))
            sys.stdout.buffer.flush()

    assert rank.stdout is not None
    thread = threading.Thread(target=copy, args=(rank.stdout,), daemon=True)
    thread.start()
    return thread


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    running = dict(enumerate(ranks))
    while running:
        for number, rank in list(running.items()):
            status = rank.poll()
            if status is None:
                continue
            del running[number]
            if status:
                what = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
                print(f"emulate: rank {number} ended {what}; ending the others", flush=True)
                return 128 - status if status < 0 else status
        time.sleep(0.05)
    return 0


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    running = [rank for rank in ranks if rank.poll() is None]
    for rank in running:
        rank.terminate()
    deadline = time.monotonic() + GRACE_S
    for rank in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.wait(timeout=max(0.0, deadline - time.monotonic()))
    for rank in running:
        if rank.poll() is None:
            rank.kill()
            rank.wait()
