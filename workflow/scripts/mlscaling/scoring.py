"""Points and scaling tables: scores, verdicts and the decomposition of efficiency, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlscaling import metrics, verdict
from mlscaling.evidence import Record
from mlscaling.metrics import Array, Interval
from mlscaling.planned import Planned, PlannedPoint
from mlscaling.tables import VERDICTS, table

QUANTITIES = ("time_to_train_min", "samples_to_converge", "convergence")
DECOMPOSITION = ("speedup", "efficiency", "throughput_efficiency", "convergence_efficiency")
RCP_WITH_MEAN = ("exact", "interpolated")
"""RCP statuses whose mean belongs to the point's own global batch size."""


def points_table(runs: pd.DataFrame, planned: Planned, *, rcps: Mapping[str, Record]) -> pd.DataFrame:
    """One row for each planned point: score, intervals, RCP and verdict.

    Args:
        runs: the runs table.
        planned: what was planned, with required and trimmed runs.
        rcps: point path → `rcp.json`; absent where there is none.
    """
    rows = (
        _point_row(runs_of(runs, point), point=point, study=planned.study, rcp=rcps.get(point.path, {}))
        for point in planned.points
    )
    return table(rows, kind="points")


def scaling_table(points: pd.DataFrame, runs: pd.DataFrame, planned: Planned) -> pd.DataFrame:
    """One row for each planned point: how it scales from the smallest measured node count of its curve.

    The resamples are those of the points table, so that both tables' intervals belong together.
    """
    rows: list[dict[str, Any]] = []
    for _, curve in points.groupby(["system", "workload"], sort=False):
        rows += _curve_rows(curve.sort_values("nodes"), runs=runs, planned=planned)
    return table(rows, kind="scaling")


def runs_of(runs: pd.DataFrame, point: PlannedPoint) -> pd.DataFrame:
    """Rows of a point."""
    of_point = (runs["system"] == point.system) & (runs["workload"] == point.workload) & (runs["nodes"] == point.nodes)
    return runs[of_point]


def resampled_point(runs: pd.DataFrame, point: PlannedPoint, *, study: str) -> dict[str, Array]:
    """Olympic means of a point's quantities: measured, then resamples. See `metrics.resampled_means`."""
    counts = verdict.counts_for_score(runs).to_numpy()
    quantities = {name: np.where(counts, runs[name].to_numpy(), np.inf) for name in QUANTITIES}
    identity = f"{study}/{point.path}/b{point.global_batch_size}"
    generator = metrics.generator_of(identity)
    return metrics.resampled_means(quantities, trimmed=point.trimmed_runs, generator=generator)


def _point_row(runs: pd.DataFrame, *, point: PlannedPoint, study: str, rcp: Record) -> dict[str, Any]:
    means = resampled_point(runs, point, study=study)
    seconds = means["time_to_train_min"] * 60
    means["throughput_samples_per_s"] = means["samples_to_converge"] / seconds
    logs = runs[runs["compliance"] != ""]
    normalization = _number(rcp.get("normalization"))
    time_min = float(means["time_to_train_min"][0])
    row: dict[str, Any] = {
        "study": study,
        "num_converged": int(verdict.counts_for_score(runs).sum()),
        "completeness": metrics.completeness(len(logs), required=point.required_runs),
        "normalized_time_to_train_min": metrics.normalized_time(time_min, normalization=normalization),
        "convergence_unit": _unit(runs, point=point),
        "init_min": logs["init_min"].mean(),
        "eval_min": logs["eval_min"].mean(),
        "rcp_status": rcp.get("status") or "",
        # Without a score there is nothing to test, whatever the verdict says of the runs.
        "rcp_passed": pd.NA if rcp.get("passed") is None or np.isnan(time_min) else bool(rcp["passed"]),
        "compliance": verdict.compliance_of(logs, trimmed=point.trimmed_runs),
    }
    row |= {name: getattr(point, name) for name in PLAN_COLUMNS}
    row |= {f"rcp_{key}": _number(rcp.get(key)) for key in ("mean", "limit", "margin", "p_value")}
    for name, values in means.items():
        row |= _interval_columns(name, metrics.interval(values))
    return row | verdict.verdict_of(runs, row=row, rcp=rcp, trimmed=point.trimmed_runs)


