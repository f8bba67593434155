"""Which point of one side is compared with which of the other: the same workload at the same number of nodes.

Two systems may differ: that is what two vendors are. Where each side has one system, they are compared whatever their
names. Where a side has several, equal names are compared, and `--map A_SYSTEM=B_SYSTEM` says what else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlscaling.comparison.sides import Side, SidePoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """Points of two sides."""

    systems: Mapping[str, str]
    """System of A → system of B."""
    pairs: tuple[tuple[SidePoint, SidePoint], ...]
    """Points of A with those of B."""
    only_a: tuple[SidePoint, ...]
    """Points that have no counterpart in B."""
    only_b: tuple[SidePoint, ...]
    """Points that have no counterpart in A."""


def match(a: Side, b: Side, *, mapping: Mapping[str, str]) -> Matched:
    """Match the points of two sides.

    Args:
        a, b: the sides.
        mapping: system of A → system of B, by the user; takes precedence.

    Raises:
        ValueError: a mapped system is not there, or nothing can be compared; lists what there is.
    """
    systems = _systems(a, b, mapping=mapping)
    theirs = {(point.planned.system, point.planned.workload, point.planned.nodes): point for point in b.points}
    pairs = []
    for point in a.points:
        key = (systems.get(point.planned.system, ""), point.planned.workload, point.planned.nodes)
        if key in theirs:
            pairs.append((point, theirs[key]))
    if not pairs:
        raise ValueError(
            f"A and B have no workload at the same number of nodes on systems that are compared "
            f"({_shown(systems)}); A has {_paths(a)}; B has {_paths(b)}; --map A_SYSTEM=B_SYSTEM compares other systems"
        )
    of_a, of_b = {one.planned.path for one, _ in pairs}, {other.planned.path for _, other in pairs}
    return Matched(
        systems=systems,
        pairs=tuple(pairs),
        only_a=tuple(point for point in a.points if point.planned.path not in of_a),
        only_b=tuple(point for point in b.points if point.planned.path not in of_b),
    )


def _systems(a: Side, b: Side, *, mapping: Mapping[str, str]) -> dict[str, str]:
    for side, named in ((a, mapping.keys()), (b, mapping.values())):
        if unknown := sorted(set(named) - set(side.systems)):
            raise ValueError(
                f"--map: {side.label} has no system {', '.join(unknown)}; it has {', '.join(side.systems)}"
            )
    if not mapping and len(a.systems) == len(b.systems) == 1:
        return dict(zip(a.systems, b.systems, strict=True))
    taken = set(mapping.values())
    equal = {name: name for name in a.systems if name in b.systems and name not in mapping and name not in taken}
    return {**equal, **mapping}


def _shown(systems: Mapping[str, str]) -> str:
    return ", ".join(f"{one} with {other}" for one, other in systems.items()) or "none: their names differ"


def _paths(side: Side) -> str:
    return ", ".join(point.planned.path for point in side.points)
