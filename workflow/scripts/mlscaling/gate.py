"""The gate: is every point of a study valid? Says why not, point by point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def gate(points: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Verdict on a study.

    Args:
        points: table of points.
        runs: table of runs; failed and missing runs are listed with their reason.

    Returns:
        `passed`, and for each point its `verdict` and `reasons`.
    """
    records = [_verdict(point, runs) for point in points.to_dict("records")]
    return {
        "schema_version": 1,
        "passed": bool(records) and all(record["verdict"] == "valid" for record in records),
        "points": records,
    }


def _verdict(point: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    mine = runs[
        (runs["system"] == point["system"])
        & (runs["workload"] == point["workload"])
        & (runs["nodes"] == point["nodes"])
        & ~runs["status"].isin(["success", "aborted"])
    ]
    lost = [f"run {run.run} is {run.status}: {run.failure_class or 'not tried'}" for run in mine.itertuples()]
    reasons = [point["reason"]] if point["verdict"] != "valid" and isinstance(point["reason"], str) else []
    path = f"{point['system']}/{point['workload']}/n{point['nodes']}"
    return {"point": path, "verdict": point["verdict"], "reasons": reasons + lost}


def gate_message(verdict: dict[str, Any]) -> str:
    """Every bad point and why, for the terminal."""
    bad = [record for record in verdict["points"] if record["verdict"] != "valid"]
    if not verdict["points"]:
        return "the study has no points"
    if not bad:
        return f"all {len(verdict['points'])} points are valid"
    lines = [f"{len(bad)} of {len(verdict['points'])} points are not valid:"]
    lines += [f"  {record['point']}: {record['verdict']}: {'; '.join(record['reasons'])}" for record in bad]
    return "\n".join(lines)
