"""The whole comparison of two sides, and whether B is a regression."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlscaling import metrics, wording
from mlscaling.comparison import differences as what_changed
from mlscaling.comparison.changes import PointChange, change_of, change_to_dict, unlike_tasks
from mlscaling.comparison.differences import Difference
from mlscaling.comparison.matching import Matched, match
from mlscaling.comparison.sides import Side, SidePoint, has_score
from mlscaling.mlcommons import NOT_VERIFIED

SCHEMA_VERSION: Final = 1
COUNTED: Final = ("time", "throughput")
"""Measures that make a regression: how long it takes, and how fast it runs, which varies least from run to run."""
CHANGES_NAMED: Final = 6
"""Changes that a sentence on a regression names; all of them stand before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All that there is to say of two sides."""

    a: Side
    """What is compared with."""
    b: Side
    """What is compared."""
    matched: Matched
    """Which points belong together."""
    differences: tuple[Difference, ...]
    """What changed in environment, hyper-parameters and hardware."""
    contradictions: tuple[str, ...]
    """What the descriptions that hardware is taken from contradict."""
    points: tuple[PointChange, ...]
    """What it did, in the order of A."""
    threshold_percent: float
    """Changes below do not matter in practice."""
    regressions: tuple[str, ...]
    """Sentences; none: no regression."""
    notes: tuple[str, ...]
    """Sentences that whoever shows the numbers must carry."""

    @property
    def num_points(self) -> int:
        """Points that could be tested: the same task, with a score on both sides."""
        return _num_testable(self.matched, (self.a, self.b))

    @property
    def num_tests(self) -> int:
        """Tests that could have made a regression."""
        return len(COUNTED) * self.num_points

    @property
    def titles(self) -> dict[str, str]:
        """Path of a point of A → what a reader should see; with its system where A has several."""
        return _titles(self.a)


def compare(a: Side, b: Side, *, threshold_percent: float, mapping: Mapping[str, str]) -> Comparison:
    """Compare B with A.

    Args:
        a, b: the sides.
        threshold_percent: changes below do not matter in practice.
        mapping: system of A → system of B, where the names do not say it.

    Raises:
        ValueError: nothing can be compared; says what there is on each side.
    """
    matched = match(a, b, mapping=mapping)
    found = tuple(what_changed.differences(matched.pairs))
    num_tests = len(COUNTED) * _num_testable(matched, (a, b))
    points = tuple(
        change_of(pair, (a, b), threshold_percent=threshold_percent, num_tests=num_tests) for pair in matched.pairs
    )
    return Comparison(
        a=a,
        b=b,
        matched=matched,
        differences=found,
        contradictions=(
            *what_changed.contradictions([one for one, _ in matched.pairs], label="A"),
            *what_changed.contradictions([other for _, other in matched.pairs], label="B"),
        ),
        points=points,
        threshold_percent=threshold_percent,
        regressions=tuple(_regressions(points, found, titles=_titles(a))),
        notes=_notes(a, b, matched.pairs),
    )


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """The content of `comparison.json`."""
    sides = {side.label.lower(): side for side in (comparison.a, comparison.b)}
    once = what_changed.stated_once(comparison.matched.pairs)
    return {
        "schema_version": SCHEMA_VERSION,
        **{label: _side(side) for label, side in sides.items()},
        "systems": dict(comparison.matched.systems),
        "changed": [one.to_dict() for one in comparison.differences],
        "stated_by_one_side_only": once,
        "contradictions": list(comparison.contradictions),
        "threshold_percent": comparison.threshold_percent,
        "confidence_percent": 100 * metrics.CONFIDENCE,
        "resamples": metrics.NUM_RESAMPLES,
        "points_tested": comparison.num_points,
        "tests": comparison.num_tests,
        "counted_measures": list(COUNTED),
        "points": [_point(point) for point in comparison.points],
        "only_in_a": [point.planned.path for point in comparison.matched.only_a],
        "only_in_b": [point.planned.path for point in comparison.matched.only_b],
        "regression": bool(comparison.regressions),
        "regressions": list(comparison.regressions),
        "notes": list(comparison.notes),
    }


def _num_testable(matched: Matched, sides: tuple[Side, Side]) -> int:
    return sum(all(map(has_score, pair)) and not unlike_tasks(pair, sides) for pair in matched.pairs)


def _titles(side: Side) -> dict[str, str]:
    several = len(side.systems) > 1
    return {point.planned.path: point.title + (f", {point.planned.system}" if several else "") for point in side.points}


def _regressions(points: Sequence[PointChange], found: Sequence[Difference], *, titles: Mapping[str, str]) -> list[str]:
    """One sentence for each point that is worse; what changed comes first in it."""
    sentences = []
    for point in points:
        worse = [
            f"{measure} {signed(point.changes[measure].percent.value)}"
            for measure in COUNTED
            if point.changes[measure].verdict == "slower"
        ]
        result = f"Slower: {wording.joined(worse)}." if worse else ""
        if has_score(point.a) and not has_score(point.b):
            result = f"A has a score and B has none: {point.b.row['reason']}."
        if result:
            changed = [one.words for one in what_changed.of_point(found, point.a.planned.path)]
            sentences.append(f"{titles[point.a.planned.path]}: {_before(changed)}. {result}")
    return sentences


def _before(changed: Sequence[str]) -> str:
    """What changed, for the beginning of a sentence on a regression."""
    if not changed:
        return "nothing changed that both sides state"
    more = f"; and {len(changed) - CHANGES_NAMED} more" if len(changed) > CHANGES_NAMED else ""
    return f"changed: {'; '.join(changed[:CHANGES_NAMED])}{more}"


def signed(percent: float) -> str:
    """`+1.9 %`, `−35.1 %`, `0.0 %`."""
    if not math.isfinite(percent):
        return wording.MISSING
    text = f"{percent:+.1f} %"
    return text.replace("-", "−") if abs(percent) >= 0.05 else "0.0 %"


def _notes(a: Side, b: Side, pairs: Sequence[tuple[SidePoint, SidePoint]]) -> tuple[str, ...]:
    """Both sides' notes, and that a training beside a published result is none."""
    notes = dict.fromkeys([*a.notes, *b.notes])
    kinds = {point.published for pair in pairs for point in pair}
    if kinds == {True, False}:
        trained = [side.label for side, place in ((a, 0), (b, 1)) if not all(pair[place].published for pair in pairs)]
        notes |= {f"{wording.joined(trained)} was trained, not submitted. {NOT_VERIFIED}": None}
    return tuple(notes)


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "study": side.study,
        "title": side.title,
        "round": side.ruleset,
        "scale": side.scale,
        "systems": side.systems,
    }


def _point(point: PointChange) -> dict[str, Any]:
    return {
        "a": point.a.planned.path,
        "b": point.b.planned.path,
        "workload": point.a.planned.workload,
        "nodes": point.a.planned.nodes,
        "runs": [len(point.a.runs), len(point.b.runs)],
        "verdicts": [point.a.row["verdict"], point.b.row["verdict"]],
        "normalized_time_to_train_min": [_normalized(point.a), _normalized(point.b)],
        "remarks": list(point.remarks),
        "changes": {measure: change_to_dict(change) for measure, change in point.changes.items()},
    }


def _normalized(point: SidePoint) -> float | None:
    """Time by RCP, beside the raw one that the change is of."""
    value = float(point.row["normalized_time_to_train_min"])
    return value if math.isfinite(value) else None
