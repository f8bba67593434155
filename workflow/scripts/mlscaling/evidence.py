"""Verdicts and attempts as earlier rules left them, keyed by the point and run that their paths name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def read_compliance(paths: Iterable[str | Path]) -> dict[tuple[str, int], Record]:
    """Contents of `…/{system}/{workload}/n{nodes}/compliance_{run}.json` by point path and run."""
    return {(_point_path(path), _number(path, "compliance_")): read_record(path) for path in map(Path, paths)}


def read_rcp(paths: Iterable[str | Path]) -> dict[str, Record]:
    """Contents of `…/{system}/{workload}/n{nodes}/rcp.json` by point path."""
    return {_point_path(path): read_record(path) for path in map(Path, paths)}


def read_runs(paths: Iterable[str | Path]) -> dict[tuple[str, int], Record]:
    """Contents of `…/{system}/{workload}/n{nodes}/run_{run}.json` by point path and run."""
    return {(_point_path(path), _number(path, "run_")): read_record(path) for path in map(Path, paths)}


def read_attempts(folder: str | Path) -> dict[tuple[str, int], list[Record]]:
    """Records `{system}/{workload}/n{nodes}/run_{run}/attempt_{k}/attempt.json` by point path and run, in their order.

    A study without attempts, e.g. of imported logs, has no such folder: no records then.
    """
    attempts: dict[tuple[str, int], list[Record]] = {}
    found = Path(folder).glob("*/*/n*/run_*/attempt_*/attempt.json")
    for path in sorted(found, key=lambda path: (path.parts, _number(path.parent, "attempt_"))):
        run_folder = path.parent.parent
        key = _point_path(run_folder), _number(run_folder, "run_")
        attempts.setdefault(key, []).append(read_record(path))
    for records in attempts.values():
        records.sort(key=lambda record: int(record["attempt"]))
    return attempts


def _point_path(path: Path) -> str:
    return "/".join(path.parts[-4:-1])


def _number(path: Path, prefix: str) -> int:
    digits = path.name.removesuffix(".json").removeprefix(prefix)
    if not digits.isdigit():
        raise ValueError(f"{path}: expected a name of the form {prefix}<number>")
    return int(digits)


def read_record(path: Path) -> Record:
    """A JSON object.

    Raises:
        ValueError: it is none; names the file and line.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(record).__name__}")
    return record
