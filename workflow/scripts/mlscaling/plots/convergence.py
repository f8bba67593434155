"""Epochs (or samples) to converge over the global batch size: what a larger batch costs, whatever the hardware.

Large markers are the Olympic mean of a point's sorted runs with its 95 % bootstrap interval, small dots the runs. The
grey line is the mean of MLPerf's reference convergence points (RCPs) at these batch sizes; a point below the dashed
limit converges faster than the reference allows and is invalid. Stars mark the mean in the full set of RCPs where it
differs from the pruned set, which the test uses. Runs without a result stand above the axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Convergence and reference convergence points"
NOTE = "Large markers: Olympic mean of the sorted runs (least and most dropped), with 95 % bootstrap interval."
INTERVAL = ["convergence", "convergence_low", "convergence_high"]
TOO_FAST = "#f6dcdc"


def data(*, runs: pd.DataFrame, points: pd.DataFrame, context: Context, **_: object) -> pd.DataFrame:
    """Points (without a run number) with their RCPs, and runs, one row each."""
    keys = ["system", "workload", "nodes", "global_batch_size"]
    rcp = ["rcp_status", "rcp_mean", "rcp_limit"]
    of_points = points[[*keys, *INTERVAL, "convergence_unit", *rcp, "verdict"]].assign(run=pd.NA, state="")
    paths = points["system"] + "/" + points["workload"] + "/n" + points["nodes"].astype(str)
    full = [context.rcps.get(path, {}).get("full") or {} for path in paths]
    for name in ("mean", "limit"):
        of_points[f"full_rcp_{name}"] = [float(record.get(name) or np.nan) for record in full]
    of_runs = runs[[*keys, "run", "convergence", "convergence_unit"]].assign(state=style.run_state(runs))
    rows = pd.concat([of_points, of_runs], ignore_index=True)
    rows["run"] = rows["run"].astype("Int64")
    of_full = ["full_rcp_mean", "full_rcp_limit"]
    return rows[[*keys, "run", "state", *INTERVAL, "convergence_unit", *rcp, *of_full, "verdict"]]


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, context: Context, **_: object) -> Figure:
    """Axes for each workload, because units and batch sizes differ."""
    rows = data(runs=runs, points=points, context=context)
    with style.theme():
        if not (rows.loc[rows["state"].isin(["", "success"]), "convergence"] > 0).any():
            return _frame.empty_figure(TITLE, context=context, runs=runs)
        workloads = list(dict.fromkeys(points["workload"]))
        num_columns = 1 if len(workloads) == 1 else 2
        num_rows = -(-len(workloads) // num_columns)
        figure, facets = _frame.framed(
            TITLE,
            context=context,
            body_height=2.5 * num_rows + 0.7 * (num_rows == 1),
            handles=_handles(rows, context=context),
            notes=[NOTE, *_missing_rcps(rows, context=context)],
            grid=(num_rows, num_columns),
        )
        strip = 4 if rows["state"].isin(["", "success"]).all() else 20  # points of height above the data
        for axes, workload in zip(facets, workloads, strict=False):
            _draw_workload(axes, rows[rows["workload"] == workload], context=context)
            axes.set_title(_frame.workload_title(context, workload), loc="left", weight="bold", pad=strip)
        for axes in facets[len(workloads) :]:
            axes.set_visible(False)
        return figure


def caption(*, points: pd.DataFrame, context: Context, **_: object) -> str:
    """Convergence of each measured point beside its RCP limit."""
    facts = []
    for _, row in points[points["convergence"].notna()].iterrows():
        title = f"{_frame.curve_title(context, row['system'], row['workload'])}, {wording.nodes(row['nodes'])}"
        text = f"{wording.interval(row, 'convergence')} {row['convergence_unit']}"
        facts.append(f"{title}, global batch size {row['global_batch_size']:,}: {text}; {_rcp_words(row)}.")
    return _frame.caption(__doc__, facts=facts, context=context)


def _rcp_words(row: pd.Series) -> str:
    if np.isnan(row["rcp_mean"]):
        return f"no RCP ({row['rcp_status'].replace('_', ' ')})" if row["rcp_status"] else "no RCP"
    mean, limit = wording.significant(row["rcp_mean"]), wording.significant(row["rcp_limit"])
    return f"RCP mean {mean}, limit {limit} ({row['rcp_status'].replace('_', ' ')}), {wording.rcp(row)}"


def _draw_workload(axes: Axes, rows: pd.DataFrame, *, context: Context) -> None:
    style.doubling_axis(axes.xaxis, rows["global_batch_size"], label="global batch size (samples)", margin=0.45)
    points, runs = rows[rows["state"] == ""], rows[rows["state"] != ""]
    _y_axis(axes, rows)
    _draw_rcps(axes, points)
    lost: list[tuple[float, str, str]] = []
    span = float(np.log2(axes.get_xlim()[1] / axes.get_xlim()[0]))
    systems = _frame.systems(context)
    for number, (system, workload) in enumerate(_frame.curves(rows)):
        look: dict[str, Any] = {"colour": style.colour(workload), "marker": style.marker(workload)}
        curve = points[points["system"] == system].sort_values("global_batch_size")
        curve = curve[curve["convergence"].notna()]
        place: dict[str, Any] = {"number": number, "of": len(_frame.curves(rows)), "span": span}
        x = [style.dodged(batch, **place) for batch in curve["global_batch_size"]]
        line = style.line_style(system, systems=systems)
        axes.plot(x, curve["convergence"], color=look["colour"], linestyle=line, linewidth=1.2)
        for at, (_, point) in zip(x, curve.iterrows(), strict=True):
            style.mark(axes, x=at, interval=point[INTERVAL], verdict=point["verdict"], **look)
        for batch, of_point in runs[runs["system"] == system].groupby("global_batch_size"):
            lost += _draw_runs(axes, of_point, x=style.dodged(batch, **place), span=span, colour=look["colour"])
    style.mark_lost_runs(axes, lost)


def _draw_runs(axes: Axes, runs: pd.DataFrame, *, x: float, span: float, colour: str) -> list[tuple[float, str, str]]:
    good = runs.loc[runs["state"] == "success", "convergence"].sort_values()
    # Runs stop at an evaluation, so that many share a value: equal ones stand beside each other.
    beside = 1 + good.groupby(good).cumcount().to_numpy()
    style.mark_runs(axes, x=x * 2 ** (0.022 * span * beside), y=good, colour=colour)
    states = runs.loc[runs["state"] != "success", "state"]
    middle = (len(states) - 1) / 2
    return [(x * 2 ** ((place - middle) * 0.03 * span), state, colour) for place, state in enumerate(states)]


def _y_axis(axes: Axes, rows: pd.DataFrame) -> None:
    success = rows[rows["state"].isin(["", "success"])]
    columns = [*INTERVAL, "rcp_mean", "rcp_limit", "full_rcp_mean"]
    values = success[columns].to_numpy(dtype=float)
    values = values[np.isfinite(values)]
    unit = success["convergence_unit"].iloc[0]
    axes.set_ylabel(f"{unit} to converge")
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    if not values.size:
        axes.set(yticks=[], ylim=(0, 1))
        return
    low, high = values.min(), values.max()
    margin = max(0.12 * (high - low), 0.02 * high)
    axes.set_ylim(low - margin, high + margin)
    if unit == "samples":
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))


def _draw_rcps(axes: Axes, points: pd.DataFrame) -> None:
    rcps = points[points["rcp_mean"].notna()].drop_duplicates("global_batch_size").sort_values("global_batch_size")
    if rcps.empty:
        return
    # A single batch size would be a line without length: reach a little to both sides.
    reach = np.array([2**-0.3, *[1.0] * len(rcps), 2**0.3])
    x = np.pad(rcps["global_batch_size"].to_numpy(dtype=float), 1, mode="edge") * reach
    mean = np.pad(rcps["rcp_mean"].to_numpy(), 1, mode="edge")
    limit = np.pad(rcps["rcp_limit"].to_numpy(), 1, mode="edge")
    axes.fill_between(x, axes.get_ylim()[0], limit, color=TOO_FAST, linewidth=0, zorder=0.5)
    axes.plot(x, mean, color=style.GREY, linewidth=1.4, zorder=1.5)
    axes.plot(x, limit, color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1.5)
    differing = rcps[_full_differs(rcps)]
    axes.plot(differing["global_batch_size"], differing["full_rcp_mean"], **FULL_LOOK)


FULL_LOOK: dict[str, Any] = {"marker": "*", "color": style.GREY, "linestyle": "", "markersize": 8, "markeredgewidth": 0}


def _full_differs(rows: pd.DataFrame) -> pd.Series:
    return rows["full_rcp_mean"].notna() & ((rows["full_rcp_mean"] - rows["rcp_mean"]).abs() > 1e-9 * rows["rcp_mean"])


def _handles(rows: pd.DataFrame, *, context: Context) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = []
    for system, workload in _frame.curves(rows):
        look: dict[str, Any] = {"colour": style.colour(workload), "marker": style.marker(workload)}
        line = style.line_style(system, systems=_frame.systems(context))
        handles.append(style.series_handle(_frame.curve_title(context, system, workload), line=line, **look))
    handles.append(style.run_handle())
    if rows["rcp_mean"].notna().any():
        handles.append(Line2D([], [], color=style.GREY, linewidth=1.4, label="RCP mean (pruned set)"))
        handles.append(Line2D([], [], color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2)), label="RCP limit"))
        handles.append(Patch(facecolor=TOO_FAST, label="faster than RCPs allow"))
    if _full_differs(rows).any():
        handles.append(Line2D([], [], label="RCP mean (full set)", **FULL_LOOK))
    return [*handles, *style.verdict_handles(rows["verdict"].dropna()), *style.state_handles(rows["state"])]


def _missing_rcps(rows: pd.DataFrame, *, context: Context) -> list[str]:
    points = rows[rows["state"] == ""]
    without = points.loc[points["rcp_mean"].isna(), ["workload", "global_batch_size"]].drop_duplicates()
    batches = [
        f"{_frame.workload_title(context, row['workload'])} at {row['global_batch_size']:,}"
        for _, row in without.iterrows()
    ]
    return [f"No RCP for {wording.joined(batches)}."] if batches else []
