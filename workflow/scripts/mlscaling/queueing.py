"""Runs whose job Slurm removed from its queue, since it waited longer than the system's `queue_limit_min`.

Nothing of ours ran, so nobody but the snakemake that submitted the job can say so: it asks Slurm when it ends with an
error, and leaves a failed attempt for each of these runs. A job is known by its comment, which the executor writes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from mlscaling.attempt_folders import Attempt, next_folder, read_attempts, write_attempt
from mlscaling.slurm import answer
from mlscaling.spec import Point


def comment_of_job(point: Point, *, run: int) -> str:
    """Comment that executor 2.8.0 gives to the job that makes this run: its rule and its wildcards."""
    wildcards = f"{point.system.name}_{point.workload.name}_{point.nodes}"
    if point.allocation == "point":
        return f"rule_{name_of_point_rule(point)}_wildcards_{wildcards}"
    return f"rule_train_wildcards_{wildcards}_{run}"


def name_of_point_rule(point: Point) -> str:
    """Name of the rule that makes all runs of a point."""
    return "train_" + re.sub(r"\W", "_", point.path)


def removed_jobs(folder: Path) -> Mapping[str, str]:
    """Comment → id of the jobs, submitted in this folder, that Slurm has removed at their deadline."""
    listed = answer("squeue", "--me", "--states=DEADLINE", "--noheader", "--format=%i|%Z|%k")
    if not listed:  # the controller forgets them after MinJobAge
        listed = answer(
            "sacct", "--allocations", "--noheader", "--parsable2", "--state=DEADLINE", "--starttime=now-1day",
            "--format=JobIDRaw,WorkDir,Comment",
        )  # fmt: skip
    found = (line.split("|", 2) for line in listed.splitlines() if line.count("|") >= 2)
    return {comment: job_id for job_id, workdir, comment in found if Path(workdir).resolve() == folder.resolve()}


def note_removed(point: Point, *, run: int, attempts_dir: Path, jobs: Mapping[str, str]) -> str:
    """Leave a failed attempt if the run's job is one of those removed and has none yet; returns a line to print, or ""."""
    job_id = jobs.get(comment_of_job(point, run=run))
    if job_id is None or any(record.get("job_id") == job_id for record in read_attempts(attempts_dir)):
        return ""
    limit = f"the system's queue_limit_min = {point.system.queue_limit_min}"
    message = f"job {job_id} waited in the queue longer than {limit}; Slurm removed it before it started"
    attempts_dir.mkdir(parents=True, exist_ok=True)
    folder = next_folder(attempts_dir)
    now = time.time()
    number = int(folder.name.removeprefix("attempt_"))
    attempt = Attempt(run=run, attempt=number, status="failed", failure_class="timeout", message=message,
                      started=now, ended=now, job_id=job_id)  # fmt: skip
    write_attempt(folder, attempt)
    return f"{point.path} run {run}: {message}\n"
