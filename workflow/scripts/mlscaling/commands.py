"""What each point of a study would start, in words that can be pasted: Slurm's request, then the command in the job."""

from __future__ import annotations

import shlex
from pathlib import Path

from mlscaling import jobs
from mlscaling.jobs import Job
from mlscaling.slurm import Node, geometry
from mlscaling.spec import Point
from mlscaling.study import Study, run_spec

SCRIPT = Path(__file__).resolve().parents[1] / "train.py"
JOB_ID = "1"
"""Stands for the number that Slurm will give."""


def commands_of_study(study: Study, *, attempts: Path) -> str:
    """One paragraph for each point that is trained, for its first run; nodes are called node1, node2, …

    Args:
        attempts: folder of the study's attempts.
    """
    points = [point for point in study.points if point.published is None]
    return "\n".join(_paragraph(study, point, attempts=attempts) for point in points)


def _paragraph(study: Study, point: Point, *, attempts: Path) -> str:
    spec = run_spec(study, point, run=0)
    data = Path(study.data_root) / point.settings.dataset
    in_slurm = point.system.launcher != "local"
    job = Job(
        folder=attempts / point.path / "run_0" / "attempt_0",
        spec=spec.with_data(Path(point.system.stage_data_to or data)),
        data_dir=data,
        system=point.system,
        train_script=SCRIPT,
        job_id=JOB_ID if in_slurm else "",
        nodes=[Node(name=f"node{n}", address=f"node{n}", port=0) for n in range(1, point.nodes + 1)]
        if in_slurm
        else [],
    )
    lines = [f"# {point.path}, global batch size {point.global_batch_size}"]
    if in_slurm:
        lines.append(f"sbatch {shlex.join(_request(point))}")
    lines += [shlex.join(command) for command in [*jobs.before(job), jobs.training(job)]]
    return "\n".join(lines) + "\n"


def _request(point: Point) -> list[str]:
    shape = geometry(point)
    return [
        f"--nodes={shape.nodes}",
        *([f"--ntasks={shape.tasks}"] if shape.tasks else []),
        *shlex.split(shape.slurm_extra),
        f"--cpus-per-task={shape.cpus_per_task}",
        *([f"--gres={shape.gres}"] if shape.gres else []),
        f"--mem={shape.mem_mb}",
        f"--time={shape.runtime_min}",
    ]
