"""ResNet-50 on one, two, four and eight PowerEdge R750xa nodes: time to train, and speed-up over one node.

Large markers are MLPerf's Olympic mean (fastest and slowest runs dropped), not normalised by RCP; small dots are the
runs. The dashed line is ideal. Triangles are the ratio of samples per second alone: what lies between them and the
speed-up are the epochs that a larger global batch needed.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FuncFormatter
from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "ResNet-50 on 1, 2, 4 and 8 PowerEdge R750xa"
NOTE = f"Times: {wording.OLYMPIC_MEAN}."
AXIS = "nodes / global batch size / epochs"
KEY = ["system", "workload", "nodes"]
PARTS = ["speedup", "efficiency", "throughput_efficiency", "convergence_efficiency"]


def data(*, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, **_: object) -> pd.DataFrame:
    """One row per node count: times, speed-up, its decomposition, and RCPs of both record sets."""
    ratios = ["samples_ratio", "inherent_ratio", "avoidable_ratio"]
    ends = [f"{name}{end}" for name in PARTS for end in ("", "_low", "_high")]
    times = ["time_to_train_min", "time_to_train_min_low", "time_to_train_min_high", "normalized_time_to_train_min"]
    of_points = ["global_batch_size", *times, "convergence"]
    rows = points[[*KEY, *of_points, "rcp_status", "rcp_mean", "rcp_limit", "verdict"]].merge(
        scaling[[*KEY, "reference_nodes", *ends, *ratios]], on=KEY
    )
    rows["throughput_ratio"] = rows["throughput_efficiency"] * rows["nodes"] / rows["reference_nodes"].astype("float64")
    for name in ("status", "mean", "limit", "normalization"):
        rows[f"full_rcp_{name}"] = [context.rcps[_path(row)]["full"][name] for _, row in rows.iterrows()]
    return rows


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, scaling: pd.DataFrame, context: Context) -> Figure:
    """Times at the left, speed-up at the right."""
    rows = data(points=points, scaling=scaling, context=context)
    colour = style.colour(rows["workload"].iloc[0])
    with style.theme():
        last = rows.iloc[-1]
        notes = [NOTE, f"{wording.nodes(last['nodes'])}: {_headline(last, points)}.", _rcp_words(last)]
        figure, (left, right) = _frame.framed(
            TITLE, context=context, body_height=3.1, handles=_handles(colour), notes=notes, grid=(1, 2)
        )
        for axes in (left, right):
            _nodes_axis(axes, rows)
        _draw_times(left, rows, runs=runs, colour=colour)
        _draw_speedup(right, rows, colour=colour)
        return figure


def caption(*, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, **_: object) -> str:
    """Each node count in a sentence, and the RCP at the largest batch by both record sets."""
    rows = data(points=points, scaling=scaling, context=context)
    facts = [
        f"{wording.nodes(row['nodes'])}: {row['time_to_train_min']:.3f} minutes, global batch "
        f"{row['global_batch_size']:,}, {row['convergence']:g} epochs, speed-up {row['speedup']:.2f}×"
        + (f", {_headline(row, points)}." if row["nodes"] > 1 else ".")
        for _, row in rows.iterrows()
    ]
    return _frame.caption(__doc__, facts=[*facts, _rcp_words(rows.iloc[-1])], context=context)


def _path(row: pd.Series) -> str:
    return f"{row['system']}/{row['workload']}/n{row['nodes']}"


def _headline(row: pd.Series, points: pd.DataFrame) -> str:
    return wording.headline(row.to_dict(), unit=str(points["convergence_unit"].iloc[0]))


def _rcp_words(row: pd.Series) -> str:
    factor = row["full_rcp_normalization"]
    times = f", which would normalise the time by {factor:.4f}" if factor else ""
    return (
        f"RCP at global batch {row['global_batch_size']:,}: the pruned records, which the official check uses, "
        f"interpolate to {row['rcp_mean']:.2f} epochs (limit {row['rcp_limit']:.2f}); the full set has a record of "
        f"{row['full_rcp_mean']:.2f} (limit {row['full_rcp_limit']:.2f}){times}."
    )


def _nodes_axis(axes: Axes, rows: pd.DataFrame) -> None:
    style.doubling_axis(axes.xaxis, rows["nodes"], label=AXIS)
    axes.set_xlim(rows["nodes"].min() / 2**0.45, rows["nodes"].max() * 2**0.95)  # room for the labels
    labels = [
        f"{row['nodes']}\n{row['global_batch_size']:,}\n{row['convergence']:g}"
        for _, row in rows.sort_values("nodes").iterrows()
    ]
    axes.xaxis.set_major_formatter(FixedFormatter(labels))


def _draw_times(axes: Axes, rows: pd.DataFrame, *, runs: pd.DataFrame, colour: str) -> None:
    first = rows.iloc[0]
    ideal = first["time_to_train_min"] * first["nodes"] / rows["nodes"]
    style.decimal_log_axis(axes, [*rows["time_to_train_min"], *ideal], label="time to train (minutes)")
    axes.plot(rows["nodes"], rows["time_to_train_min"], color=colour, linewidth=1.4)
    axes.plot(rows["nodes"], ideal, color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, zorder=1.5)
    for _, row in rows.iterrows():
        mine = runs[(runs["nodes"] == row["nodes"]) & (runs["status"] == "success")]
        style.mark_runs(axes, x=[row["nodes"] * 1.07] * len(mine), y=mine["time_to_train_min"], colour=colour)
        _mark(axes, row, name="time_to_train_min", colour=colour)
        _label(axes, row["nodes"], row["time_to_train_min"], f"{row['time_to_train_min']:.2f}", offset=(9, 5))
    axes.set_title("time to train", loc="left", weight="bold")


def _draw_speedup(axes: Axes, rows: pd.DataFrame, *, colour: str) -> None:
    style.doubling_axis(axes.yaxis, [1, 2, 4, 8], label="speed-up")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_ylim(1 / 1.3, 8 * 1.3)
    ends = pd.Series([rows["nodes"].min(), rows["nodes"].max()])
    axes.plot(ends, ends / ends.min(), color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, zorder=1.5)
    look: dict[str, Any] = {"color": style.GREY, "marker": "^", "markersize": 5.5, "markerfacecolor": "white"}
    axes.plot(rows["nodes"], rows["throughput_ratio"], linestyle=(0, (1, 1.5)), linewidth=1.1, zorder=2, **look)
    axes.plot(rows["nodes"], rows["speedup"], color=colour, linewidth=1.4, zorder=2.5)
    for _, row in rows.iterrows():
        _mark(axes, row, name="speedup", colour=colour)
        words = f"{row['speedup']:.2f}×" + (f"\n{wording.percent(row['efficiency'])}" if row["nodes"] > 1 else "")
        _label(axes, row["nodes"], row["speedup"], words, offset=(8, -9), va="top" if row["nodes"] > 1 else "center")
    axes.set_title("speed-up and efficiency", loc="left", weight="bold")


def _mark(axes: Axes, row: pd.Series, *, name: str, colour: str) -> None:
    interval = [row[f"{name}{end}"] for end in ("", "_low", "_high")]
    marker = style.marker(row["workload"])
    style.mark(axes, x=row["nodes"], interval=interval, verdict=row["verdict"], colour=colour, marker=marker)


def _label(axes: Axes, x: float, y: float, text: str, *, offset: tuple[float, float], va: str = "center") -> None:
    axes.annotate(text, (x, y), xytext=offset, textcoords="offset points", va=va, linespacing=1.15)


def _handles(colour: str) -> list[Line2D]:
    ideal: dict[str, Any] = {"color": style.GREY, "linestyle": (0, (4, 3)), "linewidth": 1}
    throughput: dict[str, Any] = {"color": style.GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.1, "marker": "^"}
    return [
        style.series_handle("ResNet-50", colour=colour, marker=style.marker("resnet")),
        Line2D([], [], label="ideal", **ideal),
        Line2D([], [], label="samples per second alone", markersize=5.5, markerfacecolor="white", **throughput),
        style.run_handle(),
    ]
