"""The runs table: one row for every planned run, whether or not it left a log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mlscaling.evidence import Record
from mlscaling.mlperf.summary import RunSummary
from mlscaling.planned import Planned, PlannedPoint
from mlscaling.tables import table

NO_LOG: Mapping[str, Any] = {"compliance": "", "official_compliance": ""}


def runs_table(
    planned: Planned,
    *,
    compliance: Mapping[tuple[str, int], Record],
    attempts: Mapping[tuple[str, int], Sequence[Record]],
) -> pd.DataFrame:
    """All planned runs with what their logs, verdicts and attempts say.

    Args:
        planned: points and number of runs.
        compliance: (point path, run) → `compliance_{run}.json`; absent where the run has no log.
        attempts: (point path, run) → attempt records in their order.

    Raises:
        ValueError: a verdict is of a run that was not planned; names it.
    """
    keys = {(point.path, run): point for point in planned.points for run in range(point.num_runs)}
    if strays := sorted(compliance.keys() - keys.keys()):
        path, run = strays[0]
        raise ValueError(f"compliance_{run}.json of {path} is of a run that study {planned.study} did not plan")
    rows = (
        {"study": planned.study, "run": run}
        | _plan_columns(point, run=run)
        | _outcome(compliance.get((path, run)), point=point, attempts=attempts.get((path, run), ()))
        for (path, run), point in keys.items()
    )
    return table(rows, kind="runs")


def _plan_columns(point: PlannedPoint, *, run: int) -> dict[str, Any]:
    return {
        "system": point.system,
        "workload": point.workload,
        "nodes": point.nodes,
        "accelerators": point.accelerators,
        "global_batch_size": point.global_batch_size,
        "local_batch_size": point.local_batch_size,
        "seed": point.trial_seeds[run] if run < len(point.trial_seeds) else None,
        "target": point.target,
        "convergence_unit": point.convergence_unit,
    }


def _outcome(verdict: Record | None, *, point: PlannedPoint, attempts: Sequence[Record]) -> dict[str, Any]:
    if verdict is None:
        return _outcome_without_log(attempts)
    summary = RunSummary.from_dict(verdict["summary"])
    status = {"success": "success", "aborted": "aborted"}.get(summary.status, "failed")
    samples_per_logged = _samples_per_logged(summary, point)
    last_class = attempts[-1].get("failure_class") if attempts else None
    return _logged_settings(summary) | {
        "status": status,
        "failure_class": (last_class or "unknown") if status == "failed" else "",
        "num_attempts": max(1, len(attempts)),
        "time_to_train_min": summary.time_to_train_min,
        "convergence": summary.convergence,
        "convergence_unit": summary.convergence_unit,
        "samples_to_converge": summary.samples_to_converge * samples_per_logged,
        "throughput_samples_per_s": summary.throughput_samples_per_s * samples_per_logged,
        "quality": summary.quality,
        "staging_min": _staging_min(attempts),
        "init_min": summary.init_min,
        "eval_min": summary.eval_min,
        "compliance": "passed" if verdict["passed"] else "failed",
        "official_compliance": _official(verdict),
        "finding": _first_error(verdict),
    }


def _staging_min(attempts: Sequence[Record]) -> float:
    """Minutes in which all nodes copied or verified the data; NaN where they did neither."""
    seconds = attempts[-1].get("staging_s") if attempts else None
    return math.nan if seconds is None else seconds / 60


def _samples_per_logged(summary: RunSummary, point: PlannedPoint) -> float:
    """Samples of an epoch by the plan ÷ by the log: published Mask R-CNN logs name 40,000 of 117,266."""
    if summary.convergence_unit != "epochs" or not point.train_samples or not summary.train_samples > 0:
        return 1.0
    return point.train_samples / summary.train_samples


def _logged_settings(summary: RunSummary) -> dict[str, Any]:
    """What the log states and the plan may have stated otherwise or not at all; the log is what ran."""
    logged: dict[str, Any] = {}
    if summary.seeds and type(summary.seeds[0]) is int:  # a bool is an int, too
        logged["seed"] = summary.seeds[0]
    if not math.isnan(summary.target):
        logged["target"] = summary.target
    return logged


def _outcome_without_log(attempts: Sequence[Record]) -> dict[str, Any]:
    if not attempts or attempts[-1]["status"] == "completed":
        # A completed attempt without a verdict: its log was removed, or has not been checked yet.
        return {"status": "missing", "failure_class": "", "num_attempts": len(attempts), "finding": "", **NO_LOG}
    last = attempts[-1]
    return {
        "status": "failed",
        "failure_class": last.get("failure_class") or "unknown",
        "num_attempts": len(attempts),
        "finding": last.get("message") or "",
        **NO_LOG,
    }


def _official(verdict: Record) -> str:
    passed = (verdict.get("official") or {}).get("passed")  # None where the official checker was not asked
    return "" if passed is None else ("passed" if passed else "failed")


def _first_error(verdict: Record) -> str:
    errors = (finding["message"] for finding in verdict["findings"] if finding["severity"] == "error")
    return next(errors, "")
