"""What things look like in every figure: colours, markers, axes, and how a figure is saved.

Colour and marker shape say the workload, line style the system, filling the verdict, so that each reads in greyscale
and with any colour vision. Colours are those of Okabe and Ito (2008).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import blended_transform_factory

from mlscaling.files import written_beside

WIDTH = 6.5
"""Inches: the text width of a printed page."""
GREY, LIGHT, STRIP = "#5f5f5f", "#d9d9d9", "#f0f0f0"
FONT_POINTS = 8

WORKLOAD_STYLES: Mapping[str, tuple[str, str]] = {
    "resnet": ("#0072B2", "o"),
    "bert": ("#D55E00", "s"),
    "ssd": ("#009E73", "^"),
    "maskrcnn": ("#CC79A7", "D"),
    "rnnt": ("#B8860B", "v"),
}
OTHER_STYLES = (("#56B4E9", "P"), ("#000000", "X"), ("#7F3C8D", "p"), ("#8C6D31", "h"), ("#666666", "*"))
LINE_STYLES: Sequence[Any] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1, 2)))
STATUS_MARKERS: Mapping[str, tuple[str, str]] = {
    "aborted": ("x", "run did not converge"),
    "failed": ("+", "run failed"),
    "missing": ("|", "run missing"),
    "not compliant": ("1", "run not compliant"),
}
VERDICT_LABELS = {"incomplete": "incomplete point", "invalid": "invalid point"}


@contextmanager
def theme() -> Iterator[None]:
    """Settings under which figures are drawn and saved; nothing outside changes."""
    settings = sns.axes_style("ticks") | {
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters and bytes everywhere
        "font.size": FONT_POINTS,
        "axes.labelsize": FONT_POINTS,
        "axes.titlesize": FONT_POINTS + 1,
        "xtick.labelsize": FONT_POINTS,
        "ytick.labelsize": FONT_POINTS,
        "legend.fontsize": FONT_POINTS,
        "axes.edgecolor": GREY,
        "axes.linewidth": 0.8,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "grid.color": LIGHT,
        "grid.linewidth": 0.6,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": "black",
        "ytick.labelcolor": "black",
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "hatch.linewidth": 0.7,
        "savefig.dpi": 200,
        "svg.fonttype": "path",
        "svg.hashsalt": "mlscaling",
    }
    with mpl.rc_context(settings):
        yield


def _with_plain_clip_ids(svg: str) -> str:
    """The same drawing with clip paths named by order: matplotlib hashes their floats, whose last bits vary with the
    layout's solver."""
    ids = dict.fromkeys(re.findall(r'<clipPath id="(\w+)"', svg))
    names = {name: f"clip{number}" for number, name in enumerate(sorted(ids, key=svg.index))}
    return re.sub("|".join(names), lambda found: names[found[0]], svg) if names else svg


def save(figure: Figure, path: Path, *, form: str) -> None:
    """Write as `svg` or `png` (200 dpi) without date and version: beside, then renamed."""
    metadata: dict[str, None] = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with theme(), written_beside(path) as beside:
        figure.savefig(beside, format=form, metadata=metadata)
        if form == "svg":
            beside.write_text(_with_plain_clip_ids(beside.read_text(encoding="utf-8")), encoding="utf-8")


def colour(workload: str, *, workloads: Iterable[str] = ()) -> str:
    """Colour of a workload; `workloads` of the study order those that have none of their own."""
    return _workload_style(workload, workloads)[0]


def marker(workload: str, *, workloads: Iterable[str] = ()) -> str:
    """Marker shape of a workload."""
    return _workload_style(workload, workloads)[1]


def tint(colour: str, strength: float) -> tuple[float, ...]:
    """The colour mixed into white: covers what lies behind, which a transparent colour does not."""
    return tuple(1 - strength * (1 - part) for part in to_rgb(colour))


def _workload_style(workload: str, workloads: Iterable[str]) -> tuple[str, str]:
    if workload in WORKLOAD_STYLES:
        return WORKLOAD_STYLES[workload]
    others = sorted({workload, *workloads} - WORKLOAD_STYLES.keys())
    return OTHER_STYLES[others.index(workload) % len(OTHER_STYLES)]


def line_style(system: str, *, systems: Sequence[str]) -> Any:
    """Line style of a system, by its place in the study."""
    return LINE_STYLES[systems.index(system) % len(LINE_STYLES)]


def verdict_fill(verdict: str, *, colour: str) -> dict[str, Any]:
    """Marker settings: valid points full, incomplete ones half, invalid ones hollow."""
    fill = {"valid": "full", "incomplete": "left", "invalid": "none"}[verdict]
    return {
        "fillstyle": fill,
        "markerfacecolor": colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": colour,
        "markeredgewidth": 1.2,
    }


