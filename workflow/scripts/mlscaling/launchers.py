"""How ranks start. Each launcher is one registered pure function from frozen inputs to a list of strings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mlscaling.slurm import rendezvous_port

RANK_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_JOB_ID",
    "CUDA_VISIBLE_DEVICES", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
)  # fmt: skip
"""What tells a rank its place, for container runtimes that hand over only the variables they are told."""
LAUNCHERS: dict[str, Callable[[LaunchRequest], list[str]]] = {}
ONCE_PER_NODE = {"torchrun": "srun"}
"""Launcher → the one by which it starts a program once on every node; others do it themselves. An agent that imports
torch is of no use there."""


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
    hosts: Sequence[str] = field(default=())
    """Nodes of the allocation in the order of ranks, empty outside Slurm."""
    hosts_are_ordered: bool = False
    """Their order is not Slurm's own, so it must be told."""
    master_address: str = ""
    """Address of the first node, at which the ranks meet; empty outside Slurm."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set for every rank."""
    mpi: str = ""
    """`srun`'s `--mpi`: how ranks that use MPI find each other; empty, Slurm's default."""
    options: Sequence[str] = field(default=())
    """Further options of `srun` or `mpirun`: binding, a container plugin."""


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


def _with_environment(request: LaunchRequest, *, rendezvous: bool = False) -> list[str]:
    variables = dict(request.environment)
    if rendezvous and request.master_address:
        variables = {
            "MASTER_ADDR": request.master_address,
            "MASTER_PORT": str(rendezvous_port(request.job_id)),
            **variables,
        }
    if not variables:
        return list(request.command)
    return ["env", *(f"{key}={value}" for key, value in sorted(variables.items())), *request.command]


def _check_job(request: LaunchRequest) -> None:
    if not request.job_id:
        raise ValueError("the launcher of this system works in a Slurm job, and this is none; legal outside: local")


def _step(request: LaunchRequest, *, tasks_per_node: int, cpus_per_task: int) -> list[str]:
    _check_job(request)
    # One name for each task: `-m arbitrary` takes neither `name*2` nor one name for several tasks (Slurm 22.05).
    names = ",".join(host for host in request.hosts for _ in range(tasks_per_node))
    order = ["--distribution=arbitrary", f"--nodelist={names}"] if request.hosts_are_ordered else []
    return [
        "srun",
        f"--jobid={request.job_id}",
        "--overlap",
        f"--nodes={request.nodes}",
        f"--ntasks={request.nodes * tasks_per_node}",
        f"--ntasks-per-node={tasks_per_node}",
        f"--cpus-per-task={cpus_per_task}",
        *order,
        "--kill-on-bad-exit=1",
        "--wait=60",
        "--label",
        *([f"--mpi={request.mpi}"] if request.mpi else []),
        *request.options,
    ]


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
    """One Slurm task per rank inside the job's allocation: the most robust start.

    Node and task counts are always given: Snakemake's Slurm executor strips them from the job's environment, and a
    bare `--ntasks-per-node` then starts one task on any one node. `--overlap` lets the step share what a batch step
    of the executor may already hold.
    """
    step = _step(request, tasks_per_node=request.ranks_per_node, cpus_per_task=request.cpus_per_rank)
    return [*step, *_with_environment(request, rendezvous=True)]


@register("torchrun")
def torchrun(request: LaunchRequest) -> list[str]:
    """One Slurm task per node, each a torchrun that starts its node's ranks.

    The static rendezvous: with `c10d`, agents print long errors when the first node's store leaves before them. The
    node's number is known in the task only, and is that of its one task; torchrun reads it from PET_NODE_RANK.
    """
    step = _step(request, tasks_per_node=1, cpus_per_task=request.ranks_per_node * request.cpus_per_rank)
    return [
        *step,
        "sh",
        "-c",
        'PET_NODE_RANK="$SLURM_PROCID" exec "$@"',
        "torchrun",
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={request.nodes}",
        f"--nproc-per-node={request.ranks_per_node}",
        f"--master-addr={request.master_address}",
        f"--master-port={rendezvous_port(request.job_id)}",
        "--no-python",
        "--",  # else torchrun takes options of the command for abbreviations of its own
        *_with_environment(request),
    ]


_OF_MPI = ("OMPI_", "PMIX_", "PRTE_", "UCX_")
"""Variables that mpirun itself reads, too."""


@register("mpirun")
def mpirun(request: LaunchRequest) -> list[str]:
    """Open MPI's mpirun, which starts its daemons through Slurm and then the ranks, where a site prefers that.

    The daemons' launcher reads the node list from variables that Snakemake's executor has stripped, so they are given
    back to it. By nodes, ranks begin where mpirun itself runs, whatever that list's order; another order is given rank
    by rank.
    """
    _check_job(request)
    by_rank = ",".join(host for host in request.hosts for _ in range(request.ranks_per_node))
    by_node = ["--map-by", f"ppr:{request.ranks_per_node}:node"]
    return [
        "env",
        *_allocation(request),
        *(f"{key}={value}" for key, value in sorted(request.environment.items()) if key.startswith(_OF_MPI)),
        "mpirun",
        "--np",
        str(request.nodes * request.ranks_per_node),
        *(["--map-by", "seq", "--host", by_rank] if request.hosts_are_ordered else by_node),
        *([] if "--bind-to" in request.options else ["--bind-to", "none"]),
        *request.options,
        "sh",
        "-c",
        'RANK="$OMPI_COMM_WORLD_RANK" LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"'
        ' exec "$@"',
        "mpirun",
        *_with_environment(request, rendezvous=True),
    ]


def once(request: LaunchRequest) -> list[str]:
    """The command on the first node alone, which starts the others itself: a vendor's `run.sub`.

    In a job it finds the variables of its allocation again, which Snakemake's executor has stripped.
    """
    variables = [f"{key}={value}" for key, value in sorted(request.environment.items())]
    return ["env", *(_allocation(request) if request.job_id else []), *variables, *request.command]


def _allocation(request: LaunchRequest) -> list[str]:
    slots = f"{request.ranks_per_node}(x{request.nodes})" if request.nodes > 1 else str(request.ranks_per_node)
    return [
        f"SLURM_JOBID={request.job_id}",
        f"SLURM_JOB_NODELIST={','.join(request.hosts)}",
        f"SLURM_JOB_NUM_NODES={request.nodes}",
        f"SLURM_NNODES={request.nodes}",
        f"SLURM_NODELIST={','.join(request.hosts)}",
        f"SLURM_TASKS_PER_NODE={slots}",
    ]
