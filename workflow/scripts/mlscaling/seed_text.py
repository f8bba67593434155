"""Figures that a vendor's text states, each with its source: what cannot be recomputed from published logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mlscaling.configuration import read_yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One number in a text."""

    what: str
    """What it is called, e.g. `revised`; two claims of one name contradict each other."""
    value: float
    """As stated."""
    unit: str
    """Of the value; `minutes`."""
    system: str
    """Folder of the system in the results tree."""
    benchmark: str
    """MLPerf's name."""
    nodes: int
    """Number of nodes."""
    verified: bool
    """Whether MLCommons has verified it."""
    source: str
    """Where it stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorText:
    """A text and its claims."""

    title: str
    """Title."""
    url: str
    """Address."""
    date: str
    """Day of publication, ISO."""
    claims: tuple[Claim, ...]
    """In the order of the file."""


def read_text(path: Path) -> VendorText:
    """Read `title`, `url`, `date` and `claims`.

    Raises:
        ValueError: a key is missing, unknown or of the wrong type; names file, key and what is legal.
    """
    data, problems = read_yaml(path)
    if problems:
        raise ValueError("\n".join(map(str, problems)))
    head = {name: str(_value(data, name, path=path, where="")) for name in ("title", "url", "date")}
    claims = _value(data, "claims", path=path, where="")
    return VendorText(
        **head, claims=tuple(_claim(claim, path=path, where=f"claims[{n}].") for n, claim in enumerate(claims))
    )


def _claim(values: Mapping[str, Any], *, path: Path, where: str) -> Claim:
    known = {field.name: field for field in fields(Claim)}
    if unknown := sorted(values.keys() - known.keys()):
        raise ValueError(f"{path}: {where}{unknown[0]} is unknown; legal: {', '.join(known)}")
    given = {name: _value(values, name, path=path, where=where) for name in known}
    for name, kind in (("value", (int, float)), ("nodes", int), ("verified", bool)):
        if not isinstance(given[name], kind):
            raise ValueError(f"{path}: {where}{name} is {given[name]!r}; expected {known[name].type}")
    return Claim(**given)


def _value(values: Mapping[str, Any], name: str, *, path: Path, where: str) -> Any:
    if name not in values:
        raise ValueError(f"{path}: {where}{name} is missing")
    return values[name]
