"""Change of B against A at each point: time to train, throughput and convergence.

Markers are the change of the Olympic means (fastest and slowest runs dropped), not normalised by RCP; whiskers are 95 %
bootstrap intervals over runs. Left of zero B takes less time, has less throughput, needs fewer samples to the target.
The grey band is the threshold below which a change does not matter. Half-filled points have fewer runs than the round
requires on one side, hollow points are invalid on one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mlscaling import wording
from mlscaling.comparison.changes import MEASURES, PointChange
from mlscaling.comparison.compare import CHANGES_NAMED, COUNTED, Comparison, signed
from mlscaling.planned import Planned
from mlscaling.plots import Context, _frame, style
from mlscaling.tables import VERDICTS, write_table

TITLE: Final = "Change of B against A"
NAMES: Final = {"time": "time to train", "throughput": "throughput", "convergence": "samples to target"}
ROW_INCHES: Final = 0.3
STEM: Final = "comparison"


def write_figure(comparison: Comparison, folder: Path) -> None:
    """Write `comparison.{svg,png,csv,rst}`; the same results give the same bytes."""
    from mlscaling.files import write_text

    figure = draw(comparison)
    for form in ("svg", "png"):
        style.save(figure, folder / f"{STEM}.{form}", form=form)
    write_table(data(comparison), folder / f"{STEM}.csv")
    write_text(caption(comparison), folder / f"{STEM}.rst")


def data(comparison: Comparison) -> pd.DataFrame:
    """One row per point and measure."""
    rows = [
        {
            "point": point.a.planned.path,
            "point_b": point.b.planned.path,
            "measure": change.measure,
            "a": change.a,
            "b": change.b,
            "change_percent": change.percent.value,
            "low_percent": change.percent.low,
            "high_percent": change.percent.high,
            "verdict": change.verdict,
            "validity": _validity(point),
        }
        for point in comparison.points
        for change in point.changes.values()
    ]
    return pd.DataFrame(rows)


def draw(comparison: Comparison) -> Figure:
    """A row for each point, axes for each measure."""
    rows = data(comparison)
    with style.theme():
        figure, facets = _frame.framed(
            TITLE,
            context=_context(comparison),
            body_height=0.9 + ROW_INCHES * len(comparison.points),
            handles=_handles(rows, comparison),
            notes=_notes(comparison),
            grid=(1, len(MEASURES)),
        )
        for axes, measure in zip(facets, MEASURES, strict=True):
            _draw_measure(axes, rows[rows["measure"] == measure], comparison, measure=measure)
        labels = [comparison.titles[point.a.planned.path] for point in comparison.points]
        facets[0].set_yticks(range(len(labels)), labels)
        for axes in facets[1:]:
            axes.set_yticks(range(len(labels)), [""] * len(labels))
        return figure


def caption(comparison: Comparison) -> str:
    """Each change in a sentence."""
    facts = []
    for point in comparison.points:
        words = [
            f"{NAMES[change.measure]} {signed(change.percent.value)}"
            + (
                f" (95 % {signed(change.percent.low)} to {signed(change.percent.high)}, {change.verdict})"
                if change.percent.low == change.percent.low
                else f" ({change.verdict})"
            )
            for change in point.changes.values()
        ]
        facts.append(f"{comparison.titles[point.a.planned.path]}: {', '.join(words)}.")
    facts += [f"Changed: {one.words}." for one in comparison.differences]
    return _frame.caption(__doc__, facts=facts, context=_context(comparison))


def _draw_measure(axes: Axes, rows: pd.DataFrame, comparison: Comparison, *, measure: str) -> None:
    threshold = comparison.threshold_percent
    axes.axvspan(-threshold, threshold, color=style.STRIP, zorder=0)
    axes.axvline(0, color=style.GREY, linewidth=1, zorder=1)
    for place, (point, (_, row)) in enumerate(zip(comparison.points, rows.iterrows(), strict=True)):
        if pd.isna(row["change_percent"]):
            look: dict[str, Any] = {"ha": "center", "va": "center", "style": "italic", "zorder": 4}
            axes.text(0, place, "no score", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, **look)
            continue
        _mark(axes, row, place=place, workload=point.a.planned.workload)
    ends = rows[["change_percent", "low_percent", "high_percent"]].abs().max(axis=None)
    widest = max(1.15 * ends if ends == ends else 0, 1.6 * threshold, 1)
    axes.set_xlim(-widest, widest)
    axes.set_ylim(len(comparison.points) - 0.5, -0.5)
    axes.set_title(NAMES[measure], loc="left", weight="bold")
    axes.set_xlabel("B is faster →" if MEASURES[measure][1] > 0 else "← B is faster")
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10], symmetric=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %".replace("-", "−") if value else "0"))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _mark(axes: Axes, row: pd.Series, *, place: int, workload: str) -> None:
    colour = style.colour(workload)
    value, low, high = row["change_percent"], row["low_percent"], row["high_percent"]
    if high > low:
        ends = [[max(value - low, 0)], [max(high - value, 0)]]
        axes.errorbar(value, place, xerr=ends, fmt="none", color=colour, linewidth=1.1, capsize=2.5, zorder=3)
    look: dict[str, Any] = {"marker": style.marker(workload), "markersize": 6.5, "linestyle": ""}
    axes.plot(value, place, color="white", zorder=3.5, **look)
    axes.plot(value, place, zorder=4, **look, **style.verdict_fill(row["validity"], colour=colour))


def _validity(point: PointChange) -> str:
    """Verdict of the worse of the two points."""
    return max((str(side.row["verdict"]) for side in (point.a, point.b)), key=VERDICTS.index)


def _context(comparison: Comparison) -> Context:
    """Systems of both sides, each with its side, and the sentences that both must carry."""
    points = [
        (side.label, point)
        for side, points in (
            (comparison.a, [point.a.planned for point in comparison.points]),
            (comparison.b, [point.b.planned for point in comparison.points]),
        )
        for point in points
    ]
    title = f"{comparison.a.title} and {comparison.b.title}"
    planned = Planned(study=STEM, title=title, points=tuple(p for _, p in points), notes=comparison.notes)
    return Context(planned=planned)


def _notes(comparison: Comparison) -> Sequence[str]:
    sides = [
        f"{side.label}: {side.title}, {side.name}, {wording.joined(systems)}."
        for side, systems in (
            (comparison.a, list(comparison.matched.systems)),
            (comparison.b, list(comparison.matched.systems.values())),
        )
    ]
    changed = [one.words for one in comparison.differences if one.kind != "host_name"]
    words = f"Changed: {'; '.join(changed[:CHANGES_NAMED])}"
    words += (f"; and {len(changed) - CHANGES_NAMED} more" if len(changed) > CHANGES_NAMED else "") + "."
    only = [
        f"Only in {label}: {', '.join(point.planned.path for point in points)}."
        for label, points in (("A", comparison.matched.only_a), ("B", comparison.matched.only_b))
        if points
    ]
    num = comparison.num_points
    tested = (
        f"{num} point{'s' * (num != 1)}, {comparison.num_tests} tests of {wording.joined(list(COUNTED))}; of tests "
        f"without any change about one in twenty looks significant. Times: {wording.OLYMPIC_MEAN}."
    )
    return [*sides, words if changed else "Nothing changed that both sides state.", *only, tested]


def _handles(rows: pd.DataFrame, comparison: Comparison) -> list[Line2D | Patch]:
    workloads = dict.fromkeys((point.a.planned.workload, point.a.planned.workload_title) for point in comparison.points)
    marks: list[Line2D | Patch] = [
        Line2D([], [], linestyle="", markersize=6, label=title, marker=style.marker(name), color=style.colour(name))
        for name, title in workloads
    ]
    band = Patch(facecolor=style.STRIP, label=f"below the threshold of {comparison.threshold_percent:g} %")
    return [*marks, band, *style.verdict_handles(rows.loc[rows["change_percent"].notna(), "validity"])]
