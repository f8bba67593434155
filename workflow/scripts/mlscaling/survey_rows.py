"""The rows of a survey: scores and verdicts by the same functions as those of a study's points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from mlscaling import metrics, verdict
from mlscaling.mlperf import rounds
from mlscaling.mlperf.findings import Finding
from mlscaling.published import SEPARATOR, Examined

TEXT, INTEGER, OPTIONAL_INTEGER, FLOAT, FLAG = "str", "int64", "Int64", "float64", "boolean"
COLUMNS: Final[Mapping[str, str]] = {
    "submitter": TEXT,
    "system": TEXT,
    "benchmark": TEXT,
    "division": TEXT,
    "nodes": OPTIONAL_INTEGER,
    "accelerators": OPTIONAL_INTEGER,
    "accelerator": TEXT,
    "num_runs": INTEGER,
    "required_runs": OPTIONAL_INTEGER,
    "num_converged": INTEGER,
    "completeness": TEXT,
    "global_batch_size": OPTIONAL_INTEGER,
    "time_to_train_min": FLOAT,
    "normalized_time_to_train_min": FLOAT,
    "convergence": FLOAT,
    "convergence_unit": TEXT,
    "samples_to_converge": FLOAT,
    "throughput_samples_per_s": FLOAT,
    "rcp_status": TEXT,
    "rcp_passed": FLAG,
    "rcp_mean": FLOAT,
    "rcp_limit": FLOAT,
    "rcp_margin": FLOAT,
    "rcp_p_value": FLOAT,
    "normalization": FLOAT,
    "full_rcp_status": TEXT,
    "full_rcp_passed": FLAG,
    "full_rcp_mean": FLOAT,
    "full_rcp_limit": FLOAT,
    "full_normalization": FLOAT,
    "num_compliant": INTEGER,
    "official_num_compliant": OPTIONAL_INTEGER,
    "official_rcp_passed": FLAG,
    "official_seeds_passed": FLAG,
    "official_description_passed": FLAG,
    "verdict": TEXT,
    "reason": TEXT,
    "findings": TEXT,
    "official_findings": TEXT,
    "folder": TEXT,
}
"""Column → type of the survey. `official_…` is empty where the official checkers were not asked."""


NO_MEAN: Final = ("mixed_runs", "global_batch_size_differs")
"""Findings after which there is nothing to average: the logs of a folder are not of one point."""


def frame(examined: Sequence[Examined], *, answers: Sequence[Mapping[str, Any]], root: Path) -> pd.DataFrame:
    """One row for each entry, curves together, by ascending node count.

    Args:
        examined: entries.
        answers: the `official_…` columns of each; empty where the official checkers were not asked.
        root: folder that paths are told relative to.
    """
    empty = {name: "" for name, dtype in COLUMNS.items() if dtype == TEXT}
    rows = [{**empty, **_row(one, root=root), **answer} for one, answer in zip(examined, answers, strict=True)]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict(COLUMNS))
    curve = table["system"].str.replace(r"^\d+x", "", regex=True)
    order = table.assign(curve=curve).sort_values(["submitter", "curve", "benchmark", "nodes", "system"]).index
    return table.loc[order].reset_index(drop=True)


def _row(one: Examined, *, root: Path) -> dict[str, Any]:
    results, description = one.results, one.description
    row: dict[str, Any] = {
        "submitter": results.submitter,
        "system": results.system,
        "benchmark": one.benchmark,
        "division": description.division or _same(one.runs, "division") or "",
        "nodes": description.num_nodes,
        "accelerators": description.num_accelerators,
        "accelerator": description.accelerator,
        "num_runs": len(one.runs),
        "num_converged": sum(run["status"] == "success" for run in one.runs),
        "num_compliant": sum(run["compliance"] == "passed" for run in one.runs),
        "findings": SEPARATOR.join(f"{found.check}: {found.message}" for found in _serious(one)),
        "folder": results.folder.relative_to(root).as_posix(),
    }
    return row | (_no_score(one) if one.rcp is None else _scored(one, rcp=one.rcp))


def _serious(one: Examined) -> list[Finding]:
    return [found for found in one.findings if found.severity != "note"]


def _no_score(one: Examined) -> dict[str, Any]:
    """An entry without logs, or of a benchmark that the round does not have."""
    reason = one.results.problem or f"{one.benchmark or 'an empty name'} is no benchmark of this round"
    return {"verdict": "invalid", "reason": reason, "completeness": "no logs" if not one.runs else ""}


def _scored(one: Examined, *, rcp: Mapping[str, Any]) -> dict[str, Any]:
    runs, required = pd.DataFrame(one.runs), int(rcp["required_runs"])
    trimmed = rounds.trimmed_runs(one.benchmark)
    mixed = any(found["check"] in NO_MEAN and found["severity"] == "error" for found in rcp["findings"])
    counts = verdict.counts_for_score(runs).to_numpy() & (not mixed)
    quantities = ("time_to_train_min", "convergence", "samples_to_converge")
    means = {
        name: float(metrics.olympic_mean(np.where(counts, runs[name], np.inf), trimmed=trimmed)) for name in quantities
    }
    row: dict[str, Any] = {
        "required_runs": required,
        "completeness": metrics.completeness(len(runs), required=required),
        "global_batch_size": _same(one.runs, "global_batch_size"),
        "convergence_unit": _same(one.runs, "convergence_unit") or rcp["convergence_unit"],
        **means,
        "throughput_samples_per_s": means["samples_to_converge"] / (60 * means["time_to_train_min"]),
        **_rcp_columns(rcp, time_min=means["time_to_train_min"]),
    }
    return row | verdict.verdict_of(runs, row=row, rcp=rcp, trimmed=trimmed)


def _rcp_columns(rcp: Mapping[str, Any], *, time_min: float) -> dict[str, Any]:
    factor = _number(rcp["normalization"])
    return {
        **{f"rcp_{name}": rcp[name] for name in ("status", "passed")},
        **{f"rcp_{name}": _number(rcp[name]) for name in ("mean", "limit", "margin", "p_value")},
        **{f"full_rcp_{name}": rcp["full"][name] for name in ("status", "passed", "mean", "limit")},
        "normalization": factor,
        "full_normalization": _number(rcp["full"]["normalization"]),
        "normalized_time_to_train_min": metrics.normalized_time(time_min, normalization=factor),
    }


def _same(runs: Sequence[Mapping[str, Any]], name: str) -> Any:
    """The value that all runs have; None where they differ or have none."""
    values = {run[name] for run in runs if run[name] == run[name] and run[name] != ""}
    return values.pop() if len(values) == 1 else None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
