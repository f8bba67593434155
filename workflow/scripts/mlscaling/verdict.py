"""Whether a point is valid, incomplete or invalid, and why, from its runs, its logs' compliance and its RCP test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlscaling import metrics


def counts_for_score(runs: pd.DataFrame) -> pd.Series:
    """Which runs have a time that may be scored: converged, and compliant as far as checked.

    The official summariser, too, drops a log that does not comply as the slowest.
    """
    return (runs["status"] == "success") & (runs["compliance"] != "failed")


def compliance_of(logs: pd.DataFrame, *, trimmed: int) -> str:
    """As MLPerf accepts a point: no more logs that do not comply than may be dropped; empty without logs."""
    if logs.empty:
        return ""
    return "failed" if (logs["compliance"] == "failed").sum() > trimmed else "passed"


def verdict_of(runs: pd.DataFrame, *, row: Mapping[str, Any], trimmed: int) -> dict[str, str]:
    """Columns `verdict` and `reason` of a point.

    *Invalid*: the RCP test failed, or more logs than may be dropped did not converge or do not comply. More runs do not
    repair it. *Incomplete*: runs are still to be done. *Valid* points, too, have a reason where a run was dropped.

    Args:
        runs: the point's rows of the runs table.
        row: the point's other columns.
        trimmed: runs that may be dropped as the slowest.
    """
    counts = counts_for_score(runs)
    times = np.where(counts, runs["time_to_train_min"].to_numpy(), np.inf)
    no_score = metrics.no_score_reason(times, trimmed=trimmed)
    rcp_fault = _rcp_fault(row)
    num_lost = int(((runs["compliance"] != "") & ~counts).sum())
    complete = row["completeness"] == "complete"
    if rcp_fault or num_lost > trimmed or (no_score and complete):
        verdict = "invalid"
    else:
        verdict = "valid" if complete else "incomplete"
    if (runs["status"] == "missing").all():
        reasons = ["no run yet"]
    else:
        reasons = [no_score, rcp_fault, *_run_faults(runs), "" if complete else row["completeness"]]
    return {"verdict": verdict, "reason": "; ".join(filter(None, reasons))}


def _run_faults(runs: pd.DataFrame) -> list[str]:
    numbers: dict[str, list[str]] = {}
    for run in runs[~counts_for_score(runs)].itertuples():
        words = {"aborted": "did not converge", "failed": f"failed ({run.failure_class})", "missing": "missing"}
        fault = words.get(run.status, "not compliant") + (f": {run.finding}" if run.finding else "")
        numbers.setdefault(fault, []).append(str(run.run))
    return [f"run{'s' * (len(of_fault) > 1)} {', '.join(of_fault)} {fault}" for fault, of_fault in numbers.items()]


def _rcp_fault(row: Mapping[str, Any]) -> str:
    if pd.isna(row["rcp_passed"]) or row["rcp_passed"]:
        return ""
    if np.isnan(row["rcp_limit"]):
        return f"RCP test failed ({row['rcp_status'].replace('_', ' ')})"
    value, limit, unit = row["convergence"], row["rcp_limit"], row["convergence_unit"]
    return f"RCP test failed: {value:,.6g} {unit}, the limit is {limit:,.6g} (p {row['rcp_p_value']:.2g})"