def mark(
    axes: Axes, *, x: float, interval: Sequence[float], verdict: str, colour: str, marker: str, size: float = 6.5
) -> None:
    """One point with its interval (value, low, high); a hollow marker covers lines and bars behind it."""
    value, low, high = interval
    if high > low:
        bar: dict[str, Any] = {"color": colour, "linewidth": 1.1, "zorder": 3}
        axes.errorbar(x, value, yerr=[[max(value - low, 0)], [max(high - value, 0)]], fmt="none", capsize=2.5, **bar)
    axes.plot(x, value, marker=marker, color="white", markersize=size, linestyle="", zorder=3.5)
    axes.plot(x, value, marker=marker, markersize=size, linestyle="", zorder=4, **verdict_fill(verdict, colour=colour))


def mark_runs(axes: Axes, *, x: Any, y: Any, colour: str) -> None:
    """Runs that count, as small dots."""
    axes.plot(x, y, linestyle="", marker=".", markersize=5, color=colour, alpha=0.65, markeredgewidth=0, zorder=2.5)


def mark_lost_runs(axes: Axes, lost: Sequence[tuple[float, str, str]]) -> None:
    """Runs without a value as (x, state, colour), in a strip above the data."""
    marks = [
        (x, {"marker": STATUS_MARKERS[state][0], "markersize": 5.5, "markeredgewidth": 1.4, "color": of_workload})
        for x, state, of_workload in lost
    ]
    mark_in_strip(axes, marks, label="no result")


def mark_in_strip(axes: Axes, marks: Sequence[tuple[float, Mapping[str, Any]]], *, label: str) -> None:
    """What has no place on the y axis, as (x, look), in a labelled strip above the data; no strip without marks."""
    if not marks:
        return
    axes.add_patch(Rectangle((0, 1), 1, 0.09, facecolor=STRIP, transform=axes.transAxes, clip_on=False, zorder=0))
    axes.text(-0.012, 1.04, label, transform=axes.transAxes, va="center", ha="right", style="italic")
    transform = blended_transform_factory(axes.transData, axes.transAxes)
    for x, look in marks:
        axes.plot(x, 1.045, linestyle="", transform=transform, clip_on=False, **look)


def run_state(runs: pd.DataFrame) -> pd.Series:
    """What a figure says of each run: its status, or `not compliant` where its time must not be scored."""
    return runs["status"].where((runs["status"] != "success") | (runs["compliance"] != "failed"), "not compliant")


def series_handle(label: str, *, colour: str, marker: str, line: Any = "-") -> Line2D:
    """Legend entry of a curve."""
    return Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=6, linewidth=1.4, label=label)


def verdict_handles(verdicts: Iterable[str]) -> list[Line2D]:
    """Legend entries that explain the fillings that occur."""
    present = set(verdicts)
    return [
        Line2D([], [], linestyle="", marker="o", markersize=6, label=label, **verdict_fill(verdict, colour=GREY))
        for verdict, label in VERDICT_LABELS.items()
        if verdict in present
    ]


def state_handles(states: Iterable[str]) -> list[Line2D]:
    """Legend entries of runs without a result that occur."""
    present = set(states)
    return [
        Line2D([], [], linestyle="", marker=shape, color=GREY, markersize=5.5, markeredgewidth=1.4, label=label)
        for state, (shape, label) in STATUS_MARKERS.items()
        if state in present
    ]


def run_handle() -> Line2D:
    """Legend entry of the dots."""
    return Line2D([], [], linestyle="", marker=".", markersize=6, color=GREY, markeredgewidth=0, label="one run")


def doubling_axis(axis: Any, values: Iterable[float], *, label: str, margin: float = 0.3) -> None:
    """Log₂ axis with a tick at each value that occurs: nodes, batch sizes."""
    ticks = sorted(set(values))
    axes_of = axis.axes
    (axes_of.set_xscale if axis.axis_name == "x" else axes_of.set_yscale)("log", base=2)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_locator(NullLocator())
    limits = min(ticks) * 2**-margin, max(ticks) * 2**margin
    (axes_of.set_xlim if axis.axis_name == "x" else axes_of.set_ylim)(*limits)
    axis.set_label_text(label)


def decimal_log_axis(axes: Axes, values: Any, *, label: str) -> None:
    """Logarithmic y axis with enough round numbers to read a value from, however short its range."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    axes.set_yscale("log")
    axes.set_ylim(finite.min() / 1.12, finite.max() * 1.12)
    decades = np.log10(finite.max() / finite.min())
    rounds: Sequence[float] = (
        (1, 1.5, 2, 3, 4, 5, 6, 8) if decades < 0.9 else (1, 2, 3, 5) if decades < 1.6 else (1, 2, 5)
    )
    evenly = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    axes.yaxis.set_major_locator(evenly if decades < 0.4 else LogLocator(subs=rounds))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)


def dodged(value: float, *, number: int, of: int, span: float, widest: float = 0.2) -> float:
    """Position moved aside on a log₂ axis, so that curves at the same node count do not cover each other.

    Args:
        value: true position.
        number, of: place of the curve among the curves.
        span: width of the axis in doublings.
        widest: doublings that all curves together may take; a reader must still see where they belong.
    """
    step = min(0.03 * span, widest / max(of - 1, 1))
    return float(value * 2 ** ((number - (of - 1) / 2) * step))
