"""Every run of every point: its time to train as the deviation from the point's Olympic mean.

Ticks in the middle of a row are the mean, the bar its 95 % bootstrap interval; a point without a score has neither,
and its runs stand against their median. Filled dots enter the mean, hollow ones are the fastest and slowest, which it
drops. A ring marks a run that needed more than one attempt; its earlier attempts have failed. Runs without a result
stand at the right, with the reason by their mark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Spread of the runs"
ROW_INCHES = 0.3
KEYS = ["system", "workload", "nodes"]
STRIP_WIDTH = 0.13
"""Width of the strip for runs without a result, in widths of the axes."""


def data(*, runs: pd.DataFrame, points: pd.DataFrame, context: Context, **_: object) -> pd.DataFrame:
    """One row per run, with the mean and the interval of its point, and whether the mean drops it."""
    score = points[[*KEYS, "time_to_train_min", "time_to_train_min_low", "time_to_train_min_high", "verdict"]]
    score = score.rename(columns=lambda name: name.replace("time_to_train_min", "point_time_to_train_min"))
    rows = runs[[*KEYS, "run", "num_attempts", "failure_class", "time_to_train_min"]].merge(score, on=KEYS, how="left")
    rows["state"] = style.run_state(runs)
    # A point without a score has no mean to deviate from: its runs are shown against their median.
    good = rows["state"] == "success"
    median = rows[good].groupby(KEYS)["time_to_train_min"].transform("median").reindex(rows.index)
    centre = rows["point_time_to_train_min"].fillna(median)
    rows["deviation_percent"] = (100 * (rows["time_to_train_min"] / centre - 1)).where(good)
    rows["dropped"] = _dropped(rows, context=context)
    return rows


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, context: Context, **_: object) -> Figure:
    """A row for each point, a mark for each run."""
    rows = data(runs=runs, points=points, context=context)
    with style.theme():
        if rows["deviation_percent"].isna().all():
            return _frame.empty_figure(TITLE, context=context, runs=runs)
        figure, (axes,) = _frame.framed(
            TITLE,
            context=context,
            body_height=0.75 + ROW_INCHES * len(points),
            handles=_handles(rows),
            notes=[f"Times: {wording.OLYMPIC_MEAN}."],
        )
        largest = np.nanmax(np.abs(_percents(rows)))
        axes.set_xlim(-1.12 * max(largest, 0.5), 1.12 * max(largest, 0.5))
        axes.set_ylim(len(points) - 0.5, -0.5)
        for row, (_, point) in enumerate(points.iterrows()):
            of_point = rows[(rows[KEYS] == point[KEYS]).all(axis=1)]
            _draw_point(axes, of_point, row=row)
        _frame_axes(axes, points, context=context)
        if rows["deviation_percent"].isna().any():
            _draw_strip(axes, rows, points)
        return figure


def caption(*, runs: pd.DataFrame, points: pd.DataFrame, context: Context, **_: object) -> str:
    """Range of each point's runs, and what became of the others."""
    rows = data(runs=runs, points=points, context=context)
    facts = []
    for (system, workload, nodes), of_point in rows.groupby(KEYS, sort=False):
        good = of_point[of_point["deviation_percent"].notna()]
        text = f"{len(good)} of {len(of_point)} planned runs have a result"
        if len(good) > 1:
            low, high = good["time_to_train_min"].min(), good["time_to_train_min"].max()
            text += f", {wording.significant(low)} to {wording.significant(high)} minutes"
        states = of_point.loc[of_point["state"] != "success", "state"].value_counts()
        text += "".join(f"; {count} {state}" for state, count in states.items())
        repeated = int((of_point["num_attempts"] > 1).sum())
        text += f"; {repeated} with more than one attempt" if repeated else ""
        facts.append(f"{_frame.curve_title(context, system, workload)}, {wording.nodes(nodes)}: {text}.")
    return _frame.caption(__doc__, facts=facts if rows["deviation_percent"].notna().any() else [], context=context)


def _dropped(rows: pd.DataFrame, *, context: Context) -> pd.Series:
    """Runs that the Olympic mean drops; lost runs are infinitely slow, so they take the places of the slowest."""
    dropped = pd.Series(False, index=rows.index)
    for (system, workload, nodes), of_point in rows.groupby(KEYS):
        trimmed = context.planned.point(f"{system}/{workload}/n{nodes}").trimmed_runs
        times = of_point["time_to_train_min"].where(of_point["state"] == "success", np.inf)
        order = times.sort_values(kind="stable").index
        if of_point["point_time_to_train_min"].notna().all() and trimmed:
            dropped[order[:trimmed].union(order[-trimmed:])] = True
    return dropped


