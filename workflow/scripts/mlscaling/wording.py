"""How numbers, points and findings read in the summary, the captions and the figures: the same words everywhere."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

MISSING = "–"
EMULATED = "emulated nodes on one host"
OLYMPIC_MEAN = "Olympic mean (fastest and slowest runs dropped), not normalised by RCP"


def significant(value: float, digits: int = 3) -> str:
    """Number with that many significant digits, in plain notation: `0.454`, `62.9`, `2,810,000`."""
    if not math.isfinite(value):
        return MISSING
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = digits - 1 - magnitude
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def percent(ratio: float) -> str:
    """`95.6 %`."""
    return f"{100 * ratio:.1f} %" if math.isfinite(ratio) else MISSING


def probability(value: float) -> str:
    """`0.38`; at the ends `<0.001`, `>0.99`."""
    return "<0.001" if value < 0.001 else ">0.99" if value > 0.99 else f"{value:.2g}"


def interval(row: Mapping[str, Any], name: str, *, digits: int = 3) -> str:
    """`1.86 (95 % 1.60 to 2.16)`, without the interval where there is none or no spread."""
    value, low, high = (significant(row[key], digits) for key in (name, f"{name}_low", f"{name}_high"))
    return value if MISSING in (low, high) or low == high else f"{value} (95 % {low} to {high})"


def nodes(count: int) -> str:
    """`1 node`, `8 nodes`."""
    return f"{count} node" if count == 1 else f"{count} nodes"


def joined(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def headline(row: Mapping[str, Any], *, unit: str) -> str:
    """What a scaling row says in a sentence: the decomposition, and what of the convergence the batch size explains.

    Args:
        row: of the scaling table, with a speed-up.
        unit: convergence unit of the point.
    """
    parts = [percent(row[name]) for name in ("efficiency", "throughput_efficiency", "convergence_efficiency")]
    text = f"efficiency {parts[0]} = throughput {parts[1]} × convergence {parts[2]}"
    ratio, inherent, avoidable = row["samples_ratio"], row["inherent_ratio"], row["avoidable_ratio"]
    reference = nodes(row["reference_nodes"])
    if not math.isfinite(ratio):
        return text
    if row["convergence_efficiency_low"] <= 1 <= row["convergence_efficiency_high"]:
        differs = parts[2] != percent(1.0)
        return text + f"; the convergence is not significantly different from that of {reference}" * differs
    text += f"; {ratio:.3f}× the {unit} of {reference}"
    if not math.isfinite(inherent):
        return f"{text}; what of it is inherent is not known without RCPs at both batch sizes"
    rest = f"{avoidable:.3f}× avoidable" if avoidable >= 1 else f"{avoidable:.3f}×, fewer {unit} than by the RCPs"
    return f"{text} = {inherent:.3f}× inherent to the batch size (RCP) × {rest}"


def rcp(row: Mapping[str, Any]) -> str:
    """RCP verdict of a points row with the margin in the unit of convergence: `passed +0.69, p 0.38`."""
    passed, margin, status = row["rcp_passed"], row["rcp_margin"], row["rcp_status"].replace("_", " ")
    if not math.isfinite(margin):
        return (status or MISSING) if pd.isna(passed) or passed else f"FAILED ({status})"
    if pd.isna(passed):
        words = "so far"
    else:
        # A test that is not passed in spite of its margin: the runs do not belong together; the reason says how.
        words = "passed" if passed else "FAILED" if margin < 0 else "not passed"
    text = f"{words} {'+' if margin >= 0 else '−'}{significant(abs(margin))}"
    return text + (f", p {probability(row['rcp_p_value'])}" if math.isfinite(row["rcp_p_value"]) else "")


def rst(text: str) -> str:
    """Text with the characters escaped that reStructuredText gives a meaning, e.g. the `_` of a system's name."""
    return re.sub(r"([\\*`|_<>])", r"\\\1", text)