PLAN_COLUMNS = (
    "system",
    "workload",
    "nodes",
    "accelerators",
    "global_batch_size",
    "local_batch_size",
    "batch_policy",
    "num_runs",
    "required_runs",
)


def _unit(runs: pd.DataFrame, *, point: PlannedPoint) -> str:
    units = runs.loc[runs["convergence"].notna(), "convergence_unit"].unique()
    return str(units[0]) if len(units) == 1 else point.convergence_unit


def _curve_rows(curve: pd.DataFrame, *, runs: pd.DataFrame, planned: Planned) -> Iterable[dict[str, Any]]:
    scored = curve[curve["time_to_train_min"].notna()]
    reference = scored.iloc[0] if len(scored) else None
    means = {}
    for row in curve.itertuples():
        point = planned.point(f"{row.system}/{row.workload}/n{row.nodes}")
        means[row.nodes] = resampled_point(runs_of(runs, point), point, study=planned.study)
    for _, row in curve.iterrows():
        yield _scaling_row(row, reference=reference, means=means)


def _scaling_row(
    row: pd.Series, *, reference: pd.Series | None, means: Mapping[int, Mapping[str, Array]]
) -> dict[str, Any]:
    keys = ("study", "system", "workload", "nodes", "global_batch_size")
    result: dict[str, Any] = {key: row[key] for key in keys} | {"verdict": row["verdict"], "finding": ""}
    if reference is None:
        return result | {"reference_nodes": pd.NA}
    point, base = means[row["nodes"]], means[reference["nodes"]]
    parts = metrics.decompose(
        time=point["time_to_train_min"],
        samples=point["samples_to_converge"],
        reference_time=base["time_to_train_min"],
        reference_samples=base["samples_to_converge"],
        node_ratio=row["nodes"] / reference["nodes"],
    )
    intervals = {name: metrics.interval(getattr(parts, name)) for name in DECOMPOSITION}
    for name, interval in intervals.items():
        result |= _interval_columns(name, interval)
    ratio = float(parts.samples_ratio[0])
    inherent, avoidable = metrics.split_samples_ratio(ratio, rcp=_rcp_at(row), reference_rcp=_rcp_at(reference))
    return result | {
        "reference_nodes": reference["nodes"],
        "samples_ratio": ratio,
        "inherent_ratio": inherent,
        "avoidable_ratio": avoidable,
        # A comparison is no better than the worse of the two points.
        "verdict": max(row["verdict"], reference["verdict"], key=VERDICTS.index),
        "finding": _finding(row, reference=reference, intervals=intervals),
    }


def _rcp_at(point: pd.Series) -> float:
    return float(point["rcp_mean"]) if point["rcp_status"] in RCP_WITH_MEAN else float("nan")


def _finding(row: pd.Series, *, reference: pd.Series, intervals: Mapping[str, Interval]) -> str:
    speedup, efficiency = intervals["speedup"], intervals["efficiency"]
    if row["nodes"] == reference["nodes"] or np.isnan(speedup.value):
        return ""
    if efficiency.above_one:
        settings = {"global_batch_size": "global batch size", "local_batch_size": "local batch size"}
        differing = [
            f"{words} {reference[name]} → {row[name]}"
            for name, words in settings.items()
            if reference[name] != row[name]
        ]
        return (
            f"efficiency above 1 ({efficiency.value:.3f}, 95 % {efficiency.low:.3f} to {efficiency.high:.3f}): "
            f"the points may not be alike" + (f"; {', '.join(differing)}" if differing else "")
        )
    return "" if speedup.significant else "not significant"


def _interval_columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
