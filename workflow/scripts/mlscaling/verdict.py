"""Whether a point is valid, incomplete or invalid, and why, from its runs, its logs' compliance and its RCP test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlscaling import metrics, wording
from mlscaling.evidence import Record


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


def verdict_of(runs: pd.DataFrame, *, row: Mapping[str, Any], rcp: Record, trimmed: int) -> dict[str, str]:
    """Columns `verdict` and `reason` of a point.

    *Invalid*: the RCP test failed, more logs than may be dropped did not converge or do not comply, or the logs do not
    belong together. *Incomplete*: runs are still to be done; until then an RCP test has failed only so far, but more
    runs do not repair the other faults. *Valid* points, too, have a reason where a run was dropped.

    Args:
        runs: the point's rows of the runs table.
        row: the point's other columns.
        rcp: the point's `rcp.json`, empty without one.
        trimmed: runs that may be dropped as the slowest.
    """
    if (runs["status"] == "missing").all():
        return {"verdict": "incomplete", "reason": "no run yet"}
    counts = counts_for_score(runs)
    times = np.where(counts, runs["time_to_train_min"].to_numpy(), np.inf)
    no_score = metrics.no_score_reason(times, trimmed=trimmed)
    complete = row["completeness"] == "complete"
    errors = [finding["message"] for finding in rcp.get("findings", ()) if _is_fault(finding)]
    rcp_fault = "" if errors else _rcp_fault(row, complete=complete)
    num_lost = int(((runs["compliance"] != "") & ~counts).sum())
    if errors or num_lost > trimmed or (complete and (rcp_fault or no_score)):
        verdict = "invalid"
    else:
        verdict = "valid" if complete else "incomplete"
    reasons = [no_score, *errors, rcp_fault, *_run_faults(runs), "" if complete else row["completeness"]]
    return {"verdict": verdict, "reason": "; ".join(filter(None, reasons))}


def _is_fault(finding: Record) -> bool:
    """Findings on the point as a whole that the table does not find itself: equal logs or seeds, mixed settings."""
    return bool(finding["severity"] == "error" and finding["check"] != "insufficient_convergence")


def _run_faults(runs: pd.DataFrame) -> list[str]:
    numbers: dict[str, list[str]] = {}
    for run in runs[~counts_for_score(runs)].itertuples():
        words = {"aborted": "did not converge", "failed": f"failed ({run.failure_class})", "missing": "missing"}
        fault = words.get(run.status, "not compliant") + (f": {run.finding}" if run.finding else "")
        numbers.setdefault(fault, []).append(str(run.run))
    return [f"run{'s' * (len(of_fault) > 1)} {', '.join(of_fault)} {fault}" for fault, of_fault in numbers.items()]


def _rcp_fault(row: Mapping[str, Any], *, complete: bool) -> str:
    if pd.isna(row["rcp_passed"]) or row["rcp_passed"]:
        return ""
    words = "RCP test failed" + ("" if complete else " so far")
    if np.isnan(row["rcp_limit"]):
        return f"{words} ({row['rcp_status'].replace('_', ' ')})"
    value, limit, unit = row["convergence"], row["rcp_limit"], row["convergence_unit"]
    fault = f"{words}: {value:,.6g} {unit}, the limit is {limit:,.6g}"
    p_value = row["rcp_p_value"]  # NaN where the reference's runs do not vary
    return fault if np.isnan(p_value) else f"{fault} (p {wording.probability(p_value)})"
