"""`plan.tsv`: every point before anything runs, with its RCP status and what it will cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = (
    "workload",
    "system",
    "nodes",
    "accelerators",
    "batch_policy",
    "global_batch_size",
    "local_batch_size",
    "runs",
    "required_runs",
    "rcp_status",
    "rcp_mean",
    "expected_minutes_per_run",
    "accelerator_hours",
)


def plan_rows(planned: Mapping[str, Any], *, base: Path) -> list[dict[str, str]]:
    """One row for each point, values as text; what is not known is `unknown`, never 0.

    The cost assumes that a run needs the reference's samples, and that accelerators of all nodes reach the throughput
    that the system's file expects of one: the ideal line, so a lower bound.

    Args:
        planned: content of `planned.json`.
        base: folder that paths of RCP files are relative to.
    """
    return [_row(point, ruleset=planned["round"], base=base) for point in planned["points"]]


def _row(point: Mapping[str, Any], *, ruleset: str, base: Path) -> dict[str, str]:
    status, mean = _reference(point, ruleset=ruleset, base=base)
    minutes = _expected_minutes(point, mean=mean)
    unit = point["convergence_unit"]
    values = {
        "workload": point["workload"],
        "system": point["system"],
        "nodes": point["nodes"],
        "accelerators": point["accelerators"],
        "batch_policy": point["batch_policy"],
        "global_batch_size": point["global_batch_size"],
        "local_batch_size": point["local_batch_size"],
        "runs": point["num_runs"],
        "required_runs": point["required_runs"],
        "rcp_status": status,
        "rcp_mean": "unknown" if math.isnan(mean) else f"{mean:.6g} {unit}",
        "expected_minutes_per_run": _number(minutes),
        "accelerator_hours": _number(minutes / 60 * point["accelerators"] * point["num_runs"]),
    }
    return {name: str(values[name]) for name in COLUMNS}


def _reference(point: Mapping[str, Any], *, ruleset: str, base: Path) -> tuple[str, float]:
    from mlscaling.mlperf.rcp import load_rcps, prune, reference_at

    source = point["rcps"]
    if not source:
        return "none given", math.nan
    if source != "official" and not (base / source).exists():
        return f"no file {source}", math.nan
    where = source if source == "official" else base / source
    records = prune(load_rcps(where, benchmark=point["mlperf_benchmark"], ruleset=ruleset))
    reference = reference_at(records, point["global_batch_size"], required_runs=point["required_runs"])
    return reference.status, reference.mean


def _expected_minutes(point: Mapping[str, Any], *, mean: float) -> float:
    throughput = point["samples_per_s_per_accelerator"]
    if not throughput:
        return math.nan
    samples = mean if point["convergence_unit"] == "samples" else mean * point["train_samples"]
    return float(samples / (throughput * point["accelerators"]) / 60)


def _number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3g}"


def plan_text(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as tab-separated text with a header."""
    lines = ["\t".join(COLUMNS), *("\t".join(row[name] for name in COLUMNS) for row in rows)]
    return "\n".join(lines) + "\n"


def read_plan(text: str) -> list[dict[str, str]]:
    """Inverse of `plan_text`."""
    header, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def aligned_plan(rows: Sequence[Mapping[str, str]], *, warnings: Sequence[str]) -> str:
    """Rows as aligned columns for a terminal, with the total cost and what will be labelled."""
    names = {name: name.replace("_", " ") for name in COLUMNS if name not in ("accelerators", "local_batch_size")}
    widths = {name: max(len(title), *(len(row[name]) for row in rows)) for name, title in names.items()}
    lines = ["  ".join(title.ljust(widths[name]) for name, title in names.items())]
    lines += ["  ".join(row[name].ljust(widths[name]) for name in names) for row in rows]
    return "\n".join([*(line.rstrip() for line in lines), "", total_hours(rows), *warnings]) + "\n"


def total_hours(rows: Sequence[Mapping[str, str]]) -> str:
    """Sum of the known costs, with what it leaves out."""
    known = [float(row["accelerator_hours"]) for row in rows if row["accelerator_hours"] != "unknown"]
    unknown = len(rows) - len(known)
    total = f"{sum(known):.3g} accelerator-hours at least"
    return f"{total}, and {unknown} points of unknown cost" if unknown else total
