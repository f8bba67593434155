"""The network table: what the preflights of a study measured, one row for each run and message size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mlscaling.evidence import Record, read_record
from mlscaling.network import bus_bandwidth, slowest_node
from mlscaling.planned import Planned
from mlscaling.tables import COLUMNS, FLOAT, table

KEYS = ["system", "workload", "nodes"]


def network_table(
    planned: Planned,
    *,
    records: Mapping[tuple[str, int], Record],
    attempts: Mapping[tuple[str, int], Sequence[Record]],
) -> pd.DataFrame:
    """All sweeps, in the order of the plan; no row for a run that has none.

    Args:
        planned: points and number of runs.
        records: (point path, run) → run record, whose `preflight` is that of the published attempt.
        attempts: (point path, run) → reports of the attempts' preflights; the last one speaks for a run that failed.
    """
    rows: list[dict[str, Any]] = []
    for point in planned.points:
        for run in range(point.num_runs):
            key = (point.path, run)
            published = records.get(key, {}).get("preflight")
            report = published or next(iter(reversed(attempts.get(key, ()))), None)
            plan = {name: getattr(point, name) for name in KEYS} | {"study": planned.study, "run": run}
            rows += [plan | row for row in _rows(report or {})]
    return table(rows, kind="network")


def read_preflights(folder: str | Path) -> dict[tuple[str, int], list[Record]]:
    """Reports `{system}/{workload}/n{nodes}/run_{run}/attempt_{k}/preflight.json` by point path and run, in order."""
    found: dict[tuple[str, int], list[tuple[int, Path]]] = {}
    for path in Path(folder).glob("*/*/n*/run_*/attempt_*/preflight.json"):
        *point, run, attempt = path.parts[-6:-1]
        key = "/".join(point), int(run.removeprefix("run_"))
        found.setdefault(key, []).append((int(attempt.removeprefix("attempt_")), path))
    return {key: [read_record(path) for _, path in sorted(paths)] for key, paths in found.items()}


def by_point(network: pd.DataFrame) -> pd.DataFrame:
    """Median over a point's runs of their best bus bandwidth, and its slow node where all of them blame the same one.

    One row for each point that has a sweep: `bus_bandwidth_gb_per_s`, `best_of_system_gb_per_s` over the system's
    points of several nodes, and `slow_node`, empty where there is none.
    """
    if network.empty:
        columns = dict.fromkeys(("bus_bandwidth_gb_per_s", "best_of_system_gb_per_s"), FLOAT)
        types = {name: dtype for name, dtype in COLUMNS["network"].items() if name in (*KEYS, "slow_node")} | columns
        return pd.DataFrame(columns=list(types)).astype(types)
    best = network.groupby([*KEYS, "run"], sort=False).agg(
        bus_bandwidth_gb_per_s=("bus_bandwidth_gb_per_s", "max"), slow_node=("slow_node", "first")
    )
    grouped = best.reset_index().groupby(KEYS, sort=False)
    medians = grouped["bus_bandwidth_gb_per_s"].median()
    blamed = grouped["slow_node"].agg(lambda names: names.iloc[0] if names.nunique() == 1 else "")
    points = pd.concat([medians, blamed], axis=1).reset_index()
    between_nodes = points["bus_bandwidth_gb_per_s"].where(points["nodes"] > 1)
    points["best_of_system_gb_per_s"] = between_nodes.groupby(points["system"]).transform("max")
    return points


def _rows(report: Record) -> Iterator[dict[str, Any]]:
    sweep = report.get("sweep", [])
    if not sweep:
        return
    slowest = slowest_node(report["links"])
    thresholds = report.get("thresholds", {})
    for row in sweep:
        yield {
            **row,
            "ranks": len(report["ranks"]),
            "backend": report["backend"],
            "best_bus_bandwidth_gb_per_s": bus_bandwidth(sweep),
            "min_bus_bandwidth_gb_per_s": _number(thresholds.get("min_bus_bandwidth_gb_per_s")),
            "max_latency_us": _number(thresholds.get("max_latency_us")),
            "slow_node": slowest["node"] if slowest and slowest["slow"] else "",
            "stopped": bool(report.get("finding")),
        }


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
