"""How ranks start. Each launcher is one registered pure function from frozen inputs to a list of strings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

LAUNCHERS: dict[str, Callable[[LaunchRequest], list[str]]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """What a launcher needs to know to start one program on every rank."""

    command: Sequence[str]
    """Command of one rank, container included."""
    nodes: int
    """Number of nodes."""
    ranks_per_node: int
    """Ranks on each node."""
    cpus_per_rank: int
    """CPU cores of each rank."""
    train_script: str
    """Path of `train.py`, which also plays the one-host launcher."""
    job_id: str = ""
    """Slurm job, empty outside Slurm."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set for every rank."""


Launcher = Callable[[LaunchRequest], list[str]]


def register(name: str) -> Callable[[Launcher], Launcher]:
    """Add a launcher under its configuration name; a second one of that name is an error."""

    def add(function: Launcher) -> Launcher:
        if name in LAUNCHERS:
            raise ValueError(f"launcher {name} is registered twice")
        LAUNCHERS[name] = function
        return function

    return add


def launch_command(name: str, request: LaunchRequest) -> list[str]:
    """One command that starts the ranks and ends with a failure if any rank fails.

    Raises:
        ValueError: no launcher of that name; lists what exists.
    """
    if name not in LAUNCHERS:
        raise ValueError(f"unknown launcher {name!r}; legal values: {', '.join(sorted(LAUNCHERS))}")
    return LAUNCHERS[name](request)


def _with_environment(request: LaunchRequest) -> list[str]:
    if not request.environment:
        return list(request.command)
    return ["env", *(f"{key}={value}" for key, value in sorted(request.environment.items())), *request.command]


@register("local")
def local(request: LaunchRequest) -> list[str]:
    """All ranks on this host, each pinned to its own cores: emulated nodes."""
    return [
        sys.executable,
        request.train_script,
        "emulate",
        f"--nodes={request.nodes}",
        f"--ranks-per-node={request.ranks_per_node}",
        f"--cpus-per-rank={request.cpus_per_rank}",
        "--",
        *_with_environment(request),
    ]


@register("srun")
def srun(request: LaunchRequest) -> list[str]:
    """One Slurm task per rank inside the job's allocation.

    Node and task counts are always given: Snakemake's Slurm executor strips them from the job's environment, and a
    bare `--ntasks-per-node` then starts one task on any one node. `--overlap` lets the step share what a batch step
    of the executor may already hold.
    """
    return [
        "srun",
        f"--jobid={request.job_id}",
        "--overlap",
        f"--nodes={request.nodes}",
        f"--ntasks={request.nodes * request.ranks_per_node}",
        f"--ntasks-per-node={request.ranks_per_node}",
        f"--cpus-per-task={request.cpus_per_rank}",
        "--kill-on-bad-exit=1",
        "--wait=60",
        "--label",
        *_with_environment(request),
    ]
