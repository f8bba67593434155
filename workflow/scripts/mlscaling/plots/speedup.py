"""Speed-up over the number of nodes, both axes logarithmic to base 2.

Time to train at the smallest measured node count ÷ time to train (Olympic means, not normalised by RCP), with the 95 %
bootstrap interval over runs. The dashed line is ideal and goes through the first measured point. Half-filled points
have fewer runs than the round requires, hollow points are invalid or compared with an invalid one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Speed-up"
NOTE = "Ratio of Olympic mean times, not normalised by RCP, with 95 % bootstrap interval over runs."
INTERVAL = ["speedup", "speedup_low", "speedup_high"]


def data(*, scaling: pd.DataFrame, **_: object) -> pd.DataFrame:
    """One row per point, with the ideal speed-up of its curve."""
    rows = scaling[["system", "workload", "nodes", "reference_nodes", *INTERVAL, "finding", "verdict"]].copy()
    rows.insert(4, "ideal_speedup", (rows["nodes"] / rows["reference_nodes"]).astype("float64"))
    return rows


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, scaling: pd.DataFrame, context: Context) -> Figure:
    """A line per curve, an ideal line per reference node count."""
    rows = data(scaling=scaling)
    scored = rows[rows["speedup"].notna()]
    with style.theme():
        if scored.empty:
            return _frame.empty_figure(TITLE, context=context, runs=runs)
        handles = _handles(rows, context=context)
        notes = [NOTE, *_frame.finding_notes(scaling, context=context)]
        figure, (axes,) = _frame.framed(TITLE, context=context, body_height=3.4, handles=handles, notes=notes)
        style.doubling_axis(axes.xaxis, rows["nodes"], label="nodes")
        _speedup_axis(axes, scored)
        for reference in sorted(_references_of_curves(scored)):
            ends = np.array([reference, rows["nodes"].max() * 2**0.2])
            axes.plot(ends, ends / reference, color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, zorder=1.5)
        unscored: list[tuple[float, dict[str, Any]]] = []
        curves = _frame.curves(points)
        for number, (system, workload) in enumerate(curves):
            curve = rows[(rows["system"] == system) & (rows["workload"] == workload)]
            line = style.line_style(system, systems=_frame.systems(context))
            unscored += _draw_curve(axes, curve, line=line, number=number, num_curves=len(curves))
        style.mark_in_strip(axes, unscored, label="no score")
        return figure


def caption(*, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, **_: object) -> str:
    """Speed-up at each curve's largest measured node count, and findings."""
    facts = []
    for system, workload in _frame.curves(points):
        curve = scaling[(scaling["system"] == system) & (scaling["workload"] == workload)].sort_values("nodes")
        title = _frame.curve_title(context, system, workload)
        scored = curve[curve["speedup"].notna()]
        if scored.empty:
            facts.append(f"{title}: no score yet.")
            continue
        last = scored.iloc[-1]
        base = wording.nodes(last["reference_nodes"])
        if last["nodes"] == last["reference_nodes"]:
            facts.append(f"{title}: measured on {base} only, so there is no speed-up.")
            continue
        finding = f"; {last['finding']}" if last["finding"] else ""
        facts.append(
            f"{title}: {wording.interval(last, 'speedup')}× on {wording.nodes(last['nodes'])} relative to {base}, "
            f"ideal is {last['nodes'] / last['reference_nodes']:g}×{finding}."
        )
    return _frame.caption(__doc__, facts=facts if scaling["speedup"].notna().any() else [], context=context)


def _references_of_curves(scored: pd.DataFrame) -> set[int]:
    """Reference node counts of curves with more than one point; a single point has no ideal line."""
    return {
        int(curve["reference_nodes"].iloc[0]) for _, curve in scored.groupby(["system", "workload"]) if len(curve) > 1
    }


def _speedup_axis(axes: Axes, scored: pd.DataFrame) -> None:
    top = max(scored["speedup_high"].max(), scored["speedup"].max(), scored["ideal_speedup"].max())
    bottom = min(scored["speedup_low"].min(), scored["speedup"].min(), 1)
    exponents = range(int(np.floor(np.log2(bottom))), int(np.ceil(np.log2(top))) + 1)
    ticks = [2.0**exponent for exponent in exponents]
    parts = {1: (1,), 2: (1, 1.25, 1.5, 1.75), 3: (1, 1.5)}.get(len(ticks), (1,))
    ticks = sorted(tick * part for tick in ticks for part in parts)
    style.doubling_axis(axes.yaxis, ticks, label="speed-up")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_ylim(bottom / 1.12, top * 1.12)


def _draw_curve(
    axes: Axes, curve: pd.DataFrame, *, line: object, number: int, num_curves: int
) -> list[tuple[float, dict[str, Any]]]:
    workload = curve["workload"].iloc[0]
    look: dict[str, Any] = {"colour": style.colour(workload), "marker": style.marker(workload)}
    span = float(np.log2(axes.get_xlim()[1] / axes.get_xlim()[0]))
    curve = curve.sort_values("nodes")
    x = [style.dodged(nodes, number=number, of=num_curves, span=span, widest=0.08) for nodes in curve["nodes"]]
    scored = curve["speedup"].notna().to_numpy()
    axes.plot(np.array(x)[scored], curve.loc[scored, "speedup"], color=look["colour"], linestyle=line, linewidth=1.4)
    unscored = []
    for place, (_, point) in zip(x, curve.iterrows(), strict=True):
        if np.isnan(point["speedup"]):
            fill = style.verdict_fill(point["verdict"], colour=look["colour"])
            unscored.append((place, {"marker": look["marker"], "markersize": 6, **fill}))
        else:
            style.mark(axes, x=place, interval=point[INTERVAL], verdict=point["verdict"], **look)
    return unscored


def _handles(rows: pd.DataFrame, *, context: Context) -> list[Line2D]:
    handles = []
    scored = rows[rows["speedup"].notna()]
    for system, workload in _frame.curves(scored):
        curve = scored[(scored["system"] == system) & (scored["workload"] == workload)].sort_values("nodes")
        last = curve.iloc[-1]
        label = f"{_frame.curve_title(context, system, workload)}: {_speedup_words(last)}"
        look = {"colour": style.colour(workload), "marker": style.marker(workload)}
        handles.append(
            style.series_handle(label, line=style.line_style(system, systems=_frame.systems(context)), **look)
        )
    if _references_of_curves(scored):
        handles.append(Line2D([], [], color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, label="ideal"))
    return [*handles, *style.verdict_handles(rows["verdict"])]


def _speedup_words(last: pd.Series) -> str:
    if last["nodes"] == last["reference_nodes"]:
        return f"on {wording.nodes(last['nodes'])} only"
    words = f"{last['speedup']:.2f}× on {wording.nodes(last['nodes'])}"
    return words if last["reference_nodes"] == 1 else f"{words}, relative to {wording.nodes(last['reference_nodes'])}"
