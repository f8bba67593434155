"""Runs that failed where nobody was left to say why; the snakemake that asked for them finds out when it ends.

Slurm removes a job from its queue that waited longer than the system's `queue_limit_min`; nothing of ours ran then. A
job whose first node is lost leaves an attempt that still says that it is running.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlscaling.attempt_folders import Attempt, close_abandoned, next_folder, only_one, read_attempts, write_attempt
from mlscaling.slurm import answer
from mlscaling.spec import Point


def close_lost(attempts_dir: Path, *, run: int) -> str:
    """Close the run's last attempt if nobody is at work on it any more; returns a line to print, or nothing."""
    if not any(record["status"] == "running" for record in read_attempts(attempts_dir)):
        return ""
    try:
        with only_one(attempts_dir, wait=False):
            close_abandoned(attempts_dir, run=run)
    except BlockingIOError:
        return ""
    last = read_attempts(attempts_dir)[-1]
    return f"{attempts_dir}: attempt {last['attempt']} failed ({last['failure_class']}): {last['message']}\n"


def name_of_point_rule(point: Point, *, runs: Sequence[int]) -> str:
    """Name of the rule that makes these runs of a point in one job; runs that are given up are named."""
    given_up = [str(run) for run in range(point.num_runs) if run not in runs]
    without = "_without_" + "_".join(given_up) if given_up else ""
    return f"train_{re.sub(r'[^A-Za-z0-9_]', '_', point.path)}{without}"


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
    """Leave a failed attempt if the run's job is one of those removed and has none yet.

    Returns:
        A line to print, or nothing.
    """
    job_id = next((jobs[comment] for comment in jobs if _is_of(comment, point, run=run)), None)
    if job_id is None or any(record.get("job_id") == job_id for record in read_attempts(attempts_dir)):
        return ""
    limit = f"the system's queue_limit_min = {point.system.queue_limit_min}"
    message = f"job {job_id} waited in the queue longer than {limit}; Slurm removed it before it started"
    attempts_dir.mkdir(parents=True, exist_ok=True)
    folder = next_folder(attempts_dir)
    now = time.time()
    attempt = Attempt(
        run=run,
        attempt=int(folder.name.removeprefix("attempt_")),
        status="failed",
        failure_class="timeout",
        message=message,
        started=now,
        ended=now,
        job_id=job_id,
    )
    write_attempt(folder, attempt)
    return f"{attempts_dir}: attempt {attempt.attempt} failed (timeout): {message}\n"


def _is_of(comment: str, point: Point, *, run: int) -> bool:
    """Whether this is the comment of the run's job: executor 2.8.0 names the rule and its wildcards in it."""
    wildcards = f"{point.system.name}_{point.workload.name}_{point.nodes}"
    if point.allocation == "point":
        rule = name_of_point_rule(point, runs=range(point.num_runs))
        return re.fullmatch(rf"rule_{rule}(_without[_\d]+)?_wildcards_{re.escape(wildcards)}", comment) is not None
    return comment == f"rule_train_wildcards_{wildcards}_{run}"
