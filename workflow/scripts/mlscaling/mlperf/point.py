"""What can only be seen across the runs of a scale point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlscaling.mlperf.findings import Finding
from mlscaling.mlperf.summary import RunSummary


def check_runs(summaries: Sequence[RunSummary]) -> tuple[Finding, ...]:
    """What can only be seen across the runs of a point: equal logs, equal seeds, unequal settings."""
    return (*check_identical(summaries), *check_seeds(summaries), *check_equal_settings(summaries))


def check_identical(summaries: Sequence[RunSummary]) -> Iterator[Finding]:
    """The same bytes counted as two runs."""
    for sha256, runs in _groups(summaries, lambda summary: summary.sha256).items():
        if sha256 and len(runs) > 1:
            yield _error("identical_logs", f"runs {runs} are the same file, sha256 {sha256[:12]}…")


def check_seeds(summaries: Sequence[RunSummary]) -> Iterator[Finding]:
    """Runs that share all their seeds are one experiment, not several (seed rules of mlcommons/logging #85)."""
    for seeds, runs in _groups(summaries, lambda summary: summary.seeds).items():
        if seeds and len(runs) > 1:
            yield _error("seed_repeated", f"runs {runs} have the same seeds {list(seeds)}")


def check_equal_settings(summaries: Sequence[RunSummary]) -> Iterator[Finding]:
    """A point is one benchmark at one global batch size in one division."""
    for name in ("benchmark", "division", "global_batch_size"):
        groups = _groups(summaries, lambda summary, name=name: _shown(getattr(summary, name)))  # type: ignore[misc]
        if len(groups) > 1:
            values = "; ".join(f"{value or 'none'} in runs {runs}" for value, runs in groups.items())
            yield _error("mixed_runs", f"{name} differs between the runs of the point: {values}")


def _groups(summaries: Sequence[RunSummary], key: Callable[[RunSummary], Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = defaultdict(list)
    for run, summary in enumerate(summaries):
        groups[key(summary)].append(run)
    return groups


def _error(check: str, message: str) -> Finding:
    return Finding(check=check, severity="error", message=message)


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