def _percents(rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    centre = rows["point_time_to_train_min"]
    ends = [100 * (rows[f"point_time_to_train_min_{end}"] / centre - 1) for end in ("low", "high")]
    return np.concatenate([rows["deviation_percent"], *ends]).astype(float)


def _draw_point(axes: Axes, runs: pd.DataFrame, *, row: int) -> None:
    first = runs.iloc[0]
    colour, marker = style.colour(first["workload"]), style.marker(first["workload"])
    centre = first["point_time_to_train_min"]
    if np.isfinite(centre):
        low, high = (100 * (first[f"point_time_to_train_min_{end}"] / centre - 1) for end in ("low", "high"))
        axes.add_patch(Rectangle((low, row - 0.3), high - low, 0.6, facecolor=(colour, 0.2), linewidth=0, zorder=1.5))
        axes.plot([0, 0], [row - 0.3, row + 0.3], color=colour, linewidth=1.4, zorder=2)
    for _, run in runs[runs["deviation_percent"].notna()].iterrows():
        x = run["deviation_percent"]
        face = "white" if run["dropped"] else colour
        look: dict[str, Any] = {
            "marker": marker,
            "markersize": 4.5,
            "markeredgecolor": colour,
            "markeredgewidth": 1,
            "zorder": 3,
        }
        axes.plot(x, row, linestyle="", markerfacecolor=face, alpha=0.85, **look)
        if run["num_attempts"] > 1:
            axes.plot(x, row, linestyle="", **RING)


RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 9,
    "markerfacecolor": "none",
    "markeredgecolor": "black",
    "zorder": 3.5,
}


def _frame_axes(axes: Axes, points: pd.DataFrame, *, context: Context) -> None:
    labels = []
    for _, point in points.iterrows():
        time = wording.significant(point["time_to_train_min"])
        score = f"{time} min" if np.isfinite(point["time_to_train_min"]) else "no score"
        state = "" if point["verdict"] == "valid" else f", {point['verdict']}"
        title = _frame.curve_title(context, point["system"], point["workload"])
        labels.append(f"{title}, {wording.nodes(point['nodes'])}: {score}{state}")
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %".replace("-", "−") if value else "0"))
    without_score = points["time_to_train_min"].isna().any()
    centre = "Olympic mean" + (", or its median without a score" if without_score else "")
    axes.set_xlabel(f"time to train against the point's {centre}")


def _draw_strip(axes: Axes, rows: pd.DataFrame, points: pd.DataFrame) -> None:
    shape: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "zorder": 0}
    axes.add_patch(Rectangle((1.01, 0), STRIP_WIDTH, 1, facecolor=style.STRIP, **shape))
    axes.text(
        1.01 + STRIP_WIDTH / 2, 1.02, "no result", ha="center", va="bottom", style="italic", transform=axes.transAxes
    )
    transform = blended_transform_factory(axes.transAxes, axes.transData)
    for row, (_, point) in enumerate(points.iterrows()):
        lost = rows[(rows[KEYS] == point[KEYS]).all(axis=1) & rows["deviation_percent"].isna()]
        step = min(0.022, (STRIP_WIDTH - 0.02) / max(len(lost), 1))
        for place, (_, run) in enumerate(lost.iterrows()):
            x = 1.01 + STRIP_WIDTH / 2 + (place - (len(lost) - 1) / 2) * step
            look: dict[str, Any] = {
                "marker": style.STATUS_MARKERS[run["state"]][0],
                "markersize": 5.5,
                "markeredgewidth": 1.4,
            }
            look |= {"color": style.colour(run["workload"]), "transform": transform, "clip_on": False, "linestyle": ""}
            axes.plot(x, row, **look)


def _handles(rows: pd.DataFrame) -> list[Line2D | Patch]:
    dot: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 5, "markeredgecolor": style.GREY}
    scored = rows["point_time_to_train_min"].notna().any()
    handles: list[Line2D | Patch] = [
        Line2D([], [], markerfacecolor=style.GREY, label="run in the mean" if scored else "one run", **dot)
    ]
    if scored:
        handles.append(Line2D([], [], markerfacecolor="white", label="dropped as fastest or slowest", **dot))
        handles.append(Patch(facecolor=(style.GREY, 0.25), label="95 % interval of the mean"))
    if (rows["num_attempts"] > 1).any():
        handles.append(Line2D([], [], linestyle="", label="needed several attempts", **RING))
    return [*handles, *style.state_handles(rows["state"])]
