"""Facts of published runs as the tables of a study, so that published curves are scored and drawn like trained ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from mlscaling import scoring, tables
from mlscaling.mlperf import rounds
from mlscaling.mlperf.rcp import check_point
from mlscaling.mlperf.summary import RunSummary
from mlscaling.planned import Planned, PlannedPoint

TITLES: Final[Mapping[str, str]] = {
    "bert": "BERT",
    "maskrcnn": "Mask R-CNN",
    "resnet": "ResNet-50",
    "rnnt": "RNN-T",
    "ssd": "SSD",
}
"""MLPerf benchmark → what a reader should see."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedStudy:
    """Everything that figures take."""

    planned: Planned
    """Points, titles, notes."""
    runs: pd.DataFrame
    """The runs table."""
    points: pd.DataFrame
    """The points table."""
    scaling: pd.DataFrame
    """The scaling table."""
    rcps: Mapping[str, Mapping[str, Any]]
    """Point path → content of `rcp.json`."""


def study_of(
    facts: pd.DataFrame,
    *,
    study: str,
    title: str,
    system: str,
    benchmarks: Sequence[str],
    system_title: str = "",
    notes: Sequence[str] = (),
) -> PublishedStudy:
    """The curves of one system: of its folders `<system>`, `2x<system>`, … in the facts.

    Args:
        facts: as `facts.read_facts` gives them.
        study, title: of the study.
        system: name of the one-node system's folder.
        benchmarks: MLPerf's names, in the order of the curves.
        system_title: what a reader should see; default, the folder's name.
        notes: sentences that every figure carries.

    Raises:
        ValueError: the facts have no run of that system and one of the benchmarks.
    """
    mine = facts[facts["system"].map(system_of_folder) == system]
    if missing := [name for name in benchmarks if name not in set(mine["benchmark"])]:
        raise ValueError(f"the facts have no runs of {system} and {', '.join(missing)}")
    mine = mine[mine["benchmark"].isin(benchmarks)]
    groups = {
        (benchmark, nodes): mine[(mine["benchmark"] == benchmark) & (mine["nodes"] == nodes)].sort_values("run")
        for benchmark in benchmarks
        for nodes in sorted(mine.loc[mine["benchmark"] == benchmark, "nodes"].unique())
    }
    points = [_point(group, system=system, title=system_title) for group in groups.values()]
    planned = Planned(study=study, title=title, points=tuple(points), notes=tuple(notes))
    rows = [row for point, group in zip(points, groups.values(), strict=True) for row in _runs(group, point, study)]
    runs = tables.table(rows, kind="runs")
    rcps = {point.path: _rcp(group, point) for point, group in zip(points, groups.values(), strict=True)}
    table = scoring.points_table(runs, planned, rcps=rcps)
    scaling = scoring.scaling_table(table, runs, planned)
    return PublishedStudy(planned=planned, runs=runs, points=table, scaling=scaling, rcps=rcps)


def system_of_folder(name: str) -> str:
    """The system without its scale: submitters name several nodes `8xR750xa…` and one node `R750xa…`."""
    return re.sub(r"^\d+x(?=\D)", "", name)


def _point(group: pd.DataFrame, *, system: str, title: str) -> PlannedPoint:
    first = group.iloc[0]
    benchmark, accelerators, batch = first["benchmark"], int(first["accelerators"]), int(first["global_batch_size"])
    target = rounds.official_target(benchmark, first["round"])
    return PlannedPoint(
        system=system,
        workload=benchmark,
        nodes=int(first["nodes"]),
        accelerators=accelerators,
        global_batch_size=batch,
        local_batch_size=batch // accelerators // int(first["gradient_accumulation_steps"]),
        batch_policy="explicit",
        num_runs=len(group),
        required_runs=rounds.required_runs(benchmark),
        trimmed_runs=rounds.trimmed_runs(benchmark),
        target=next(iter(target.values.values())) if target else math.nan,
        convergence_unit=first["convergence_unit"],
        system_title=title,
        workload_title=TITLES.get(benchmark, benchmark),
    )


def _runs(group: pd.DataFrame, point: PlannedPoint, study: str) -> list[dict[str, Any]]:
    shared = {
        "study": study,
        **{name: getattr(point, name) for name in ("system", "workload", "nodes", "accelerators", "target")},
        **{name: getattr(point, name) for name in ("global_batch_size", "local_batch_size")},
    }
    return [
        {
            **shared,
            **{name: row[name] for name in ("run", "seed", "convergence", "convergence_unit", "compliance")},
            "status": row["status"] if row["status"] in ("success", "aborted") else "failed",
            "failure_class": "" if row["status"] in ("success", "aborted") else "unknown",
            "num_attempts": 1,
            "time_to_train_min": row["run_time_ms"] / 60_000,
            "samples_to_converge": _samples(row),
            "throughput_samples_per_s": _samples(row) / (row["run_time_ms"] / 1000),
            "official_compliance": "",
            "finding": "",
        }
        for _, row in group.iterrows()
    ]


def _samples(row: pd.Series) -> float:
    factor = row["train_samples"] if row["convergence_unit"] == "epochs" else 1
    return float(row["convergence"] * factor) if not pd.isna(factor) else np.nan


def _rcp(group: pd.DataFrame, point: PlannedPoint) -> dict[str, Any]:
    summaries = [
        RunSummary(
            benchmark=row["benchmark"],
            division=row["division"],
            status=row["status"],
            seeds=() if pd.isna(row["seed"]) else (int(row["seed"]),),
            global_batch_size=float(row["global_batch_size"]),
            convergence=row["convergence"],
            convergence_unit=row["convergence_unit"],
            sha256=row["sha256"],
        )
        for _, row in group.iterrows()
    ]
    return check_point(
        summaries,
        benchmark=point.workload,
        ruleset=group["round"].iloc[0],
        global_batch_size=point.global_batch_size,
        num_runs=point.num_runs,
    )
