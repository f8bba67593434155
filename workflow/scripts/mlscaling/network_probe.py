"""Measures the network between the ranks of a job: an all-reduce sweep, and each node's link to the next node.

NCCL or gloo, as the training will use. Times are wall-clock times of blocking operations, the median over repetitions,
of the slowest rank. What to measure next is decided from times that all ranks agree on, so that all decide alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from mlscaling import distributed
from mlscaling.distributed import Ranks
from mlscaling.network import GROWTH, SMALLEST_MESSAGE, Row, message_sizes, ring_phases, sweep_row

WARM_UPS, FEWEST, MOST = 2, 3, 20
"""Repetitions of a message that are not counted; fewest and most of those that are."""
LINK_REPETITIONS = 3


def sweep(place: Ranks, *, device: torch.device, largest: int, limit_s: float) -> list[Row]:
    """Times of all-reduces from 4 KiB on, growing by 4, up to `largest` bytes as far as the time allows.

    The first size is always measured. One that would take longer than what is left is not begun.
    """
    sizes = message_sizes(largest)
    begin = time.monotonic()
    rows: list[Row] = []
    for size in sizes:
        buffer = torch.zeros(size // 4, dtype=torch.float32, device=device)
        seconds, repetitions = _repeated(
            lambda buffer=buffer: dist.all_reduce(buffer),  # type: ignore[misc]
            device=device,
            budget_s=limit_s / len(sizes) / 2,
        )
        rows.append(sweep_row(size, seconds=seconds, ranks=place.world_size, repetitions=repetitions))
        spent = distributed.largest_over_ranks(time.monotonic() - begin, device=device)
        if spent + GROWTH * seconds * (WARM_UPS + FEWEST) > limit_s:
            break
    return rows


def ring(
    nodes: Sequence[Sequence[int]], place: Ranks, *, device: torch.device, swept: Sequence[Row], limit_s: float
) -> list[Row]:
    """Latency and bandwidth between each node and the next, from messages that go there and back.

    Every rank of a node has its counterpart on the other, so a link's bandwidth is that of all its ranks together.

    Args:
        nodes: ranks of each node.
        place: this rank.
        device: its device.
        swept: the sweep, which tells how large a message fits into the time.
        limit_s: seconds that all links together may take.

    Returns:
        A record for each link: numbers of its two nodes, `latency_us` of 4 KiB one way, `bandwidth_gb_per_s`, the mean
        of both ways.
    """
    phases = ring_phases(len(nodes))
    trips = 2 * max(1, len(phases)) * (1 + LINK_REPETITIONS)
    fitting = [row["bytes"] for row in swept if row["latency_us"] / 1e6 * trips <= limit_s]
    size = max(fitting, default=SMALLEST_MESSAGE)
    links = []
    for phase in phases:
        for first, second in phase:
            if place.rank in (*nodes[first], *nodes[second]):
                peer, leads = _counterpart(place.rank, nodes[first], nodes[second]), place.rank in nodes[first]
                times = [_one_way(peer, leads, size=number, device=device) for number in (SMALLEST_MESSAGE, size)]
                links.append(((first, second), *times))
        distributed.wait_for_all(device)
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for of_rank in distributed.gather_over_ranks(links):
        for link, small, large in of_rank:
            found.setdefault(link, []).append((small, large))
    return [
        {
            "nodes": list(link),
            "bytes": size,
            "latency_us": 1e6 * max(small for small, _ in times),
            "bandwidth_gb_per_s": size * len(nodes[link[0]]) / max(large for _, large in times) / 1e9,
        }
        for link, times in sorted(found.items())
    ]


def _counterpart(rank: int, one: Sequence[int], other: Sequence[int]) -> int:
    mine, theirs = (one, other) if rank in one else (other, one)
    return theirs[mine.index(rank)]


def _one_way(peer: int, leads: bool, *, size: int, device: torch.device) -> float:
    """Seconds of a message to a rank: half of the way there and back, which one of the two ranks leads."""
    message = torch.zeros(size // 4, dtype=torch.float32, device=device)

    def there_and_back() -> None:
        for operation in (dist.isend, dist.irecv) if leads else (dist.irecv, dist.isend):
            for work in dist.batch_isend_irecv([dist.P2POp(operation, message, peer)]):
                work.wait()

    _timed(there_and_back, device=device)
    return statistics.median(_timed(there_and_back, device=device) for _ in range(LINK_REPETITIONS)) / 2


def _repeated(operation: Callable[[], object], *, device: torch.device, budget_s: float) -> tuple[float, int]:
    """Median time of an operation of all ranks, s, and of how many repetitions: as many as the budget allows."""
    warm = distributed.largest_over_ranks(
        min(_timed(operation, device=device) for _ in range(WARM_UPS)), device=device
    )  # fmt: skip
    repetitions = max(FEWEST, min(MOST, int(budget_s / max(warm, 1e-7))))
    median = statistics.median(_timed(operation, device=device) for _ in range(repetitions))
    return distributed.largest_over_ranks(median, device=device), repetitions


def _timed(operation: Callable[[], object], *, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    operation()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
