"""Time to train over the number of nodes, both axes logarithmic.

Large markers are MLPerf's Olympic mean (fastest and slowest runs dropped), not normalised by RCP, with its 95 %
bootstrap interval; small dots are the runs. Half-filled points have fewer runs than the round requires, hollow points
are invalid. Runs without a result stand above the axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Time to train"
NOTE = f"Large markers: {wording.OLYMPIC_MEAN}, with 95 % interval."
INTERVAL = ["time_to_train_min", "time_to_train_min_low", "time_to_train_min_high"]


def data(*, runs: pd.DataFrame, points: pd.DataFrame, **_: object) -> pd.DataFrame:
    """Points (without a run number) and runs, one row each."""
    keys = ["system", "workload", "nodes"]
    of_points = points[[*keys, *INTERVAL, "completeness", "verdict"]].assign(run=pd.NA, state="")
    of_runs = runs[[*keys, "run", "time_to_train_min"]].assign(state=style.run_state(runs))
    rows = pd.concat([of_points, of_runs], ignore_index=True)
    rows["run"] = rows["run"].astype("Int64")
    return rows[[*keys, "run", "state", *INTERVAL, "completeness", "verdict"]]


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, context: Context, **_: object) -> Figure:
    """Every run, every point, a line through the points of a curve."""
    rows = data(runs=runs, points=points)
    shown = rows.loc[rows["state"].isin(["", "success"]), "time_to_train_min"]
    with style.theme():
        if not (shown > 0).any():
            return _frame.empty_figure(TITLE, context=context, runs=runs)
        figure, (axes,) = _frame.framed(
            TITLE, context=context, body_height=3.4, handles=_handles(rows, context=context), notes=[NOTE]
        )
        style.doubling_axis(axes.xaxis, rows["nodes"], label="nodes")
        style.decimal_log_axis(axes, shown, label="time to train (minutes)")
        lost = []
        curves = _frame.curves(points)
        for number, (system, workload) in enumerate(curves):
            curve = rows[(rows["system"] == system) & (rows["workload"] == workload)]
            line = style.line_style(system, systems=_frame.systems(context))
            lost += _draw_curve(axes, curve, line=line, number=number, num_curves=len(curves))
        style.mark_lost_runs(axes, lost)
        return figure


def caption(*, points: pd.DataFrame, context: Context, **_: object) -> str:
    """Times at the ends of each curve."""
    facts = []
    for system, workload in _frame.curves(points):
        curve = points[(points["system"] == system) & (points["workload"] == workload)].sort_values("nodes")
        scored = curve[curve["time_to_train_min"].notna()]
        times = (
            [
                f"{wording.interval(row, 'time_to_train_min')} minutes on {wording.nodes(row['nodes'])} "
                f"({row['num_converged']} of {row['required_runs']} required runs)"
                for _, row in scored.iloc[sorted({0, len(scored) - 1})].iterrows()
            ]
            if len(scored)
            else ["no score yet"]
        )
        facts.append(f"{_frame.curve_title(context, system, workload)}: {', '.join(times)}.")
    return _frame.caption(__doc__, facts=facts if points["time_to_train_min"].notna().any() else [], context=context)


def _draw_curve(
    axes: Axes, curve: pd.DataFrame, *, line: object, number: int, num_curves: int
) -> list[tuple[float, str, str]]:
    workload = curve["workload"].iloc[0]
    look: dict[str, Any] = {"colour": style.colour(workload), "marker": style.marker(workload)}
    span = float(np.log2(axes.get_xlim()[1] / axes.get_xlim()[0]))
    points = curve[curve["state"] == ""].sort_values("nodes")
    x = {nodes: style.dodged(nodes, number=number, of=num_curves, span=span) for nodes in points["nodes"]}
    scored = points[points["time_to_train_min"].notna()]
    axes.plot(scored["nodes"].map(x), scored["time_to_train_min"], color=look["colour"], linestyle=line, linewidth=1.4)
    for _, point in scored.iterrows():
        style.mark(axes, x=x[point["nodes"]], interval=point[INTERVAL], verdict=point["verdict"], **look)
    lost = []
    for nodes, runs in curve[curve["state"] != ""].groupby("nodes"):
        good = runs[runs["state"] == "success"]
        beside = x[nodes] * 2 ** (0.014 * span)
        style.mark_runs(axes, x=[beside] * len(good), y=good["time_to_train_min"], colour=look["colour"])
        states = runs.loc[runs["state"] != "success", "state"]
        lost += [
            (x[nodes] * 2 ** ((place - (len(states) - 1) / 2) * 0.016 * span), state, look["colour"])
            for place, state in enumerate(states)
        ]
    return lost


def _handles(rows: pd.DataFrame, *, context: Context) -> list[Line2D]:
    series = [
        style.series_handle(
            _frame.curve_title(context, system, workload),
            colour=style.colour(workload),
            marker=style.marker(workload),
            line=style.line_style(system, systems=_frame.systems(context)),
        )
        for system, workload in _frame.curves(rows)
    ]
    return [*series, style.run_handle(), *style.verdict_handles(rows["verdict"]), *style.state_handles(rows["state"])]
