"""An attempt as a job on its nodes: what every step of it needs, and the commands that start something there.

Steps before the training (`attempts.STEPS`) and the training itself start on the nodes by the same launcher, inside the
same container, as steps of the same allocation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlscaling import containers, launchers, slurm
from mlscaling.spec import RunSpec, System


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

    @property
    def spec_file(self) -> Path:
        """File from which every rank reads what to train."""
        return self.folder / "spec.json"


def on_ranks(job: Job, *arguments: str) -> list[str]:
    """Command that runs `train.py <arguments>` once for every rank."""
    return _launch(job, arguments, ranks_per_node=job.spec.accelerators_per_node, cpus=job.spec.cpus_per_accelerator)


def on_nodes(job: Job, *arguments: str) -> list[str]:
    """Command that runs `train.py <arguments>` once on every node, with all cores of its ranks."""
    cpus = job.spec.accelerators_per_node * job.spec.cpus_per_accelerator
    return _launch(job, arguments, ranks_per_node=1, cpus=cpus)


def training(job: Job, *, cache_cleared: bool = False) -> list[str]:
    """Command of the training; its log says whether the page cache of every node was dropped before."""
    log = (job.folder / "mlperf.log").resolve()
    cleared = ["--cache-cleared"] if cache_cleared else []
    return on_ranks(job, "rank", f"--spec={job.spec_file.resolve()}", f"--log={log}", *cleared)


def _launch(job: Job, arguments: Sequence[str], *, ranks_per_node: int, cpus: int) -> list[str]:
    train = str(job.train_script.resolve())
    rank = [sys.executable, train, *arguments]
    wrapped = containers.wrap(job.system.container, containers.ContainerRequest(command=rank, image=job.system.image))
    request = launchers.LaunchRequest(
        command=wrapped,
        nodes=job.spec.nodes,
        ranks_per_node=ranks_per_node,
        cpus_per_rank=cpus,
        train_script=train,
        job_id=job.job_id,
        hosts=[node.name for node in job.nodes],
        hosts_are_ordered=bool(job.nodes) and job.system.rank_order != "slurm",
        master_address=slurm.first_address(job.nodes) if job.nodes else "",
        environment={"OMP_NUM_THREADS": str(job.spec.cpus_per_accelerator), **job.system.environment},
    )
    return launchers.launch_command(job.system.launcher, request)
