"""The frame of a figure: title, systems, axes, legend below the data, notes at the foot; and how captions are put."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import text_to_path

from mlscaling import wording
from mlscaling.plots import Context
from mlscaling.plots.style import FONT_POINTS, GREY, STRIP, WIDTH
from mlscaling.tables import RUN_STATUS

LINE_HEIGHT = 0.155
"""Inches of a line of text."""
LEFT = 0.1
"""Inches of margin at the left of texts."""


def curves(points: pd.DataFrame) -> list[tuple[str, str]]:
    """(system, workload) of each curve in the order of the study."""
    return list(dict.fromkeys(zip(points["system"], points["workload"], strict=True)))


def systems(context: Context) -> list[str]:
    """Names of the systems in the order of the study."""
    return list(dict.fromkeys(point.system for point in context.planned.points))


def workload_title(context: Context, workload: str) -> str:
    """What a reader should see for a workload."""
    return next(point.workload_title for point in context.planned.points if point.workload == workload)


def curve_title(context: Context, system: str, workload: str) -> str:
    """Workload, with its system where the study has several."""
    title = workload_title(context, workload)
    return f"{title}, {system}" if len(systems(context)) > 1 else title


def emulation_note(context: Context) -> str:
    """What has to be said of emulated nodes; empty where none are."""
    emulated = {point.system for point in context.planned.points if point.emulated}
    if not emulated:
        return ""
    if emulated == set(systems(context)):
        return wording.EMULATED
    return f"{wording.EMULATED}: {wording.joined(sorted(emulated))}"


def framed(
    title: str,
    *,
    context: Context,
    body_height: float,
    handles: Sequence[Artist] = (),
    notes: Sequence[str] = (),
    grid: tuple[int, int] = (1, 1),
) -> tuple[Figure, np.ndarray[Any, Any]]:
    """An empty figure with everything around its data.

    Args:
        title: what it shows.
        context: systems, emulation and notes of the study.
        body_height: inches for axes with their labels.
        handles: legend, drawn below the axes.
        notes: sentences at the foot; those of the study are added.
        grid: rows and columns of axes.

    Returns:
        The figure and its axes, flat.
    """
    subtitle = _wrapped(_subtitle(context))
    foot = [line for note in (*notes, *context.planned.notes) for line in _wrapped(note)]
    columns = _legend_columns(handles)
    legend_height = 0.172 * -(-len(handles) // columns) + 0.1 * bool(handles)
    bottom = legend_height + LINE_HEIGHT * len(foot) + 0.08
    height = 0.34 + LINE_HEIGHT * len(subtitle) + body_height + bottom
    figure = Figure(figsize=(WIDTH, height))
    body = (0, bottom / height, 1, body_height / height)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=body, w_pad=0.06, h_pad=0.04))
    text: dict[str, Any] = {"fontsize": FONT_POINTS, "color": GREY, "va": "top", "linespacing": 1.3}
    figure.text(LEFT / WIDTH, 1 - 0.08 / height, title, fontsize=FONT_POINTS + 3, weight="bold", va="top")
    figure.text(LEFT / WIDTH, 1 - 0.31 / height, "\n".join(subtitle), **text)
    figure.text(LEFT / WIDTH, (bottom - legend_height) / height, "\n".join(foot), **text)
    if handles:
        look: dict[str, Any] = {"ncols": columns, "frameon": False, "columnspacing": 1.6, "handletextpad": 0.5}
        look |= {"labelspacing": 0.35, "borderaxespad": 0.3, "bbox_to_anchor": (0.03 / WIDTH, bottom / height)}
        legend = figure.legend(handles=list(handles), loc="upper left", **look)
        legend.set_in_layout(False)
    return figure, figure.subplots(*grid, squeeze=False).flatten()


def empty_figure(title: str, *, context: Context, runs: pd.DataFrame, words: str = "") -> Figure:
    """The figure of a study that has nothing to draw yet: says so, in `words` if given, and what became of its runs."""
    figure, (axes,) = framed(title, context=context, body_height=2.0)
    axes.set(xticks=[], yticks=[], facecolor=STRIP)
    axes.spines[:].set_visible(False)
    counts = runs["status"].value_counts()
    states = [f"{counts[status]} {status}" for status in RUN_STATUS if status in counts]
    planned = f"{len(runs)} planned runs: {wording.joined(states)}" if len(runs) else "no planned runs"
    text: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
    default = "no point has a score yet" if counts.get("success") else "no converged run yet"
    axes.text(0.5, 0.58, words or default, fontsize=FONT_POINTS + 3, **text)
    axes.text(0.5, 0.4, planned, color=GREY, **text)
    return figure


def finding_notes(scaling: pd.DataFrame, *, context: Context) -> list[str]:
    """A sentence for each finding of the scaling table."""
    words = {"not significant": "speed-up not significant, its 95 % interval includes 1"}
    return [
        f"{curve_title(context, row['system'], row['workload'])}, {wording.nodes(row['nodes'])}: "
        f"{words.get(row['finding'], row['finding'])}."
        for _, row in scaling[scaling["finding"] != ""].iterrows()
    ]


def caption(docstring: str | None, *, facts: Sequence[str], context: Context) -> str:
    """RST: the module's docstring, what is seen, and what has to be said of the study."""
    paragraphs = [inspect.cleandoc(docstring or "")]
    paragraphs += ["\n".join(f"* {wording.rst(fact)}" for fact in facts)] if facts else ["No point has a score yet."]
    emulation = emulation_note(context)
    notes = ([emulation[0].upper() + emulation[1:] + "."] if emulation else []) + list(context.planned.notes)
    return "\n\n".join([*paragraphs, *map(wording.rst, notes)]) + "\n"


def _subtitle(context: Context) -> str:
    titles = {point.system: point.system_title for point in context.planned.points}
    several = len(titles) > 1
    named = [f"{system}: {title}" if several and title != system else title for system, title in titles.items()]
    return " · ".join(filter(None, [*named, emulation_note(context)]))


def _wrapped(text: str) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and _inches(f"{lines[-1]} {word}") <= 0.98 * (WIDTH - 2 * LEFT):  # text is wider at low resolution
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _inches(text: str) -> float:
    font = FontProperties(family="DejaVu Sans", size=FONT_POINTS)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def _legend_columns(handles: Sequence[Artist]) -> int:
    if not handles:
        return 1
    longest = max(_inches(str(handle.get_label())) for handle in handles)
    symbol_and_gap = 0.6
    return max(1, min(len(handles), int((WIDTH - LEFT + 0.2) / (longest + symbol_and_gap))))
