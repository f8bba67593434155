"""An attempt as a job on its nodes: what every step of it needs, and the commands that start something there.

Steps before the training (`attempts.STEPS`) and the training itself start on the nodes by the same launcher, as steps
of the same allocation. Our own programs run in the system's container; where a vendor's command trains, whose image
need not have Python, they run beside it.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlscaling import containers, launchers, slurm, vendor
from mlscaling.containers import ContainerRequest, Mount, mount_of
from mlscaling.spec import RunSpec
from mlscaling.systems import System

OUTPUT = "output"
"""Folder in an attempt's for whatever a vendor's command writes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One attempt, placed."""

    folder: Path
    """The attempt's folder; steps leave their evidence there."""
    spec: RunSpec
    """What is trained."""
    system: System
    """Where."""
    train_script: Path
    """`train.py`."""
    job_id: str
    """Slurm job, empty outside Slurm."""
    nodes: Sequence[slurm.Node]
    """Nodes of the allocation in the order of ranks; empty outside Slurm."""
    data_dir: Path
    """Prepared data as the preparation left them; `spec.data_dir` is where ranks read, maybe a copy."""
    manifest: Path | None = None
    """Manifest of the prepared data."""
    image: Mapping[str, Any] = field(default_factory=dict)
    """Record of the container image (`images.prepare_image`); empty without one."""
    trials: int = 1
    """Runs that this launch makes."""

    @property
    def spec_file(self) -> Path:
        """File from which every rank reads what to train."""
        return self.folder / "spec.json"

    @property
    def image_name(self) -> str:
        """Image that the training runs in; empty without one."""
        return str(self.spec.command.get("image") or self.system.image)


def on_ranks(job: Job, *arguments: str) -> list[str]:
    """Command that runs `train.py <arguments>` once for every rank."""
    return _ours(job, arguments, ranks_per_node=job.spec.accelerators_per_node, inside=not job.spec.command)


def on_nodes(job: Job, *arguments: str, inside: bool = True) -> list[str]:
    """Command that runs `train.py <arguments>` once on every node, with all cores of its ranks.

    Args:
        inside: in the system's container, unless a vendor's command trains.
    """
    return _ours(job, arguments, ranks_per_node=1, inside=inside and not job.spec.command, once_per_node=True)


def in_container(job: Job, *arguments: str) -> list[str]:
    """Command that runs `train.py <arguments>` here, inside the container that ranks run in; nothing where that needs a
    step of Slurm, or a vendor's image."""
    if job.system.container == "none" or job.spec.command:
        return []
    program = [job.system.container_python, str(job.train_script.resolve()), *arguments]
    wrapped = _wrapped(job, program, workdir="", variables={})
    return [] if wrapped.step_options else wrapped.command


def training(job: Job, *, cache_cleared: bool = False) -> list[str]:
    """Command of the training; our log says whether the page cache of every node was dropped before."""
    if job.spec.command:
        return _vendors(job)
    log = (job.folder / "mlperf.log").resolve()
    cleared = ["--cache-cleared"] if cache_cleared else []
    return on_ranks(job, "rank", f"--spec={job.spec_file.resolve()}", f"--log={log}", *cleared)


def mounts_of(job: Job) -> list[Mount]:
    """What a training's container sees of the host: what it needs, and what the system file names."""
    named = [mount_of(mount) for mount in job.system.mounts]
    if job.spec.command:
        fields = _fields(job)
        return [*(mount_of(mount.format_map(fields)) for mount in vendor.command_of(job.spec).mounts), *named]
    code = str(job.train_script.resolve().parents[2])
    folders = [Mount(source=code, target=code, read_only=True)]
    for path, read_only in ((job.spec.data_dir, True), (str(job.folder.resolve()), False)):
        folders.append(Mount(source=str(Path(path).resolve()), target=path, read_only=read_only))
    return [*folders, *named]


def _fields(job: Job) -> dict[str, str]:
    log_dir = (job.folder / OUTPUT).resolve()
    return vendor.fields_of(job.spec, log_dir=log_dir, image=job.image_name, trials=job.trials)


