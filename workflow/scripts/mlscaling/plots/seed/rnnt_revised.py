"""Speed-up from one to two PowerEdge XE8545 nodes, with the RNN-T times that the vendor's text gives.

Full markers rest on the published logs, with the 95 % bootstrap interval over runs. Hollow markers divide a one-node
time stated in the vendor's text, which MLCommons has not verified, by the published two-node time. The text gives the
published one-node time otherwise than its logs, and the revised one with two values; all are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MultipleLocator
from mlscaling.plots import Context, _frame, style
from mlscaling.seed_text import Claim

TITLE = "Speed-up from 1 to 2 PowerEdge XE8545, with the revised RNN-T times"
LOGS = "published logs"
TEXT = "vendor's text"
INTERVAL = ["speedup", "speedup_low", "speedup_high"]


def data(*, points: pd.DataFrame, scaling: pd.DataFrame, claims: Sequence[Claim], **_: object) -> pd.DataFrame:
    """One row per workload from its logs, then one per claimed time of the workload that the claims are about."""
    rows = [
        _of_logs(row, points=points) for _, row in scaling[scaling["nodes"] != scaling["reference_nodes"]].iterrows()
    ]
    rows += [_of_claim(claim, points=points) for claim in claims]
    # Claims stand next to the workload that they are about, which comes last.
    claimed = {claim.benchmark for claim in claims}
    rows.sort(key=lambda row: (row["workload"] in claimed, row["source"] == TEXT))
    return pd.DataFrame(rows)


def draw(
    *, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, claims: Sequence[Claim], **_: object
) -> Figure:
    """A row for each speed-up."""
    rows = data(points=points, scaling=scaling, claims=claims)
    with style.theme():
        notes = [*_discrepancies(rows), *(f"† {note}" for note in _frame.finding_notes(scaling, context=context))]
        figure, (axes,) = _frame.framed(
            TITLE, context=context, body_height=0.36 * len(rows) + 0.75, handles=_handles(), notes=notes
        )
        axes.axvline(2, color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, zorder=1.5)
        for place, (_, row) in enumerate(rows.iterrows()):
            _draw_row(axes, row, place=place)
        axes.set_yticks(range(len(rows)), [_label(row, context=context) for _, row in rows.iterrows()])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(1, 3.6)
        axes.xaxis.set_major_locator(MultipleLocator(0.5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
        axes.set_xlabel("speed-up from 1 to 2 nodes")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        return figure


def caption(
    *, points: pd.DataFrame, scaling: pd.DataFrame, context: Context, claims: Sequence[Claim], **_: object
) -> str:
    """Every row in a sentence, then what disagrees."""
    rows = data(points=points, scaling=scaling, claims=claims)
    facts = [
        f"{_frame.workload_title(context, row['workload'])}, {row['what']}: {row['minutes_1_node']:g} → "
        f"{row['minutes_2_nodes']:.3f} minutes, speed-up {row['speedup']:.3f}"
        + ("." if row["verified"] else ", unverified.")
        for _, row in rows.assign(minutes_1_node=rows["minutes_1_node"].round(3)).iterrows()
    ]
    return _frame.caption(__doc__, facts=[*facts, *_discrepancies(rows)], context=context)


def _of_logs(row: pd.Series, *, points: pd.DataFrame) -> dict[str, Any]:
    times = _times(points, row["workload"])
    return {
        "workload": row["workload"],
        "what": LOGS,
        "source": LOGS,
        "minutes_1_node": times[row["reference_nodes"]],
        "minutes_2_nodes": times[row["nodes"]],
        **{name: row[name] for name in INTERVAL},
        "verified": True,
        "finding": row["finding"],
    }


def _of_claim(claim: Claim, *, points: pd.DataFrame) -> dict[str, Any]:
    two_nodes = _times(points, claim.benchmark)[2]
    return {
        "workload": claim.benchmark,
        "what": claim.what,
        "source": TEXT,
        "minutes_1_node": claim.value,
        "minutes_2_nodes": two_nodes,
        **dict.fromkeys(INTERVAL, claim.value / two_nodes),
        "verified": claim.verified,
        "finding": "",
    }


def _times(points: pd.DataFrame, workload: str) -> dict[int, float]:
    mine = points[points["workload"] == workload]
    return dict(zip(mine["nodes"], mine["time_to_train_min"], strict=True))


def _discrepancies(rows: pd.DataFrame) -> list[str]:
    """What the text and the logs, or the text and itself, say differently."""
    notes = []
    for what, claims in rows[rows["source"] == TEXT].groupby("what", sort=False):
        values = " and ".join(f"{value:g}" for value in claims["minutes_1_node"])
        if len(claims) > 1:
            notes.append(f"The text gives the {what} one-node time as both {values} minutes.")
            continue
        logs = rows[(rows["source"] == LOGS) & (rows["workload"] == claims["workload"].iloc[0])].iloc[0]
        notes.append(
            f"The text gives the {what} one-node time as {values} minutes; its logs give {logs['minutes_1_node']:.2f}."
        )
    return notes


def _draw_row(axes: Axes, row: pd.Series, *, place: int) -> None:
    colour = style.colour(row["workload"])
    value, low, high = row[INTERVAL]
    axes.hlines(place, 1, value, color=style.tint(colour, 0.45), linewidth=1.4, zorder=1.8)
    if high > low:
        axes.errorbar(
            value, place, xerr=[[value - low], [high - value]], fmt="none", color=colour, capsize=2.5, zorder=3
        )
    fill = style.verdict_fill("valid" if row["verified"] else "invalid", colour=colour)
    face = {} if row["verified"] else {"markerfacecolor": "white", "fillstyle": "full"}
    axes.plot(value, place, marker=style.marker(row["workload"]), markersize=6.5, linestyle="", zorder=4, **fill | face)
    words = f"{value:.2f}×" + (" †" if row["finding"] else "") + ("" if row["verified"] else " unverified")
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # the ideal line passes behind
    axes.annotate(words, (max(value, high), place), xytext=(9, 0), textcoords="offset points", va="center", bbox=box)


def _label(row: pd.Series, *, context: Context) -> str:
    title = _frame.workload_title(context, row["workload"])
    named = title if row["source"] == LOGS else f"{title}, {row['what']} in text"
    return f"{named}\n{row['minutes_1_node']:.2f} → {row['minutes_2_nodes']:.2f} min"


def _handles() -> list[Line2D]:
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6, "color": style.GREY}
    return [
        Line2D([], [], label="from published logs, 95 % interval", **look),
        Line2D([], [], label="from a time in the vendor's text, unverified", markerfacecolor="white", **look),
        Line2D([], [], color=style.GREY, linestyle=(0, (4, 3)), linewidth=1, label="ideal"),
    ]
