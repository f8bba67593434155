"""Facts of published runs as a small table: what scores and figures rest on, without the text of any log.

The table is committed with where it comes from (`config/published/`), so that a published curve can be drawn and
checked without a download. A hash of each log ties a row to the file that it was read from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from mlscaling.mlperf.checks import check_summary
from mlscaling.mlperf.findings import has_errors
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.system import SystemDescription, read_description
from mlscaling.results_tree import Results, results_of
from mlscaling.tables import CONVERTERS, FLOAT, INTEGER, OPTIONAL_INTEGER, TEXT

COLUMNS: Final[Mapping[str, str]] = {
    "round": TEXT,
    "division": TEXT,
    "submitter": TEXT,
    "system": TEXT,
    "nodes": INTEGER,
    "accelerators": INTEGER,
    "accelerator": TEXT,
    "benchmark": TEXT,
    "run": INTEGER,
    "run_time_ms": OPTIONAL_INTEGER,
    "status": TEXT,
    "compliance": TEXT,
    "convergence": FLOAT,
    "convergence_unit": TEXT,
    "train_samples": OPTIONAL_INTEGER,
    "global_batch_size": OPTIONAL_INTEGER,
    "gradient_accumulation_steps": INTEGER,
    "seed": OPTIONAL_INTEGER,
    "log": TEXT,
    "sha256": TEXT,
}
"""Column → type of a table of facts; `compliance` is our verdict on the log, `log` its path in the repository."""


def facts_of(
    root: Path, ruleset: str, *, systems: Sequence[str], benchmarks: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row for each run of these systems, in the order in which they are given.

    Args:
        root: a checkout of a results repository; only read.
        ruleset: its round.
        systems: names of folders below `results/`.
        benchmarks: names of folders below the systems; all where not given.

    Raises:
        ValueError: the tree has no such system or benchmark, or a system lacks its description; names them.
        OSError: a log cannot be read.
    """
    chosen = [
        results
        for results in results_of(root)
        if results.system in systems and (not benchmarks or results.benchmark in benchmarks) and results.logs
    ]
    for word, asked, found in (
        ("system", systems, {results.system for results in chosen}),
        ("benchmark", benchmarks or (), {results.benchmark for results in chosen}),
    ):
        if missing := [name for name in asked if name not in found]:
            raise ValueError(f"{root}: there are no results of {word} {', '.join(missing)}")
    chosen.sort(key=lambda results: (systems.index(results.system), results.benchmark))
    base = root.resolve() if not (root / "results").is_dir() else root.resolve().parent
    rows = (row for results in chosen for row in _rows(results, ruleset=ruleset, base=base))
    return pd.DataFrame(list(rows), columns=list(COLUMNS)).astype(dict(COLUMNS))


def read_facts(path: Path) -> pd.DataFrame:
    """Read a table that `tables.write_table` wrote from `facts_of`.

    Raises:
        ValueError: columns are missing or unknown, or a value is not of its column's type; names file, line and column.
    """
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(frame.columns) != list(COLUMNS):
        raise ValueError(f"{path}: is no table of facts; expected, in this order: {', '.join(COLUMNS)}")
    columns = {}
    for name, dtype in COLUMNS.items():
        values = []
        for line, text in enumerate(frame[name], start=2):
            try:
                values.append(CONVERTERS[dtype](text) if dtype in CONVERTERS else text)
            except ValueError:
                raise ValueError(f"{path}: line {line}: {name} is {text!r}, expected {dtype}") from None
        columns[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(columns)


def _rows(results: Results, *, ruleset: str, base: Path) -> Iterator[dict[str, Any]]:
    description = _complete_description(results)
    expected = {"division": description.division, "accelerators": description.num_accelerators}
    for run, log in enumerate(results.logs):
        summary = summarize(log)
        findings = check_summary(summary, ruleset=ruleset, expected=expected)
        time_ms = summary.run_stop_ms - summary.run_start_ms
        seed = summary.seeds[0] if summary.seeds else None
        yield {
            "round": ruleset,
            "division": summary.division,
            "submitter": results.submitter,
            "system": results.system,
            "nodes": description.num_nodes,
            "accelerators": description.num_accelerators,
            "accelerator": description.accelerator,
            "benchmark": summary.benchmark,
            "run": run,
            "run_time_ms": _whole(time_ms),
            "status": summary.status,
            "compliance": "failed" if has_errors(findings) else "passed",
            "convergence": summary.convergence,
            "convergence_unit": summary.convergence_unit,
            # In BERT's logs this is what was trained, not the data's size; the samples stand in `convergence`.
            "train_samples": _whole(summary.train_samples) if summary.convergence_unit == "epochs" else None,
            "global_batch_size": _whole(summary.global_batch_size),
            "gradient_accumulation_steps": summary.hyperparameters.get("gradient_accumulation_steps", 1),
            "seed": seed if isinstance(seed, int) else None,
            "log": log.relative_to(base).as_posix(),
            "sha256": summary.sha256,
        }


def _complete_description(results: Results) -> SystemDescription:
    description = read_description(results.description) if results.description else SystemDescription()
    if description.num_accelerators is None:
        where = results.description or f"systems/{results.system}.json"
        raise ValueError(f"{where}: number_of_nodes and accelerators_per_node are needed for a table of facts")
    return description


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None
