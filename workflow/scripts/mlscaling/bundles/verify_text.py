"""What a verification found, for the terminal and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mlscaling.bundles.verify import GROUPS, Verification

MAX_SHOWN: Final = 60
"""Differences on the terminal; one changed log moves every interval of its curve."""


def verification_text(result: Verification, *, archive: Path, values: bool = False) -> str:
    """Lines for the terminal.

    Args:
        result: what was found.
        archive: the bundle.
        values: list every value that holds, too.
    """
    lines = [*_head(result, archive), "", *_groups(result, values=values), "", *_tail(result)]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """A bundle's words must not steer the terminal that they are shown on."""
    return "".join(character if character.isprintable() else "?" for character in line)


def verification_record(result: Verification) -> dict[str, Any]:
    """The same as JSON, with every value."""
    return {
        "schema_version": 1,
        "passed": result.passed,
        "study": result.about.get("name"),
        "status": result.about.get("status"),
        "missing_runs": result.about.get("missing_runs"),
        "commit": result.about.get("commit"),
        "commit_here": result.commit_here,
        "num_hashes": result.num_hashes,
        "holds": {name: {value.where: value.text for value in held} for name, held in sorted(result.holds.items())},
        "differences": [dataclasses.asdict(difference) for difference in result.differences],
        "notes": result.notes,
    }


def _head(result: Verification, archive: Path) -> Iterator[str]:
    about = result.about
    missing = about.get("missing_runs") or []
    runs = f"{about.get('num_runs')} runs" if not missing else f"{len(missing)} of {about.get('num_runs')} runs missing"
    yield f"{archive}: study {about.get('name')}, {str(about.get('status')).upper()}, {runs}"
    made_by = f"{_commit(about.get('commit'))}{' with changes' if about.get('dirty') else ''}"
    yield f"  made by commit {made_by}, verified by commit {_commit(result.commit_here)}"
    for run in missing:
        yield f"  missing: {run.get('point')} run {run.get('run')}, {run.get('reason')}"


def _commit(value: Any) -> str:
    return str(value)[:12] if value else "unknown"


def _groups(result: Verification, *, values: bool) -> Iterator[str]:
    yield f"  {'hashes':<24} {result.num_hashes:>5} files hold"
    for prefix, title in GROUPS.items():
        files = {name: held for name, held in sorted(result.holds.items()) if _group(name) == prefix}
        if files:
            yield f"  {title:<24} {len(files):>5} files made anew, {sum(map(len, files.values())):,} values hold"
        if values:
            yield from _every_value(files)


def _group(name: str) -> str:
    return next(prefix for prefix in GROUPS if name.startswith(prefix))


def _every_value(files: Mapping[str, Any]) -> Iterator[str]:
    for name, held in files.items():
        for value in held:
            yield f"    holds  {name}: {value.where}{' = ' if value.where else ''}{value.text}"


def _tail(result: Verification) -> Iterator[str]:
    for note in result.notes:
        yield f"note: {note}"
    shown = result.differences[:MAX_SHOWN]
    yield from (f"DIFFERS  {difference}" for difference in shown)
    if len(result.differences) > len(shown):
        yield f"and {len(result.differences) - len(shown)} more differences; --json FILE writes all of them"
    total = sum(map(len, result.holds.values()))
    if result.passed:
        yield f"all {total:,} values hold"
    else:
        files = len({difference.file for difference in result.differences})
        yield f"NOT VERIFIED: {len(result.differences)} differences in {files} files; {total:,} values hold"
