"""Two versions of a file, value by value: what a bundle holds against what follows from its evidence."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from mlscaling.bundles import environment

TOLERANCE: Final = 1e-9
"""Relative; other versions of numpy or another processor may round otherwise in the last digits, a change is larger."""
_NUMBERS: Final = ("python", "numpy", "pandas", "scipy")
_DRAWN: Final = (*_NUMBERS, "matplotlib", "seaborn")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One value that does not hold."""

    file: str
    """File of the bundle."""
    where: str = ""
    """Which value in it: key, or line and column; empty for the file as a whole."""
    found: str = ""
    """What the bundle has."""
    expected: str = ""
    """What follows from the evidence."""
    message: str = ""
    """What is wrong, where it is no pair of values."""

    def __str__(self) -> str:
        place = f"{self.file}: {self.where}" if self.where else self.file
        return f"{place}: {self.message or f'is {_shown(self.found)}, follows as {_shown(self.expected)}'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """One value that holds."""

    where: str
    """As of a difference."""
    text: str
    """The value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Makers:
    """Versions that made the bundle and those that make its files anew."""

    recorded: Mapping[str, str]
    """In the bundle."""
    here: Mapping[str, str]
    """Here."""

    def differing(self) -> dict[str, tuple[str, str]]:
        """Package → version recorded and here, where they differ."""
        names = [*environment.MAKERS, "machine"]
        pairs = {name: (self.recorded.get(name, "unknown"), self.here.get(name, "unknown")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def same(self, *names: str) -> bool:
        """Whether the packages, and the machine's architecture, are the same."""
        return not self.differing().keys() & {*names, "machine"}

    def explains(self, name: str) -> str:
        """Why a file may be other bytes here though nothing was changed; empty if there is no such reason."""
        suffix = PurePath(name).suffix
        needed = _DRAWN if suffix in (".svg", ".png") else ("rocrate",) if name.startswith("ro-crate") else ()
        others = [f"{maker} {old} there, {new} here" for maker, (old, new) in self.differing().items()]
        return ", ".join(others) if needed and not self.same(*needed) else ""

    def equal(self, expected: str, found: str) -> bool:
        """Whether two values are one: the same text, the recorded version of a checker, or numbers but for rounding."""
        if expected == found:
            return True
        checker = (self.here.get("mlperf-logging"), self.recorded.get("mlperf-logging"))
        if (expected, found) == checker:
            return True
        return not self.same(*_NUMBERS) and _close(expected, found)


def values_of(name: str, content: bytes) -> dict[str, str]:
    """Where → value as text, for every value of a file.

    Raises:
        ValueError: the file is not of the kind that its name says.
    """
    suffix = PurePath(name).suffix
    if suffix == ".json":
        return dict(_leaves(json.loads(content)))
    text = content.decode("utf-8")
    if suffix in (".csv", ".tsv"):
        return dict(_cells(text, delimiter="," if suffix == ".csv" else "\t"))
    return {f"line {number}": line for number, line in enumerate(text.split("\n"), start=1)}


def compared(name: str, expected: bytes, found: bytes, makers: Makers) -> tuple[list[Value], list[Difference]]:
    """The values of a file that hold, and those that do not."""
    if PurePath(name).suffix in (".png", ".svg"):
        if expected == found:
            return [Value(where="", text=f"{len(found)} bytes")], []
        return [], [Difference(file=name, message="is not the picture that follows from the tables")]
    try:
        wanted, there = values_of(name, expected), values_of(name, found)
    except (ValueError, RecursionError) as error:
        return [], [Difference(file=name, message=f"cannot be read: {error}")]
    holds, differs = [], []
    for where in dict.fromkeys([*wanted, *there]):
        one, other = wanted.get(where), there.get(where)
        if one is not None and other is not None and makers.equal(one, other):
            holds.append(Value(where=where, text=other))
        else:
            differs.append(Difference(file=name, where=where, found=_or_nothing(other), expected=_or_nothing(one)))
    return holds, differs


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every scalar under its path; an empty list or object is one, too."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, json.dumps(value)


def _cells(text: str, *, delimiter: str) -> Iterator[tuple[str, str]]:
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    header = rows[0] if rows else []
    yield "line 1", delimiter.join(header)
    for line, row in enumerate(rows[1:], start=2):
        for column in range(max(len(row), len(header))):
            name = header[column] if column < len(header) else f"column {column + 1}"
            yield f"line {line}, {name}", row[column] if column < len(row) else ""


def _close(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=TOLERANCE)
    except ValueError:
        return False


def _or_nothing(text: str | None) -> str:
    return "nothing" if text is None else text


def _shown(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}…"
