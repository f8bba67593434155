"""What a system description is about, as configuration knows it. Light, since the Snakefile imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlscaling.spec import Point


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """What is described, as configuration and runs know it."""

    system: str
    """Name of the system, which its logs give as `submission_platform`."""
    nodes: int
    """Number of nodes."""
    accelerators_per_node: int
    """Accelerators that a run uses on each node."""
    accelerator: str
    """Model as the system file names it; a CPU process that stands for one."""
    division: str
    """Division of the logs."""
    device: str = "cpu"
    """`cpu` or `cuda`; on the CPU, GPUs of a node are not what is described."""
    emulated: bool = False
    """Nodes are emulated on one host."""
    said: Mapping[str, str] = field(default_factory=dict)
    """`description` of the system file: what only a person can say, under MLPerf's names."""


def described_system(point: Point, *, division: str) -> dict[str, Any]:
    """Fields of `Described` of a point's system at its node count, as plain values for a rule's params."""
    return {
        "system": point.system.name,
        "nodes": point.nodes,
        "accelerators_per_node": point.system.accelerators_per_node,
        "accelerator": point.system.accelerator,
        "division": division,
        "device": point.system.device,
        "emulated": point.system.emulated,
        "said": dict(point.system.description),
    }
