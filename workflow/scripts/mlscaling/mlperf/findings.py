"""Findings: what a check says about a log or a point, with the line that it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

Severity = Literal["error", "warning", "note"]

_KEPT_PER_CHECK = 20
"""Findings of one kind that are kept for one log; a log of noise must not become a report of noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One statement of one check."""

    check: str
    """Name of the check, stable across versions; what a table or a test filters by."""
    severity: Severity
    """`error` fails the verdict, `warning` asks for a look, `note` explains."""
    message: str
    """A sentence that names the values and what is legal."""
    line: int | None = None
    """Physical line of the log, from one; None where the finding is about no single line."""

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object in the order of the verdict files."""
        return {"check": self.check, "severity": self.severity, "line": self.line, "message": self.message}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        return cls(**values)


class FindingList:
    """Collects findings while a log streams by; keeps the first of each kind and counts the rest."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()

    def add(self, check: str, severity: Severity, message: str, *, line: int | None = None) -> None:
        """Keep a finding, or only count it where there are many of its kind."""
        self._counts[check, severity] += 1
        if self._counts[check, severity] <= _KEPT_PER_CHECK:
            self._kept.append(Finding(check=check, severity=severity, message=message, line=line))

    def result(self) -> tuple[Finding, ...]:
        """Everything kept, and one finding for each kind that had more."""
        surplus = [
            Finding(check=check, severity=severity, message=f"{count - _KEPT_PER_CHECK} more of this kind")
            for (check, severity), count in self._counts.items()
            if count > _KEPT_PER_CHECK
        ]
        return (*self._kept, *surplus)


def has_errors(findings: Iterable[Finding]) -> bool:
    """True where at least one finding fails the verdict."""
    return any(finding.severity == "error" for finding in findings)
