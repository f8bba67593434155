"""Time to train of five workloads on one and two PowerEdge XE8545 nodes.

Bars are MLPerf's Olympic mean (fastest and slowest runs dropped), not normalised by RCP; dots are the runs. Below each
workload stand speed-up and efficiency from one to two nodes; ideal is 2× and 100 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Five workloads on 1 and 2 PowerEdge XE8545"
NOTE = f"Times: {wording.OLYMPIC_MEAN}."
KEY = ["system", "workload", "nodes"]
WIDTH_OF_BAR = 0.38
TINTS = (0.4, 1.0)
"""Strength of the colour of the smaller and of the larger node count."""

DOT: dict[str, Any] = {"marker": "o", "markersize": 3.4, "color": "black", "markeredgecolor": "white"}
DOT |= {"markeredgewidth": 0.5}


def data(*, points: pd.DataFrame, scaling: pd.DataFrame, **_: object) -> pd.DataFrame:
    """One row per workload and node count."""
    of_points = ["global_batch_size", "local_batch_size", "time_to_train_min", "normalized_time_to_train_min"]
    of_scaling = [
        "speedup",
        "speedup_low",
        "speedup_high",
        "efficiency",
        "efficiency_low",
        "efficiency_high",
        "finding",
    ]
    return points[[*KEY, *of_points, "convergence", "convergence_unit", "verdict"]].merge(
        scaling[[*KEY, *of_scaling]], on=KEY
    )


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, scaling: pd.DataFrame, context: Context) -> Figure:
    """A pair of bars for each workload."""
    rows = data(points=points, scaling=scaling)
    with style.theme():
        findings = [f"† {note}" for note in _frame.finding_notes(scaling, context=context)]
        figure, (axes,) = _frame.framed(
            TITLE, context=context, body_height=3.3, handles=_handles(rows), notes=[NOTE, *findings]
        )
        workloads = list(dict.fromkeys(rows["workload"]))
        for place, workload in enumerate(workloads):
            _draw_pair(axes, rows[rows["workload"] == workload].sort_values("nodes"), place=place, runs=runs)
        labels = [_label(rows[rows["workload"] == name].iloc[-1], context=context) for name in workloads]
        axes.set_xticks(range(len(workloads)), labels)
        axes.set_xlim(-0.6, len(workloads) - 0.4)
        axes.set_ylim(0, 1.08 * runs["time_to_train_min"].max())
        axes.set_ylabel("time to train (minutes)")
        axes.set_xlabel("workload / speed-up from 1 to 2 nodes / efficiency")
        axes.grid(axis="x", visible=False)
        axes.tick_params(axis="x", length=0)
        return figure


def caption(*, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, **_: object) -> str:
    """Times and speed-up of each workload."""
    rows = data(points=points, scaling=scaling)
    facts = []
    for workload, curve in rows.groupby("workload", sort=False):
        first, last = curve.sort_values("nodes").iloc[[0, -1]].to_dict("records")
        finding = f"; {last['finding']}" if last["finding"] else ""
        facts.append(
            f"{_frame.workload_title(context, str(workload))}: {first['time_to_train_min']:.3f} → "
            f"{last['time_to_train_min']:.3f} minutes, speed-up {wording.interval(last, 'speedup')}, efficiency "
            f"{wording.percent(last['efficiency'])}{finding}."
        )
    return _frame.caption(__doc__, facts=facts, context=context)


def _draw_pair(axes: Axes, curve: pd.DataFrame, *, place: int, runs: pd.DataFrame) -> None:
    for number, (_, row) in enumerate(curve.iterrows()):
        x = place + (number - (len(curve) - 1) / 2) * WIDTH_OF_BAR
        axes.bar(x, row["time_to_train_min"], width=0.92 * WIDTH_OF_BAR, zorder=2, **_look(row, number=number))
        mine = runs[(runs["workload"] == row["workload"]) & (runs["nodes"] == row["nodes"])]
        times = mine.loc[mine["status"] == "success", "time_to_train_min"]
        across = x + np.linspace(-0.1, 0.1, len(times)) * (len(times) > 1)
        axes.plot(across, times, linestyle="", zorder=4, **DOT)
        text: dict[str, Any] = {"ha": "center", "va": "bottom", "zorder": 5}
        top = max(row["time_to_train_min"], times.max())
        axes.annotate(f"{row['time_to_train_min']:.2f}", (x, top), xytext=(0, 2), textcoords="offset points", **text)


def _look(row: pd.Series, *, number: int) -> dict[str, Any]:
    colour = style.colour(row["workload"])
    look: dict[str, Any] = {"edgecolor": colour, "linewidth": 1.2}
    if row["verdict"] == "invalid":
        return look | {"facecolor": "white", "linestyle": (0, (3, 2))}
    return look | {"facecolor": style.tint(colour, TINTS[min(number, 1)])}


def _label(row: pd.Series, *, context: Context) -> str:
    mark = " †" if row["finding"] else ""
    title = _frame.workload_title(context, row["workload"])
    return f"{title}\n{row['speedup']:.2f}×{mark}\n{wording.percent(row['efficiency'])}{mark}"


def _handles(rows: pd.DataFrame) -> list[Patch | Line2D]:
    counts = sorted(rows["nodes"].unique())
    looks: list[dict[str, Any]] = [
        {"facecolor": style.tint(style.GREY, tint), "edgecolor": style.GREY} for tint in TINTS
    ]
    handles: list[Patch | Line2D] = [
        Patch(label=wording.nodes(nodes), **look) for nodes, look in zip(counts, looks, strict=True)
    ]
    return [*handles, Line2D([], [], linestyle="", label="one run", **DOT)]
