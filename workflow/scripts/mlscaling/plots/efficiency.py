"""Scaling efficiency of each point, split into its two factors: efficiency = throughput × convergence.

Bars are the efficiency: speed-up ÷ ratio of the node counts. Triangles are the throughput efficiency (samples per
second and node, against the smallest measured node count), diamonds the convergence efficiency (samples to converge
there ÷ samples to converge here); the product of the two is the bar. Whiskers are 95 % bootstrap intervals over runs.
Hatched bars have fewer runs than the round requires, hollow bars are invalid or compared with an invalid point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mlscaling import wording
from mlscaling.plots import Context, _frame, style

TITLE = "Scaling efficiency = throughput efficiency × convergence efficiency"
PARTS = {"throughput_efficiency": ("^", -0.17, "throughput"), "convergence_efficiency": ("D", 0.17, "convergence")}
NOTE = (
    f"Relative to the smallest measured node count. Times: {wording.OLYMPIC_MEAN}. "
    "Whiskers: 95 % bootstrap intervals over runs."
)
INK = "#303030"


def data(*, scaling: pd.DataFrame, **_: object) -> pd.DataFrame:
    """One row per point: the three efficiencies with their intervals, and what the batch size explains."""
    parts = [f"{name}{end}" for name in ("efficiency", *PARTS) for end in ("", "_low", "_high")]
    ratios = ["samples_ratio", "inherent_ratio", "avoidable_ratio"]
    return scaling[["system", "workload", "nodes", "reference_nodes", *parts, *ratios, "finding", "verdict"]]


def draw(*, runs: pd.DataFrame, points: pd.DataFrame, scaling: pd.DataFrame, context: Context) -> Figure:
    """Axes for each curve, a group of bar, triangle and diamond for each node count."""
    rows = data(scaling=scaling)
    with style.theme():
        if rows["efficiency"].isna().all():
            return _frame.empty_figure(TITLE, context=context, runs=runs)
        curves = _frame.curves(points)
        most = rows.groupby(["system", "workload"]).size().max()
        num_columns = 1 if len(curves) == 1 or most > 4 else 2 if most > 2 or len(curves) <= 4 else 3
        num_rows = -(-len(curves) // num_columns)
        figure, facets = _frame.framed(
            TITLE,
            context=context,
            body_height=2.6 * num_rows + 0.4 * (num_rows == 1),
            handles=_handles(rows),
            notes=[NOTE, *_frame.finding_notes(scaling, context=context)],
            grid=(num_rows, num_columns),
        )
        top = max(1.12, 1.08 * rows[["efficiency_high", *(f"{name}_high" for name in PARTS)]].max(axis=None))
        for axes, (system, workload) in zip(facets, curves, strict=False):
            curve = rows[(rows["system"] == system) & (rows["workload"] == workload)].sort_values("nodes")
            _draw_curve(axes, curve, colour=style.colour(workload), top=top, min_places=3 if num_columns == 1 else 1)
            axes.set_title(_frame.curve_title(context, system, workload), loc="left", weight="bold")
        for axes in facets[len(curves) :]:
            axes.set_visible(False)
        for axes in facets[::num_columns]:
            axes.set_ylabel("efficiency")
        return figure


def caption(*, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, **_: object) -> str:
    """The decomposition of each measured point behind the first of its curve."""
    units = points.set_index(["system", "workload", "nodes"])["convergence_unit"]
    facts = []
    for _, row in scaling[scaling["efficiency"].notna()].iterrows():
        if row["nodes"] == row["reference_nodes"]:
            continue
        unit = units[row["system"], row["workload"], row["nodes"]]
        title = f"{_frame.curve_title(context, row['system'], row['workload'])}, {wording.nodes(row['nodes'])}"
        finding = f" ({row['finding']})" if row["finding"] else ""
        facts.append(f"{title}: {wording.headline(row, unit=unit)}{finding}.")
    if not facts and scaling["efficiency"].notna().any():
        facts = ["No curve has been measured on more than one node count, so there is no efficiency to split."]
    return _frame.caption(__doc__, facts=facts, context=context)


def _draw_curve(axes: Axes, curve: pd.DataFrame, *, colour: str, top: float, min_places: int) -> None:
    axes.axhline(1, color=style.GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    for place, (_, row) in enumerate(curve.iterrows()):
        if pd.isna(row["efficiency"]):
            continue
        axes.bar(place, row["efficiency"], width=0.72, zorder=2, **_bar_look(row["verdict"], colour=colour))
        _whisker(axes, x=place, row=row, name="efficiency", colour=colour)
        for name, (marker, aside, _) in PARTS.items():
            _whisker(axes, x=place + aside, row=row, name=name, colour=INK)
            look: dict[str, Any] = {"color": INK, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.6}
            axes.plot(place + aside, row[name], marker=marker, linestyle="", zorder=4, **look)
    axes.set_xticks(range(len(curve)), [_tick_label(row) for _, row in curve.iterrows()])
    beside = max(0, min_places - len(curve)) / 2  # a bar does not fill wide axes
    axes.set_xlim(-0.6 - beside, len(curve) - 0.4 + beside)
    axes.set_ylim(0, top)
    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.tick_params(axis="x", length=0)


def _tick_label(row: pd.Series) -> str:
    nodes = wording.nodes(row["nodes"])
    if pd.isna(row["efficiency"]) or row["nodes"] == row["reference_nodes"]:
        return f"{nodes}\n{'no score' if pd.isna(row['efficiency']) else 'reference'}\n\n"
    throughput, convergence, product = (100 * row[name] for name in (*PARTS, "efficiency"))
    return f"{nodes}\n{throughput:.1f}\n× {convergence:.1f}\n= {product:.1f} %"


def _bar_look(verdict: str, *, colour: str) -> dict[str, Any]:
    faces: dict[str, dict[str, Any]] = {
        "valid": {"facecolor": style.tint(colour, 0.42)},
        "incomplete": {"facecolor": style.tint(colour, 0.15), "hatch": "///"},
        "invalid": {"facecolor": "white", "linestyle": (0, (3, 2))},
    }
    return faces[verdict] | {"edgecolor": colour, "linewidth": 1.2}


def _whisker(axes: Axes, *, x: float, row: pd.Series, name: str, colour: str) -> None:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if high > low:
        ends = [[max(value - low, 0)], [max(high - value, 0)]]
        axes.errorbar(x, value, yerr=ends, fmt="none", color=colour, linewidth=1.1, capsize=2.5, zorder=3)


def _handles(rows: pd.DataFrame) -> Sequence[Line2D | Patch]:
    handles: list[Line2D | Patch] = [Patch(label="efficiency", **_bar_look("valid", colour=style.GREY))]
    for marker, _, label in PARTS.values():
        handles.append(
            Line2D([], [], linestyle="", marker=marker, color=INK, markersize=5.5, label=f"{label} efficiency")
        )
    present = set(rows.loc[rows["efficiency"].notna(), "verdict"])
    for verdict, label in style.VERDICT_LABELS.items():
        if verdict in present:
            handles.append(Patch(label=label, **_bar_look(verdict, colour=style.GREY)))
    handles.append(Line2D([], [], color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, label="100 %: linear scaling"))
    return handles
