"""Folders of attempts at a run: who is at work on it, what was tried before, and what waits to be published.

`<attempts_dir>` is `…/attempts/<point>/run_{run}`; it holds `attempt_{k}/` with `attempt.json`, and the run's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlscaling import slurm
from mlscaling.files import write_json
from mlscaling.spec import RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try at a run; `attempt.json` in its folder."""

    run: int
    """Zero-based run."""
    attempt: int
    """Zero-based attempt."""
    status: str
    """`running`, `completed` or `failed`."""
    failure_class: str = ""
    """One of `failures.FAILURE_CLASSES`, empty unless failed."""
    message: str = ""
    """What decided."""
    exit_status: int | None = None
    """Exit status of the launch command."""
    started: float = 0.0
    """Seconds since 1970; for humans, never a measurement."""
    ended: float | None = None
    """The same, of its end."""
    hostname: str = ""
    """First node."""
    job_id: str = ""
    """Slurm job, empty outside Slurm."""
    nodes: tuple[dict[str, str], ...] = field(default=())
    """Nodes that Slurm gave, in the order of ranks: name and address; empty outside Slurm."""
    ranks: tuple[dict[str, int | str], ...] = field(default=())
    """What each rank said of itself: rank, host and address."""
    staging_s: float | None = None
    """Seconds in which all nodes copied or verified the data; None where ranks read them where they lie."""
    notes: tuple[str, ...] = field(default=())
    """What a reader should know, e.g. that ranks shared cores."""
    unclaimed: bool = False
    """Whoever asked for the run was gone when it ended, so its result waits for the next one who asks."""


def read_attempts(attempts_dir: Path) -> list[dict[str, Any]]:
    """Records of all attempts at a run, oldest first; an unreadable record counts as a failed attempt."""
    records = []
    for folder in attempt_folders(attempts_dir):
        try:
            records.append(json.loads((folder / "attempt.json").read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            number = int(folder.name.removeprefix("attempt_"))
            message = f"{folder / 'attempt.json'} is unreadable: {error}"
            records.append({"attempt": number, "status": "failed", "failure_class": "unknown", "message": message})
    return records


def given_up(attempts_dir: Path, *, log: Path) -> bool:
    """Whether a run was tried, failed, and has no log."""
    return not log.exists() and any(record["status"] != "completed" for record in read_attempts(attempts_dir))


@contextlib.contextmanager
def only_one(attempts_dir: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the run's lock; yields whether it had to wait.

    A killed snakemake leaves its trainings running. A second process for the same run waits for them instead of
    training beside them, which would disturb both measurements.

    Raises:
        BlockingIOError: another process holds it, and this one does not wait.
    """
    with (attempts_dir / ".lock").open("w") as stream:
        waited = False
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            print(f"another process is at work on {attempts_dir}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(stream, fcntl.LOCK_EX)
            waited = True
        yield waited


def attempt_folders(attempts_dir: Path) -> list[Path]:
    """Folders of all attempts, oldest first."""
    numbered = [path for path in attempts_dir.glob("attempt_*") if path.name.removeprefix("attempt_").isdigit()]
    return sorted(numbered, key=lambda path: int(path.name.removeprefix("attempt_")))


def next_folder(attempts_dir: Path) -> Path:
    """A new folder for the next attempt."""
    existing = attempt_folders(attempts_dir)
    number = int(existing[-1].name.removeprefix("attempt_")) + 1 if existing else 0
    folder = attempts_dir / f"attempt_{number}"
    folder.mkdir()
    return folder


def close_abandoned(attempts_dir: Path, *, run: int) -> None:
    """Attempts that nobody can be at work on any more, since we hold the lock, become failed ones."""
    for folder, record in zip(attempt_folders(attempts_dir), read_attempts(attempts_dir), strict=True):
        if record["status"] == "running":
            known = slurm.why_ended(record["job_id"], at=record["started"]) if record.get("job_id") else None
            failure_class, message = known or ("interrupted", "the process that made this attempt disappeared")
            closed = {**record, "status": "failed", "failure_class": failure_class, "message": message, "run": run}
            write_json(closed, folder / "attempt.json")


def completed_for_another(attempts_dir: Path, *, spec: RunSpec, waited: bool, verdict: Path | None) -> Path | None:
    """Newest attempt, if it completed for somebody who never got it, and trained exactly this spec.

    That is one that we waited for, or one whose snakemake was killed meanwhile. A job cannot see the snakemake that
    submitted it, but can see that its log was never judged. A log that was published and deleted since is asked for
    anew, and trained anew.
    """
    records = read_attempts(attempts_dir)
    if not records or records[-1]["status"] != "completed":
        return None
    folder = completed_as_planned(attempts_dir, spec=spec)
    if folder != attempt_folders(attempts_dir)[-1]:
        return None
    never_judged = bool(records[-1].get("job_id")) and verdict is not None and not _judges(verdict, folder)
    if not (waited or records[-1].get("unclaimed") or never_judged):
        return None
    write_json({**records[-1], "unclaimed": False}, folder / "attempt.json")
    return folder


def completed_as_planned(attempts_dir: Path, *, spec: RunSpec) -> Path | None:
    """Newest attempt that completed, if it trained exactly this spec, wherever its data were."""
    records = zip(attempt_folders(attempts_dir), read_attempts(attempts_dir), strict=True)
    completed = [folder for folder, record in records if record["status"] == "completed"]
    if not completed:
        return None
    trained = RunSpec.from_file(completed[-1] / "spec.json")
    if dataclasses.replace(trained, data_dir="").to_json() != dataclasses.replace(spec, data_dir="").to_json():
        return None
    return completed[-1]


def _judges(verdict: Path, folder: Path) -> bool:
    try:
        judged = json.loads(verdict.read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(judged == hashlib.sha256((folder / "mlperf.log").read_bytes()).hexdigest())


def write_attempt(folder: Path, attempt: Attempt) -> None:
    """Write `attempt.json`."""
    write_json(dataclasses.asdict(attempt), folder / "attempt.json")
