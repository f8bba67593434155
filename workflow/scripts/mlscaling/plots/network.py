"""Bus bandwidth of an all-reduce over the message size, as the preflight of each run measured it before its training.

One line per node count is the median over its runs, the band their range. Bus bandwidth is the message over its time,
times 2 (n−1) ÷ n for n ranks (NCCL tests): the rate at which each rank's link carried data, which a network that scales
keeps at every node count. The dashed line is the system's threshold. Runs that were stopped before their training have
a line of their own, with hollow marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Network: bus bandwidth of all-reduce over the ranks of a run"
EMPTY = "no network was measured: preflight is off, or runs have one rank"
LINE = ["system", "nodes", "ranks", "stopped"]
MARKERS = "osD^vPX"
DARK, PALE = np.array([0.0, 0.2, 0.42]), np.array([0.55, 0.78, 0.93])
"""Colours of most and fewest nodes: node counts are an order, so one hue from pale to dark."""


def data(*, context: Context, **_: object) -> pd.DataFrame:
    """One row per message size of each line: median, least and greatest of its runs, and the threshold."""
    columns = {
        "num_runs": ("bus_bandwidth_gb_per_s", "size"),
        "bus_bandwidth_gb_per_s": ("bus_bandwidth_gb_per_s", "median"),
        "bus_bandwidth_gb_per_s_least": ("bus_bandwidth_gb_per_s", "min"),
        "bus_bandwidth_gb_per_s_greatest": ("bus_bandwidth_gb_per_s", "max"),
        "latency_us": ("latency_us", "median"),
        "min_bus_bandwidth_gb_per_s": ("min_bus_bandwidth_gb_per_s", "max"),
    }
    if context.network.empty:
        return pd.DataFrame(columns=[*LINE, "bytes", *columns])
    return context.network.groupby([*LINE, "bytes"], sort=True).agg(**columns).reset_index()


def draw(*, runs: pd.DataFrame, context: Context, **_: object) -> Figure:
    """Axes for each system that has a sweep, a line for each of its node counts."""
    rows = data(context=context)
    with style.theme():
        if rows.empty:
            return _frame.empty_figure(TITLE, context=context, runs=runs, words=EMPTY)
        systems = [system for system in _frame.systems(context) if system in set(rows["system"])]
        counts = sorted(rows["nodes"].unique())
        figure, facets = _frame.framed(
            TITLE,
            context=context,
            body_height=2.9 * len(systems),
            handles=_handles(rows, counts),
            notes=_notes(context),
            grid=(len(systems), 1),
        )
        for axes, system in zip(facets, systems, strict=True):
            of_system = rows[rows["system"] == system]
            for (_, nodes, _, stopped), line in of_system.groupby(LINE):
                _draw_line(axes, line, look=_look(int(nodes), counts=counts, hollow=stopped))
            _frame_axes(axes, of_system, of_all=rows)
            if len(systems) > 1:
                axes.set_title(system, loc="left", weight="bold")
        return figure


def caption(*, context: Context, **_: object) -> str:
    """Best bandwidth and latency of each system and node count."""
    rows = data(context=context)
    facts = []
    for (system, nodes, ranks, stopped), line in rows.groupby(LINE):
        best, smallest = line.loc[line["bus_bandwidth_gb_per_s"].idxmax()], line.iloc[0]
        bandwidth, latency = map(wording.significant, (best["bus_bandwidth_gb_per_s"], smallest["latency_us"]))
        runs = _runs(int(best["num_runs"])) + (", stopped" if stopped else "")
        facts.append(
            f"{system}, {wording.nodes(nodes)}, {ranks} ranks: {bandwidth} GB/s at {_size(best['bytes'])}, {latency} µs"
            f" at {_size(smallest['bytes'])} (median of {runs})."
        )
    return _frame.caption(__doc__, facts=[*facts, *_notes(context)] or [f"{EMPTY.capitalize()}."], context=context)


def _notes(context: Context) -> list[str]:
    """What the sweep does not show: runs that were stopped, nodes that were slow."""
    network = context.network
    runs = network.drop_duplicates(["system", "workload", "nodes", "run"])
    stopped = int(runs["stopped"].sum())
    notes = [f"Stopped before the training: {_runs(stopped)}."] if stopped else []
    slow = runs.loc[runs["slow_node"] != "", "slow_node"].value_counts()
    blamed = [f"{name} in {_runs(count)}" for name, count in slow.items()]
    return notes + ([f"Slow against the median node: {wording.joined(blamed)}."] if blamed else [])


def _draw_line(axes: Axes, line: pd.DataFrame, *, look: dict[str, Any]) -> None:
    sizes = line["bytes"]
    least, greatest = (line[f"bus_bandwidth_gb_per_s_{end}"] for end in ("least", "greatest"))
    axes.fill_between(sizes, least, greatest, color=style.tint(look["color"], 0.25), linewidth=0, zorder=1.5)
    axes.plot(sizes, line["bus_bandwidth_gb_per_s"], linewidth=1.4, zorder=3, **look)


def _frame_axes(axes: Axes, rows: pd.DataFrame, *, of_all: pd.DataFrame) -> None:
    """The same axes for all systems, so that they can be compared."""
    ends = [of_all[f"bus_bandwidth_gb_per_s_{end}"] for end in ("least", "greatest")]
    shown = pd.concat([*ends, of_all["min_bus_bandwidth_gb_per_s"].dropna()])
    style.decimal_log_axis(axes, shown, label="bus bandwidth, GB/s")
    axes.set_ylim(shown.min() / 1.5, shown.max() * 1.5)
    ticks = sorted(set(of_all["bytes"]))
    style.doubling_axis(axes.xaxis, ticks, label="message size", margin=0.6)
    axes.set_xticks(ticks, [_size(value) for value in ticks])
    for threshold in rows["min_bus_bandwidth_gb_per_s"].dropna().unique():
        axes.axhline(threshold, **THRESHOLD)


THRESHOLD: dict[str, Any] = {"color": style.GREY, "linewidth": 1.2, "linestyle": (0, (4, 3)), "zorder": 2}


def _look(nodes: int, *, counts: Sequence[int], hollow: bool = False) -> dict[str, Any]:
    place = counts.index(nodes)
    share = place / (len(counts) - 1) if len(counts) > 1 else 1.0
    colour = tuple(float(part) for part in PALE + share * (DARK - PALE))
    mark = {"marker": MARKERS[place % len(MARKERS)], "markersize": 5, "markeredgecolor": colour}
    return {"color": colour, **mark, "markerfacecolor": "white" if hollow else colour}


def _handles(rows: pd.DataFrame, counts: Sequence[int]) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = []
    for nodes in counts:
        ranks = sorted(rows.loc[rows["nodes"] == nodes, "ranks"].unique())
        label = f"{wording.nodes(nodes)}, {wording.joined([str(count) for count in ranks])} ranks"
        handles.append(Line2D([], [], linewidth=1.4, label=label, **_look(nodes, counts=counts)))
    if (rows["bus_bandwidth_gb_per_s_greatest"] > rows["bus_bandwidth_gb_per_s_least"]).any():
        handles.append(Patch(facecolor=(style.GREY, 0.25), label="range of the runs"))
    if rows["min_bus_bandwidth_gb_per_s"].notna().any():
        handles.append(Line2D([], [], label="threshold of the system file", **THRESHOLD))
    if rows["stopped"].any():
        hollow: dict[str, Any] = {"color": style.GREY, "marker": "o", "markersize": 5, "markerfacecolor": "white"}
        handles.append(Line2D([], [], linestyle="", label="runs stopped before the training", **hollow))
    return handles


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _size(value: float) -> str:
    return f"{value / 2**20:.0f} MiB" if value >= 2**20 else f"{value / 2**10:.0f} KiB"
