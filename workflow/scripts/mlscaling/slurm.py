"""A point → Slurm geometry, as resources of the Slurm executor plugin.

Measured with snakemake-executor-plugin-slurm 2.8.0: `mpi` present but empty lets the rule's shell run once, in the
batch step on the first node, for one node as for many; a GPU request goes by `gres`, which is per node, and without
`tasks`, which the plugin would turn into `--ntasks-per-gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlscaling.spec import Point

START_UP_MIN = 5
"""Minutes added to a training's own limit for start-up and publication."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Geometry:
    """Shape of one training job."""

    nodes: int
    """`--nodes`."""
    ntasks_per_node: int
    """`--ntasks-per-node`: one task per rank."""
    cpus_per_task: int
    """`--cpus-per-task`."""
    gres: str
    """`--gres` of each node, empty without GPUs."""
    mem_mb: int
    """`--mem` of each node, MiB."""
    runtime_min: int
    """`--time`, minutes."""

    @property
    def slurm_extra(self) -> str:
        """Options that the plugin has no resource for."""
        return f"--ntasks-per-node={self.ntasks_per_node}"


def geometry(point: Point) -> Geometry:
    """Shape of a training of this point."""
    system = point.system
    return Geometry(
        nodes=point.nodes,
        ntasks_per_node=system.accelerators_per_node,
        cpus_per_task=system.cpus_per_accelerator,
        gres=f"gpu:{system.accelerators_per_node}" if system.device == "cuda" else "",
        mem_mb=system.mem_mib_per_node,
        runtime_min=system.time_limit_min + START_UP_MIN,
    )
