"""One run: make an attempt, let the launcher start its ranks, judge the log, publish it or say why not.

MLPerf counts failed runs as infinite, so every attempt is kept and counted. The log decides, not an exit status:
a run that did not reach its target is data; a rank that crashed after `run_stop` does not undo the run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlscaling import capture, container_check, jobs, page_cache, preflight, provenance, slurm, staging, trials, vendor
from mlscaling.attempt_folders import (
    Attempt,
    attempt_folders,
    close_abandoned,
    completed_as_planned,
    completed_for_another,
    next_folder,
    only_one,
    read_attempts,
    write_attempt,
)
from mlscaling.failures import why_failed
from mlscaling.files import write_json, write_text, written_beside
from mlscaling.jobs import Job
from mlscaling.spec import RunSpec
from mlscaling.supervision import supervise
from mlscaling.systems import System
from mlscaling.trials import Launch
from mlscaling.whereabouts import said_by_ranks

STEPS: tuple[Callable[[Job], str], ...] = (
    staging.stage,
    container_check.run,
    capture.capture_nodes,
    preflight.preflight,
    page_cache.drop,
)
"""What happens on the nodes before the training. A step returns nothing, or `<failure class>: <message>`, which ends
the attempt; it leaves its evidence in the attempt's folder."""
ALONE = Launch()
"""One launch for one run."""
INTERRUPTED = 130
"""Exit status of an interrupted command, as a shell gives it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """Where one run reads and writes."""

    attempts_dir: Path
    """`…/attempts/<point>/run_{run}`, holds `attempt_{k}/`."""
    log: Path
    """`…/runs/<point>/result_{run}.txt`, immutable once written."""
    record: Path
    """`…/runs/<point>/run_{run}.json`."""
    train_script: Path
    """`train.py`."""
    data_dir: Path
    """Prepared data."""
    image: Path | None = None
    """Record of the container image; None without one."""
    manifest: Path | None = None
    """Their manifest; needed where they are staged."""
    verdict: Path | None = None
    """Compliance verdict of the run; its being there shows that whoever asked for the result went on with it."""


def run_trainings(runs: Sequence[tuple[RunSpec, Paths]], system: System) -> int:
    """Make several runs one after another, each as `run_training` does; returns the exit status of the whole command.

    A failed run does not stop the others. A run that completed before is published again, not trained again: snakemake
    removes the outputs of all runs when one of them is missing.
    """
    status, launch = 0, Launch()
    for place, (spec, paths) in enumerate(runs):
        if spec.command.get("trials") == "all" and launch.folder is None:
            left = [run for run, of in runs[place:] if not completed_as_planned(of.attempts_dir, spec=run)]
            launch = Launch(trials=len(left))
        before = len(attempt_folders(paths.attempts_dir))
        of_run = run_training(spec, system, paths, publish_again=True, launch=launch)
        if of_run == INTERRUPTED:
            return of_run
        status = status or of_run
        if launch.trials > 1 and len(folders := attempt_folders(paths.attempts_dir)) > before:
            launch = dataclasses.replace(launch, number=launch.number + 1, folder=launch.folder or folders[-1])
    return status


def run_training(
    spec: RunSpec, system: System, paths: Paths, *, publish_again: bool = False, launch: Launch = ALONE
) -> int:
    """Make one attempt at a run; returns the exit status of the whole command.

    0: the log and the record are published, whether the target was reached or not. Otherwise the attempt's folder says
    why, and neither output exists.

    Args:
        publish_again: publish an attempt that completed with this spec, whoever got its result before.
        launch: the part of this run in a launch that makes several.
    """
    if not paths.data_dir.is_dir():
        message = f"mlscaling data error: {paths.data_dir} is missing though its manifest exists; prepare it again:"
        advice = "`snakemake data --forcerun prepare_dataset`, with the same --profile and --configfile as now"
        print(f"{message} {advice}", file=sys.stderr)
        return 1
    paths.attempts_dir.mkdir(parents=True, exist_ok=True)
    with only_one(paths.attempts_dir) as waited:
        close_abandoned(paths.attempts_dir, run=spec.run)
        if publish_again and (done := completed_as_planned(paths.attempts_dir, spec=spec)):
            return _publish(done, spec=spec, system=system, paths=paths)
        if done := completed_for_another(paths.attempts_dir, spec=spec, waited=waited, verdict=paths.verdict):
            print(f"run {spec.run}: {done.name} was completed for another process; publishing it", file=sys.stderr)
            return _publish(done, spec=spec, system=system, paths=paths)
        folder = next_folder(paths.attempts_dir)
        return _attempt(folder, spec=spec, system=system, paths=paths, launch=launch)


# --- one attempt ------------------------------------------------------------------------------------------------------


def _attempt(folder: Path, *, spec: RunSpec, system: System, paths: Paths, launch: Launch) -> int:
    attempt = Attempt(
        run=spec.run,
        attempt=int(folder.name.removeprefix("attempt_")),
        status="running",
        started=time.time(),
        hostname=str(provenance.host()["hostname"]),
        job_id=os.environ.get("SLURM_JOB_ID", ""),
    )
    write_attempt(folder, attempt)
    askers = provenance.ancestors(2)  # the rule's shell, and snakemake
    nodes: list[slurm.Node] = []
    try:
        data_dir = staging.staged_folder(system.stage_data_to, data_dir=paths.data_dir, manifest=paths.manifest)
        spec = dataclasses.replace(spec, data_dir=str(data_dir))
        write_text(spec.to_json() + "\n", folder / "spec.json")
        if attempt.job_id and system.launcher != "local":
            nodes = slurm.allocation(attempt.job_id, order=system.rank_order)
        attempt = dataclasses.replace(attempt, nodes=tuple({"name": n.name, "address": n.address} for n in nodes))
        write_attempt(folder, attempt)
        job = Job(
            folder=folder,
            spec=spec,
            system=system,
            train_script=paths.train_script,
            job_id=attempt.job_id,
            nodes=nodes,
            image=json.loads(paths.image.read_text(encoding="utf-8")) if paths.image else {},
            data_dir=paths.data_dir,
            manifest=paths.manifest,
            trials=launch.trials,
        )
        status, ended_by = trials.take_part(folder, launch) if launch.folder else _run_job(job)
    except ValueError as error:
        (folder / "ranks.log").touch()
        status, ended_by = 1, f"config: {error}"
    attempt = _judge(folder, attempt=attempt, exit_status=status, ended_by=ended_by, nodes=nodes)
    attempt = dataclasses.replace(attempt, unclaimed=not provenance.all_alive(askers))
    write_attempt(folder, attempt)
    if attempt.status == "completed":
        return _publish(folder, spec=spec, system=system, paths=paths)
    print(_failure_text(folder, attempt=attempt, spec=spec), file=sys.stderr)
    return INTERRUPTED if ended_by.startswith("interrupted") or attempt.failure_class == "interrupted" else 1


def _run_job(job: Job) -> tuple[int, str]:
    """Steps, then the training; status of the command that was last, and what ended it."""
    started = time.monotonic()
    for step in STEPS:
        if ended_by := step(job):
            (job.folder / "ranks.log").touch()
            return 1, ended_by
    (job.folder / jobs.OUTPUT).mkdir(exist_ok=True)
    before = []
    for number, command in enumerate(jobs.before(job)):
        before.append(job.folder / f"before_{number}.log")
        status, ended_by = supervise(
            command, output=before[-1], progress=before[-1], system=job.system, started=started
        )
        if status or ended_by:
            shutil.copyfile(before[-1], job.folder / "ranks.log")
            return status, ended_by
    command = jobs.training(job, cache_cleared=page_cache.dropped(job.folder))
    write_json(provenance.command_without_secrets(command), job.folder / "command.json")
    output, log = job.folder / "ranks.log", job.folder / "mlperf.log"
    progress = output if job.spec.command else log
    ended = supervise(command, output=output, progress=progress, system=job.system, started=started)
    if job.spec.command:
        vendor.collect_log([*before, output], log)
        trials.keep_trials(job.folder, trials=job.trials)
    return ended


# --- judging and publishing -------------------------------------------------------------------------------------------


def _judge(folder: Path, *, attempt: Attempt, exit_status: int, ended_by: str, nodes: Sequence[slurm.Node]) -> Attempt:
    notes = _notes(folder) + preflight.remarks(folder)
    log = folder / "mlperf.log"
    with (folder / "ranks.log").open(encoding="utf-8", errors="replace") as lines:
        ranks = said_by_ranks(lines)
    attempt = dataclasses.replace(attempt, ranks=ranks, staging_s=staging.seconds(folder))
    # Once the run has stopped, only its ranks can hang: a limit ends them, and leaves the measurement as it is.
    if (not ended_by or ended_by.startswith("timeout")) and log.exists() and _run_stopped(log):
        if ended_by:
            notes += (f"the ranks were ended after run_stop ({ended_by.partition(': ')[2]})",)
        elif exit_status:
            notes += (f"the launch command ended with status {exit_status} after run_stop",)
        return dataclasses.replace(
            attempt, status="completed", exit_status=exit_status, ended=time.time(), notes=notes
        )  # fmt: skip
    failure = why_failed(
        folder / "ranks.log",
        exit_status=exit_status,
        ended_by=ended_by,
        job_id=attempt.job_id,
        started=attempt.started,
        nodes=nodes,
    )
    return dataclasses.replace(
        attempt,
        status="failed",
        failure_class=failure.failure_class,
        message=failure.message,
        exit_status=exit_status,
        ended=time.time(),
        notes=notes,
    )


def _run_stopped(log: Path) -> bool:
    from mlscaling.mlperf.parse import summarize

    return summarize(log).status in ("success", "aborted")


def _notes(folder: Path) -> tuple[str, ...]:
    with (folder / "ranks.log").open(encoding="utf-8", errors="replace") as lines:
        said = tuple(line.removeprefix("emulate: ").strip() for line in lines if line.startswith("emulate: "))
    return (*said, *page_cache.notes(folder), *capture.notes_of(folder))


def _failure_text(folder: Path, *, attempt: Attempt, spec: RunSpec) -> str:
    run = f"{spec.system}/{spec.workload}/n{spec.nodes} run {spec.run}"
    return (
        f"{run}: attempt {attempt.attempt} failed ({attempt.failure_class}): {attempt.message}\n"
        f"  output of all ranks: {folder / 'ranks.log'}"
    )


def _publish(folder: Path, *, spec: RunSpec, system: System, paths: Paths) -> int:
    from mlscaling.mlperf.parse import summarize

    summary = summarize(folder / "mlperf.log")
    with written_beside(paths.log) as beside:
        shutil.copyfile(folder / "mlperf.log", beside)
    record = _record(folder, spec=spec, system=system, paths=paths)
    write_json({**record, "log_sha256": summary.sha256}, paths.record)
    needed = f"{summary.convergence:g} {summary.convergence_unit}" if summary.converged else "target not reached"
    reached = f"{summary.status}, {60 * summary.time_to_train_min:.1f} s, {needed}"
    name = f"{spec.workload} on {spec.nodes} node{'s' * (spec.nodes > 1)}, run {spec.run}"
    print(f"{name}: {reached} ({folder.name.replace('_', ' ')})")
    return 0


def _record(folder: Path, *, spec: RunSpec, system: System, paths: Paths) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "spec": json.loads(dataclasses.replace(spec, data_dir="").to_json()),
        "system": {**dataclasses.asdict(system), "environment": provenance.without_secrets(system.environment)},
        "published_attempt": int(folder.name.removeprefix("attempt_")),
        "attempts": read_attempts(paths.attempts_dir),
        **capture.where_it_ran(folder, code_dir=paths.train_script.resolve().parent),
        "container": container_check.evidence(folder),
        "preflight": preflight.kept(folder),
    }
