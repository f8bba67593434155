"""What a submission holds of each system and benchmark: the runs that the rules select from a study's results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling import evidence
from mlscaling.evidence import Record
from mlscaling.files import read_json
from mlscaling.mlperf.checks import check_summary
from mlscaling.mlperf.findings import has_errors
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.summary import RunSummary
from mlscaling.submission.plan import SubmissionPlan, SubmissionPoint
from mlscaling.submission.selection import Candidate, Selection, select

NO_RUNS: Final = Selection(chosen=(), num_candidates=0, window=0, scores=(math.inf,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One folder of results."""

    submitter: str
    """Folder of the submitter."""
    point: SubmissionPoint
    """Where it comes from."""
    selection: Selection
    """Its runs."""
    missing: tuple[int, ...]
    """Planned runs that were never started, or whose published log was not imported."""
    summaries: tuple[RunSummary, ...]
    """Of the chosen runs that have a log."""
    records: tuple[Mapping[str, Any], ...]
    """Run records of the point."""

    @property
    def folder(self) -> str:
        """`{system}/{benchmark}` below `results/`."""
        return f"{self.point.system_folder}/{self.point.benchmark_folder}"


def entries_of(plan: SubmissionPlan, results: Path) -> list[Entry]:
    """Every point of the study with the runs to submit.

    Args:
        plan: what the study would submit.
        results: `results/<study>/`; only read.

    Raises:
        ValueError: a verdict or record is no JSON, or two points would fill one folder; names them.
    """
    verdicts = evidence.read_compliance(sorted((results / "validation").glob("*/*/n*/compliance_*.json")))
    attempts = evidence.read_attempts(results / "attempts")
    entries = [_entry(plan, point, results, verdicts=verdicts, attempts=attempts) for point in plan.points]
    seen: dict[tuple[str, str], str] = {}
    for entry in entries:
        other = seen.setdefault((entry.submitter, entry.folder), entry.point.path)
        if other != entry.point.path:
            raise ValueError(f"{other} and {entry.point.path} both are results/{entry.folder} of {entry.submitter}")
    return entries


def reasons_of(entries: Sequence[Entry], plan: SubmissionPlan) -> list[str]:
    """Why what was trained cannot be submitted; empty where nothing forbids it."""
    return [reason for entry in entries if entry.point.published is None for reason in _reasons(entry, plan)]


def _reasons(entry: Entry, plan: SubmissionPlan) -> Iterator[str]:
    path = entry.point.path
    if entry.missing:
        yield f"{path}: {_runs(entry.missing)} missing"
    if not entry.selection.chosen:
        return
    if not math.isfinite(entry.selection.score):
        yield f"{path}: the result of the selected runs is invalid, more of them failed than may be dropped"
    for one in entry.selection.chosen:
        if one.log is None:
            yield f"{path}: {one.name} belongs to the selected runs and left no log ({one.reason})"
    divisions = sorted({summary.division or "no" for summary in entry.summaries} - {plan.division})
    if divisions and divisions != [plan.logged_division]:  # that has been said of the configuration
        yield f"{path}: logs say {' and '.join(divisions)} division, the submission is {plan.division}"


def _runs(numbers: Sequence[int]) -> str:
    return f"run{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))} {'are' if len(numbers) > 1 else 'is'}"


def _entry(
    plan: SubmissionPlan,
    point: SubmissionPoint,
    results: Path,
    *,
    verdicts: Mapping[tuple[str, int], Record],
    attempts: Mapping[tuple[str, int], Sequence[Record]],
) -> Entry:
    candidates: list[Candidate] = []
    missing, records = [], []
    for run in range(point.num_runs):
        record_file = results / "runs" / point.path / f"run_{run}.json"
        record = read_json(record_file) if record_file.exists() else {}
        records += [record] if record else []
        log = results / "runs" / point.path / f"result_{run}.txt"
        tried = attempts.get((point.path, run), ())
        if log.exists():
            candidates.append(_logged(run, log, verdicts.get((point.path, run)), record=record, attempts=tried))
        elif not tried:
            missing.append(run)
        published = record.get("published_attempt") if log.exists() else None
        candidates += [
            _attempted(run, attempt, results, point=point, plan=plan)
            for attempt in tried
            if attempt["attempt"] != published
        ]
    selection = (
        select(candidates, required=point.required_runs, trimmed=point.trimmed_runs) if candidates else NO_RUNS
    )  # fmt: skip
    return Entry(
        submitter=plan.submitter_of(point),
        point=point,
        selection=selection,
        missing=tuple(missing),
        summaries=tuple(summarize(one.log) for one in selection.chosen if one.log is not None),
        records=tuple(records),
    )


def _logged(
    run: int, log: Path, verdict: Record | None, *, record: Mapping[str, Any], attempts: Sequence[Record]
) -> Candidate:
    """A run with a log in its place: trained, or imported, where the log alone says when it started."""
    if verdict is None:
        raise ValueError(f"{log}: has no compliance verdict; make it first, by the target tables")
    summary = RunSummary.from_dict(verdict["summary"])
    number = record.get("published_attempt", 0)
    started = next((one["started"] for one in attempts if one["attempt"] == number and one.get("started")), None)
    passed = bool(verdict["passed"])
    return Candidate(
        run=run,
        attempt=number,
        started=summary.run_start_ms / 1000 if started is None else float(started),
        **_outcome(summary, log=log, passed=passed),
    )


def _attempted(run: int, attempt: Record, results: Path, *, point: SubmissionPoint, plan: SubmissionPlan) -> Candidate:
    """An attempt that is not the published one: it failed, or its log was deleted and trained again."""
    number = int(attempt["attempt"])
    log = results / "attempts" / point.path / f"run_{run}" / f"attempt_{number}" / "mlperf.log"
    base: dict[str, Any] = {"run": run, "attempt": number, "started": float(attempt.get("started") or math.nan)}
    if attempt["status"] == "completed" and log.exists():
        summary = summarize(log)
        passed = not has_errors(check_summary(summary, ruleset=plan.ruleset))
        return Candidate(**base, **_outcome(summary, log=log, passed=passed))
    words = f"failed, {attempt.get('failure_class') or 'unknown'}: {attempt.get('message') or 'no message'}"
    # Without a batch size the official checkers raise on the whole folder.
    usable = log if log.exists() and math.isfinite(summarize(log).global_batch_size) else None
    return Candidate(**base, time_min=math.inf, log=usable, reason=words)


def _outcome(summary: RunSummary, *, log: Path, passed: bool) -> dict[str, Any]:
    """Time of a log: infinite where it did not converge or does not comply, as the official summariser has it."""
    if not summary.converged:
        words = {"aborted": "did not converge"}.get(summary.status, "has no end")
        return {"time_min": math.inf, "log": log, "reason": words}
    if not passed:
        return {"time_min": math.inf, "log": log, "reason": "does not comply"}
    return {"time_min": summary.time_to_train_min, "log": log, "reason": ""}