def before(job: Job) -> list[list[str]]:
    """Commands of what each node runs before a vendor's command, e.g. to print the submission header."""
    programs = vendor.command_of(job.spec).before if job.spec.command else ()
    return [_vendors_program(job, program, ranks_per_node=1) for program in programs]


def _vendors(job: Job) -> list[str]:
    command = vendor.command_of(job.spec)
    per_node = 1 if command.start == "nodes" else job.spec.accelerators_per_node
    if command.start != "once":
        return _vendors_program(job, command.program, ranks_per_node=per_node)
    fields = _fields(job)
    variables = vendor.variables_of(job.spec, fields)
    program = [text.format_map(fields) for text in command.program]
    return launchers.once(_request(job, program, ranks_per_node=1, variables=variables, step_options=[]))


def _vendors_program(job: Job, program: Sequence[str], *, ranks_per_node: int) -> list[str]:
    fields = _fields(job)
    variables = vendor.variables_of(job.spec, fields)
    texts = [text.format_map(fields) for text in program]
    wrapped = _wrapped(job, texts, workdir=vendor.command_of(job.spec).workdir, variables=variables)
    request = _request(
        job, wrapped.command, ranks_per_node=ranks_per_node, variables=variables, step_options=wrapped.step_options
    )
    return launchers.launch_command(job.system.launcher, request)


def _ours(
    job: Job, arguments: Sequence[str], *, ranks_per_node: int, inside: bool, once_per_node: bool = False
) -> list[str]:
    train = str(job.train_script.resolve())
    contained = inside and job.system.container != "none"
    python = job.system.container_python if contained else sys.executable
    wrapped = containers.Wrapped(command=[python, train, *arguments])
    if contained:
        wrapped = _wrapped(job, wrapped.command, workdir="", variables={})
    request = _request(
        job, wrapped.command, ranks_per_node=ranks_per_node, variables={}, step_options=wrapped.step_options
    )
    launcher = job.system.launcher
    if once_per_node:
        launcher = launchers.ONCE_PER_NODE.get(launcher, launcher)
    return launchers.launch_command(launcher, request)


def _wrapped(
    job: Job, command: Sequence[str], *, workdir: str, variables: Mapping[str, str]
) -> containers.Wrapped:  # fmt: skip
    system = job.system
    names = {*launchers.RANK_VARIABLES, *_environment(job, variables)}
    request = ContainerRequest(
        command=[*system.rank_prefix, *command],
        image=job.image_name,
        mounts=mounts_of(job),
        variables=sorted(names),
        workdir=workdir,
        gpus=job.spec.device == "cuda",
        user="" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}",
        executable=system.container_command,
        options=system.container_options,
    )
    return containers.wrap(system.container, request)


def _environment(job: Job, variables: Mapping[str, str]) -> dict[str, str]:
    # Charliecloud does not start without a user's name, which Slurm takes from whoever submitted, if there is one.
    user = {} if job.system.container == "none" else {"USER": getpass.getuser()}
    threads = {"OMP_NUM_THREADS": str(job.spec.cpus_per_accelerator)}
    return {**user, **threads, **job.system.environment, **variables}


def _request(
    job: Job,
    command: Sequence[str],
    *,
    ranks_per_node: int,
    variables: Mapping[str, str],
    step_options: Sequence[str],
) -> launchers.LaunchRequest:
    ranks = job.spec.accelerators_per_node
    return launchers.LaunchRequest(
        command=command,
        nodes=job.spec.nodes,
        ranks_per_node=ranks_per_node,
        cpus_per_rank=job.spec.cpus_per_accelerator * ranks // ranks_per_node,
        train_script=str(job.train_script.resolve()),
        job_id=job.job_id,
        hosts=[node.name for node in job.nodes],
        hosts_are_ordered=bool(job.nodes) and job.system.rank_order != "slurm",
        master_address=slurm.first_address(job.nodes) if job.nodes else "",
        environment=_environment(job, variables),
        mpi=job.system.mpi,
        options=[*job.system.launcher_options, *step_options],
    )
