"""The change of a point's time, throughput and convergence, each with a 95 % interval and a practical threshold.

A change is the ratio of the Olympic means of the two sides, less one. Runs are resampled on each side by itself, time
and samples of a run together, so that time = samples to converge ÷ throughput holds for every resample. Of runs without
any change, the nominal 95 % intervals of the ratio contain it in 93 % of the cases with 5 runs on each side, in 96 %
with 10, in 93 % with 40 (1,500 simulations each, normally distributed times).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mlscaling import metrics, scoring, wording
from mlscaling.comparison.sides import Side, SidePoint
from mlscaling.metrics import CONFIDENCE, Array, Interval

Verdict = Literal["faster", "slower", "below the threshold", "not significant", "no score", "not comparable"]
MEASURES: Final[Mapping[str, tuple[str, int]]] = {
    "time": ("time_to_train_min", -1),
    "throughput": ("throughput_samples_per_s", 1),
    "convergence": ("samples_to_converge", -1),
}
"""Measure → its column, and 1 where more is better, -1 where less is; convergence counts samples to the target."""
THRESHOLD_PERCENT: Final = 2.0
"""Default threshold; MLPerf itself says of its imaging results that they vary by about 2.5 % (results of round 1.1)."""
SAME_DATA: Final = 0.05
"""Share by which an epoch may differ: submitters of RNN-T leave out utterances that are longer than they can hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """How one measure of a point changed from A to B."""

    measure: str
    """Key of `MEASURES`."""
    a: float
    """Olympic mean of A; throughput is samples ÷ time of the Olympic means."""
    b: float
    """The same of B."""
    ratio: Interval
    """B ÷ A with its 95 % interval."""
    verdict: Verdict
    """What it comes to."""
    holds_for_all: bool
    """It is still significant when all tests of the comparison are held to 5 % together (Bonferroni)."""

    @property
    def percent(self) -> Interval:
        """The change in percent."""
        return Interval(**{end: 100 * (getattr(self.ratio, end) - 1) for end in ("value", "low", "high")})


@dataclass(frozen=True, kw_only=True, slots=True)
class PointChange:
    """One pair of points."""

    a: SidePoint
    """Point of A."""
    b: SidePoint
    """Point of B."""
    changes: Mapping[str, Change]
    """By measure, in the order of `MEASURES`."""
    remarks: tuple[str, ...]
    """What a reader must know of the pair: the same logs, unlike tasks, points that are not valid."""


def change_of(
    pair: tuple[SidePoint, SidePoint], sides: tuple[Side, Side], *, threshold_percent: float, num_tests: int
) -> PointChange:
    """The changes of one pair.

    Args:
        pair: point of A, point of B.
        sides: A and B.
        threshold_percent: changes smaller than this do not matter in practice.
        num_tests: tests of the whole comparison, for `Change.holds_for_all`.
    """
    means = [_means(point, side=side) for point, side in zip(pair, sides, strict=True)]
    unlike = unlike_tasks(pair, sides)
    changes = {
        measure: _change(
            measure,
            [of_side[column] for of_side in means],
            better=better,
            threshold=threshold_percent / 100,
            num_tests=num_tests,
            comparable=not unlike,
        )
        for measure, (column, better) in MEASURES.items()
    }
    return PointChange(a=pair[0], b=pair[1], changes=changes, remarks=(*unlike, *_remarks(pair, sides)))


def _means(point: SidePoint, *, side: Side) -> dict[str, Array]:
    """As `scoring`, but with draws of each side's own: one study against itself must not draw the same runs twice."""
    means = dict(scoring.resampled_point(point.runs, point.planned, study=f"comparison, side {side.label}"))
    means["throughput_samples_per_s"] = means["samples_to_converge"] / (60 * means["time_to_train_min"])
    return means


def _change(
    measure: str, sides: Sequence[Array], *, better: int, threshold: float, num_tests: int, comparable: bool
) -> Change:
    a, b = sides
    ratio = b / a
    interval = metrics.interval(ratio)
    jointly = metrics.interval(ratio, confidence=1 - (1 - CONFIDENCE) / max(num_tests, 1))
    return Change(
        measure=measure,
        a=float(a[0]),
        b=float(b[0]),
        ratio=interval,
        verdict=_verdict(interval, better=better, threshold=threshold) if comparable else "not comparable",
        holds_for_all=jointly.significant,
    )


def _verdict(ratio: Interval, *, better: int, threshold: float) -> Verdict:
    if math.isnan(ratio.value):
        return "no score"
    if not ratio.significant:
        return "not significant"
    if abs(ratio.value - 1) < threshold:
        return "below the threshold"
    return "faster" if (ratio.value > 1) == (better > 0) else "slower"


def unlike_tasks(pair: tuple[SidePoint, SidePoint], sides: tuple[Side, Side]) -> list[str]:
    """Why the two did not do the same task; empty where they did."""
    (a, b), (of_a, of_b) = (point.planned for point in pair), sides
    found = []
    if of_a.scale != of_b.scale:
        found.append(f"not the same task: scale {of_a.scale} in A, {of_b.scale} in B")
    if a.target != b.target:
        found.append(f"not the same task: target {a.target:g} in A, {b.target:g} in B")
    sizes = [_samples_of_epoch(point) for point in pair]
    if abs(sizes[0] - sizes[1]) > SAME_DATA * max(sizes):  # False where one is not known
        found.append(f"not the same task: an epoch has {sizes[0]:,.0f} samples in A, {sizes[1]:,.0f} in B")
    return found


def _samples_of_epoch(point: SidePoint) -> float:
    """As planned, else as the logs say; NaN where samples are counted and not epochs."""
    if point.row["convergence_unit"] != "epochs":
        return math.nan
    logged = [summary.train_samples for summary in point.measured.summaries]
    return float(point.planned.train_samples or (logged[0] if logged else math.nan))


def _remarks(pair: tuple[SidePoint, SidePoint], sides: tuple[Side, Side]) -> list[str]:
    remarks = []
    logs = [{summary.sha256 for summary in point.measured.summaries} - {""} for point in pair]
    if logs[0] and logs[0] == logs[1]:
        remarks.append("the same logs on both sides")
    if sides[0].ruleset != sides[1].ruleset:
        remarks.append(f"round {sides[0].ruleset} in A, {sides[1].ruleset} in B")
    validity: dict[str, list[str]] = {}
    for point, side in zip(pair, sides, strict=True):
        verdict, reason = str(point.row["verdict"]), str(point.row["reason"])
        if verdict != "valid":
            words = reason if reason.startswith(verdict) else f"{verdict}, {reason}"
            validity.setdefault(words, []).append(side.label)
    return [*remarks, *(f"{wording.joined(labels)} {words}" for words, labels in validity.items())]


def change_to_dict(change: Change) -> dict[str, Any]:
    """As in `comparison.json`; missing numbers are None."""
    percent = change.percent
    return {
        "a": _number(change.a),
        "b": _number(change.b),
        "change_percent": _number(percent.value),
        "low_percent": _number(percent.low),
        "high_percent": _number(percent.high),
        "verdict": change.verdict,
        "significant_for_all_tests": change.holds_for_all,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
