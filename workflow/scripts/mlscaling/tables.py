"""The tables of a study: their columns, their types, and how they are read and written.

A missing number is NaN beside a status or verdict column, never 0; in CSV it is empty. Floats are written with all
their digits, so that identities between columns still hold after reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mlscaling.files import written_beside

TEXT, INTEGER, OPTIONAL_INTEGER, FLOAT, FLAG = "str", "int64", "Int64", "float64", "boolean"


def _with_interval(name: str) -> dict[str, str]:
    return {name: FLOAT, f"{name}_low": FLOAT, f"{name}_high": FLOAT}


COLUMNS: Mapping[str, Mapping[str, str]] = {
    "runs": {
        "study": TEXT,
        "system": TEXT,
        "workload": TEXT,
        "nodes": INTEGER,
        "accelerators": INTEGER,
        "global_batch_size": INTEGER,
        "local_batch_size": INTEGER,
        "run": INTEGER,
        "status": TEXT,
        "failure_class": TEXT,
        "num_attempts": INTEGER,
        "seed": OPTIONAL_INTEGER,
        "time_to_train_min": FLOAT,
        "convergence": FLOAT,
        "convergence_unit": TEXT,
        "samples_to_converge": FLOAT,
        "throughput_samples_per_s": FLOAT,
        "quality": FLOAT,
        "target": FLOAT,
        "staging_min": FLOAT,
        "init_min": FLOAT,
        "eval_min": FLOAT,
        "compliance": TEXT,
        "official_compliance": TEXT,
        "finding": TEXT,
    },
    "points": {
        "study": TEXT,
        "system": TEXT,
        "workload": TEXT,
        "nodes": INTEGER,
        "accelerators": INTEGER,
        "global_batch_size": INTEGER,
        "local_batch_size": INTEGER,
        "batch_policy": TEXT,
        "num_runs": INTEGER,
        "required_runs": INTEGER,
        "num_converged": INTEGER,
        "completeness": TEXT,
        **_with_interval("time_to_train_min"),
        "normalized_time_to_train_min": FLOAT,
        **_with_interval("convergence"),
        "convergence_unit": TEXT,
        **_with_interval("samples_to_converge"),
        **_with_interval("throughput_samples_per_s"),
        "init_min": FLOAT,
        "eval_min": FLOAT,
        "rcp_status": TEXT,
        "rcp_passed": FLAG,
        "rcp_mean": FLOAT,
        "rcp_limit": FLOAT,
        "rcp_margin": FLOAT,
        "rcp_p_value": FLOAT,
        "compliance": TEXT,
        "verdict": TEXT,
        "reason": TEXT,
    },
    "scaling": {
        "study": TEXT,
        "system": TEXT,
        "workload": TEXT,
        "nodes": INTEGER,
        "reference_nodes": OPTIONAL_INTEGER,
        "global_batch_size": INTEGER,
        **_with_interval("speedup"),
        **_with_interval("efficiency"),
        **_with_interval("throughput_efficiency"),
        **_with_interval("convergence_efficiency"),
        "samples_ratio": FLOAT,
        "inherent_ratio": FLOAT,
        "avoidable_ratio": FLOAT,
        "finding": TEXT,
        "verdict": TEXT,
    },
    "network": {
        "study": TEXT,
        "system": TEXT,
        "workload": TEXT,
        "nodes": INTEGER,
        "run": INTEGER,
        "ranks": INTEGER,
        "backend": TEXT,
        "bytes": INTEGER,
        "repetitions": INTEGER,
        "latency_us": FLOAT,
        "algorithm_bandwidth_gb_per_s": FLOAT,
        "bus_bandwidth_gb_per_s": FLOAT,
        "best_bus_bandwidth_gb_per_s": FLOAT,
        "min_bus_bandwidth_gb_per_s": FLOAT,
        "max_latency_us": FLOAT,
        "slow_node": TEXT,
        "stopped": FLAG,
    },
}
"""Kind of table → column → type, in the order of the file."""

RUN_STATUS = ("success", "aborted", "failed", "missing")
VERDICTS = ("valid", "incomplete", "invalid")
"""From best to worst."""


def table(rows: Iterable[Mapping[str, Any]], *, kind: str) -> pd.DataFrame:
    """Rows as a table of that kind, with its columns and types, also where there are no rows."""
    columns = _columns(kind)
    frame = pd.DataFrame(list(rows), columns=list(columns))
    return frame.astype(dict(columns))


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write as CSV with all digits: beside, then renamed, so that a reader never sees half a table."""
    with written_beside(path) as beside:
        frame.to_csv(beside, index=False, lineterminator="\n")


def read_table(path: str | Path, kind: str) -> pd.DataFrame:
    """Read a table that `write_table` wrote.

    Args:
        path: CSV file.
        kind: `runs`, `points`, `scaling` or `network`.

    Raises:
        ValueError: columns differ from those of that kind, or a value is not of its column's type; names the file,
            the columns and, for a value, its line.
    """
    columns = _columns(kind)
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: is empty; a {kind} table has at least its columns: {', '.join(columns)}") from None
    if list(frame.columns) != list(columns):
        missing = [name for name in columns if name not in frame.columns]
        unknown = [name for name in frame.columns if name not in columns]
        raise ValueError(
            f"{path}: is not a {kind} table; misses columns {missing}, has unknown {unknown}, "
            f"expected, in this order: {', '.join(columns)}"
        )
    return pd.DataFrame({name: _typed(frame[name], dtype=dtype, path=path) for name, dtype in columns.items()})


def _columns(kind: str) -> Mapping[str, str]:
    if kind not in COLUMNS:
        raise ValueError(f"there is no table {kind!r}; legal values: {', '.join(COLUMNS)}")
    return COLUMNS[kind]


def _typed(texts: pd.Series, *, dtype: str, path: str | Path) -> pd.Series:
    if dtype == TEXT:
        return texts.astype(TEXT)
    values = []
    for line, text in enumerate(texts, start=2):
        try:
            values.append(CONVERTERS[dtype](text))
        except ValueError:
            raise ValueError(f"{path}: line {line}: {texts.name} is {text!r}, expected {dtype}") from None
    return pd.Series(values, name=texts.name, dtype=dtype)


def _float(text: str) -> float:
    return float(text) if text else float("nan")


def _integer_or_missing(text: str) -> Any:
    return int(text) if text else pd.NA


def _flag_or_missing(text: str) -> Any:
    if text not in ("True", "False", ""):
        raise ValueError(text)
    return text == "True" if text else pd.NA


CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    FLOAT: _float,
    INTEGER: int,
    OPTIONAL_INTEGER: _integer_or_missing,
    FLAG: _flag_or_missing,
}
