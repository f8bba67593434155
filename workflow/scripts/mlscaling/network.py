"""The arithmetic of a measured network: bandwidth of an all-reduce, and which node's link is slow.

Bandwidths are in GB/s, 10⁹ bytes per second. Algorithm bandwidth of an all-reduce is its message over its time; bus
bandwidth is that times 2 (n−1) ÷ n for n ranks, the rate at which a rank's link must carry data in each direction,
which does not depend on the number of ranks (NCCL tests, doc/PERFORMANCE.md,
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SMALLEST_MESSAGE, GROWTH = 4096, 4
"""Bytes of the first message of a sweep, and the factor from one to the next."""
SLOW = 0.6
"""A node is slow if its link has less than this share of the median node's: a link that came up at half its rate is."""
Row = dict[str, Any]


def message_sizes(largest: int) -> list[int]:
    """Bytes of the messages of a sweep."""
    sizes = [SMALLEST_MESSAGE]
    while sizes[-1] * GROWTH <= largest:
        sizes.append(sizes[-1] * GROWTH)
    return sizes


def sweep_row(size: int, *, seconds: float, ranks: int, repetitions: int) -> Row:
    """What an all-reduce of `size` bytes in `seconds` says."""
    algorithm = size / seconds / 1e9
    return {
        "bytes": size,
        "latency_us": 1e6 * seconds,
        "algorithm_bandwidth_gb_per_s": algorithm,
        "bus_bandwidth_gb_per_s": algorithm * 2 * (ranks - 1) / ranks,
        "repetitions": repetitions,
    }


def bus_bandwidth(sweep: Sequence[Mapping[str, Any]]) -> float:
    """Best bus bandwidth over the message sizes of a sweep, GB/s."""
    return float(max(row["bus_bandwidth_gb_per_s"] for row in sweep))


def latency_us(sweep: Sequence[Mapping[str, Any]]) -> float:
    """Time of the smallest all-reduce of a sweep, µs."""
    return float(min(sweep, key=lambda row: row["bytes"])["latency_us"])


def ring_phases(nodes: int) -> list[list[tuple[int, int]]]:
    """Links from each node to the next, in phases in which no node has two: each is then measured undisturbed."""
    if nodes < 2:
        return []
    links = [(node, node + 1) for node in range(nodes - 1)]
    phases = [links[0::2], links[1::2]]
    if nodes > 2:
        closing = (nodes - 1, 0)
        # An even ring's last link is disjoint from those of the second phase, an odd one's from none.
        phases = [phases[0], [*phases[1], closing]] if nodes % 2 == 0 else [*phases, [closing]]
    return [phase for phase in phases if phase]


def slowest_node(links: Sequence[Mapping[str, Any]], *, by: str = "bandwidth_gb_per_s") -> Row | None:
    """The node whose links to both neighbours are slow; None where fewer than three nodes leave that open.

    A node is as good as the better of its links, so that a slow neighbour is not held against it.

    Args:
        links: records with the two `nodes` and their measurements.
        by: `bandwidth_gb_per_s` or `latency_us`.

    Returns:
        `node`, `value` of its better link, `median` over all nodes, and whether it is `slow`.
    """
    better = max if by == "bandwidth_gb_per_s" else min
    worse = min if by == "bandwidth_gb_per_s" else max
    nodes = dict.fromkeys(name for link in links for name in link["nodes"])
    if len(nodes) < 3:
        return None
    values = {name: better(link[by] for link in links if name in link["nodes"]) for name in nodes}
    name = worse(values, key=lambda node: float(values[node]))
    value, median = float(values[name]), statistics.median(map(float, values.values()))
    slow = value < SLOW * median if by == "bandwidth_gb_per_s" else value > median / SLOW
    return {"node": name, "value": value, "median": median, "slow": slow}
