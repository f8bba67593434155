"""Which runs are submitted where there are more than the round asks for: N consecutive ones of M.

Source: MLPerf training_rules, section 12.1 "Scoring". A submitter may run M > N runs as a group and take the N
consecutive ones closest to the median result: every window of N consecutive runs is scored (Olympic mean), a failed
run counts as infinite time, an invalid window as an infinite score, and the window with the median score is the one.
If that is infinite, the whole result is invalid. "Consecutive" is an objective order that the submitter cannot choose.

What the rule leaves open is decided here against the submitter. The order is that of the starts, and every attempt at a
run is one of the M: a run that was tried again, or whose log was deleted and trained again, cannot hide its first
outcome. Of an even number of windows, two lie around the median equally near; the slower one is taken. Of windows with
equal scores the earliest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling import metrics

RULE: Final = "MLPerf training_rules, section 12.1 Scoring"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One run that was started, with whatever came of it."""

    run: int
    """Zero-based run of the study."""
    attempt: int = 0
    """Zero-based attempt at it; 0 for published logs."""
    started: float
    """When it started, in one unit for all candidates of a point; NaN where nobody knows."""
    time_min: float
    """Time to train, minutes; infinite where it did not converge, does not comply, or failed."""
    log: Path | None = None
    """Its MLPerf log; None where it left none."""
    reason: str = ""
    """Why its time is infinite, in words; empty where it is not."""

    @property
    def name(self) -> str:
        """`run 3`, `run 3 attempt 1`."""
        return f"run {self.run}" + (f" attempt {self.attempt}" if self.attempt else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The runs to submit."""

    chosen: tuple[Candidate, ...]
    """In the order of runs and attempts; number k of them is submitted as `result_{k}.txt`."""
    num_candidates: int
    """M: all runs that were started."""
    window: int
    """Number of the chosen window, from 0, in the order of the starts."""
    scores: tuple[float, ...]
    """Olympic mean of each window, minutes; infinite where it would be no valid result."""

    @property
    def score(self) -> float:
        """Olympic mean of the chosen runs, minutes; infinite where the result is invalid."""
        return self.scores[self.window]

    def to_dict(self) -> dict[str, Any]:
        """As in `package_check.json`; infinite scores are None."""
        return {
            "rule": RULE,
            "runs": self.num_candidates,
            "windows": len(self.scores),
            "window": self.window,
            "scores_min": [score if math.isfinite(score) else None for score in self.scores],
            "chosen": [{"run": one.run, "attempt": one.attempt, "reason": one.reason} for one in self.chosen],
        }


def select(candidates: Sequence[Candidate], *, required: int, trimmed: int) -> Selection:
    """The window of the median score; all candidates where there are no more than required.

    Args:
        candidates: every run that was started; in any order.
        required: N, what the round asks for.
        trimmed: runs dropped at each end by the Olympic mean.

    Raises:
        ValueError: there are no candidates.
    """
    if not candidates:
        raise ValueError("there is no run to select from")
    ordered = sorted(candidates, key=_start)
    size = min(required, len(ordered))
    windows = [ordered[first : first + size] for first in range(len(ordered) - size + 1)]
    scores = [_score(window, trimmed=trimmed) for window in windows]
    # Of an even number of windows the slower of the two in the middle; sorting keeps the earliest of equals first.
    median = sorted(scores)[len(scores) // 2]
    number = scores.index(median)
    chosen = sorted(windows[number], key=lambda one: (one.run, one.attempt))
    return Selection(
        chosen=tuple(chosen), num_candidates=len(ordered), window=number, scores=tuple(scores)
    )  # fmt: skip


def _start(candidate: Candidate) -> tuple[float, int, int]:
    """Starts that nobody knows come last, in the order of the runs."""
    started = math.inf if math.isnan(candidate.started) else candidate.started
    return started, candidate.run, candidate.attempt


def _score(window: Sequence[Candidate], *, trimmed: int) -> float:
    mean = float(metrics.olympic_mean([one.time_min for one in window], trimmed=trimmed))
    return math.inf if math.isnan(mean) else mean
