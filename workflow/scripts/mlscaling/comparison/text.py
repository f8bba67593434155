"""A comparison in a terminal: what changed, then what it did, then what to make of it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mlscaling import metrics, wording
from mlscaling.comparison.changes import MEASURES, Change, PointChange
from mlscaling.comparison.compare import COUNTED, Comparison, signed
from mlscaling.comparison.differences import CATEGORIES, at_points, stated_once
from mlscaling.comparison.sides import Side, SidePoint

WIDTH: Final = 120
NAMES_SHOWN: Final = 12
"""Settings of one side only that are named; the JSON has all."""
HEADERS: Final = ("point", "minutes, A → B", *MEASURES, "time is")


def comparison_text(comparison: Comparison) -> str:
    """The whole text, at most 120 columns wide but for names and values that are longer."""
    lines = [
        "B against A",
        *(_side(side) for side in (comparison.a, comparison.b)),
        "",
        "What changed",
        *_changed(comparison),
        "",
        *_table(comparison),
        "",
        *_wrapped(_unmatched(comparison)),
        *_wrapped(_remarks(comparison)),
        *_wrapped([_tested(comparison)]),
        "",
        *_wrapped(_conclusion(comparison)),
        *(["", *_wrapped(comparison.notes)] if comparison.notes else []),
    ]
    return "\n".join(lines) + "\n"


def _side(side: Side) -> str:
    return f"{side.label}  {side.name}: {side.title} (round {side.ruleset}, scale {side.scale})"


def _changed(comparison: Comparison) -> Iterator[str]:
    for category in CATEGORIES:
        mine = [one for one in comparison.differences if one.category == category]
        if not mine:
            yield f"  {category}: nothing, as far as both sides state it"
            continue
        yield f"  {category}"
        for one in mine:
            where = at_points(one, num_pairs=len(comparison.points), titles=comparison.titles)
            yield from _wrapped([one.words + (f" (only at {where})" if where else "")], indent="    ")
    for side, names in stated_once(comparison.matched.pairs).items():
        if names:
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            text = f"stated by {side.upper()} only: {', '.join(names[:NAMES_SHOWN])}{more}"
            yield from _wrapped([text], indent="  ")
    for text in comparison.contradictions:
        yield from _wrapped([f"doubtful: {text}"], indent="  ")


def _table(comparison: Comparison) -> Iterator[str]:
    rows = [HEADERS, *(_cells(point, comparison.titles[point.a.planned.path]) for point in comparison.points)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        cells[-1] = row[-1]
        yield "  ".join(cells).rstrip()


def _cells(point: PointChange, title: str) -> tuple[str, ...]:
    time = point.changes["time"]
    minutes = " → ".join(_minutes(value) for value in (time.a, time.b))
    return (title, minutes, *(_change(change) for change in point.changes.values()), time.verdict)


def _minutes(value: float) -> str:
    return f"{value:,.3f}" if value == value and value >= 1 else wording.significant(value, 4)


def _change(change: Change) -> str:
    percent = change.percent
    if percent.low != percent.low or percent.low == percent.high:  # no score, or runs that do not vary
        return signed(percent.value)
    low, high = (f"{end:+.1f}".replace("-", "−") for end in (percent.low, percent.high))
    return f"{signed(percent.value)} ({low} to {high})"


def _unmatched(comparison: Comparison) -> Iterator[str]:
    for label, points in (("A", comparison.matched.only_a), ("B", comparison.matched.only_b)):
        if points:
            yield f"Only in {label}: {', '.join(_path(point) for point in points)}."


def _path(point: SidePoint) -> str:
    return f"{point.title} ({point.planned.system})"


def _remarks(comparison: Comparison) -> Iterator[str]:
    for point in comparison.points:
        for remark in point.remarks:
            yield f"{comparison.titles[point.a.planned.path]}: {remark}."
        for measure in COUNTED:
            change = point.changes[measure]
            if change.verdict in ("faster", "slower") and not change.holds_for_all:
                yield (
                    f"{comparison.titles[point.a.planned.path]}: the change of {measure} is significant by itself, not "
                    f"when all {comparison.num_tests} tests are held to 5 % together."
                )


def _tested(comparison: Comparison) -> str:
    num = comparison.num_points
    tests = (
        f"{num} point{'s' * (num != 1)} tested, {wording.joined(list(COUNTED))} of each: {comparison.num_tests} tests"
    )
    return (
        f"{tests}; of tests without any change about one in twenty looks significant. Changes are of Olympic means "
        "(fastest and slowest runs dropped), not normalised by RCP; convergence is samples to the target. In "
        f"brackets: 95 % bootstrap interval over runs, {metrics.NUM_RESAMPLES:,} resamples. Changes below "
        f"{comparison.threshold_percent:g} % do not matter here."
    )


def _conclusion(comparison: Comparison) -> Iterator[str]:
    if comparison.regressions:
        yield f"Regression at {len(comparison.regressions)} of {len(comparison.points)} points."
        yield from comparison.regressions
        return
    if not comparison.num_points:
        yield "Nothing could be tested: no point has a score on both sides for the same task."
        return
    verdicts = {name: Counter(point.changes[name].verdict for point in comparison.points) for name in COUNTED}
    if set().union(*verdicts.values()) == {"not significant"}:
        yield "No change: nothing is significantly faster or slower."
        return
    yield "No regression."
    for name, counts in verdicts.items():
        shown = wording.joined([f"{verdict} at {count}" for verdict, count in counts.items()])
        yield f"{name}: {shown} of {len(comparison.points)} point{'s' * (len(comparison.points) > 1)}."


def _wrapped(paragraphs: Iterable[str], *, indent: str = "") -> Sequence[str]:
    return [
        line
        for text in paragraphs
        for line in textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
    ]
