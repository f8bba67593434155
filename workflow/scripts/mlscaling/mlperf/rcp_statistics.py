"""The arithmetic of the RCP test, in closed form.

MLPerf compares the Olympic mean of a point's epochs (or samples) with the reference's at the same global batch size.
The official checker finds its limit by bisection of a t-test; here is the closed form, with margin and p-value.
Formulas after `rcp_checker.py` of mlperf_logging 4.1.68, verified on every official record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mlscaling.mlperf import rounds
from mlscaling.mlperf.rcp_records import RcpRecord, interpolate

CONFIDENCE: Final = 0.95
"""One-sided; `RCP_Checker.alpha` is 0.05."""
RcpStatus = Literal["exact", "interpolated", "slower_than_smallest", "missing", "no_rcps"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """What the reference needs at a global batch size."""

    status: RcpStatus
    """How it was found."""
    mean: float = math.nan
    """Olympic mean of the reference, epochs or samples."""
    standard_deviation: float = math.nan
    """Of the reference."""
    num_scored: int = 0
    """Reference runs that the test counts, n1."""
    source: str = ""
    """The records it comes from, in words."""


def reference_at(records: Sequence[RcpRecord], global_batch_size: float, *, required_runs: int) -> Reference:
    """The reference at a batch size: its record, a point between two, or the smallest for a batch below all."""
    exact = next((record for record in records if record.global_batch_size == global_batch_size), None)
    low = max((r for r in records if r.global_batch_size < global_batch_size), key=_size, default=None)
    high = min((r for r in records if r.global_batch_size > global_batch_size), key=_size, default=None)
    if not records:
        return Reference(status="no_rcps", source="no records for this benchmark")
    if exact:
        return _reference("exact", exact, f"record at global batch {exact.global_batch_size}")
    if low and high:
        mean, deviation = interpolate(low, high, global_batch_size)
        between = f"interpolated between the records at global batch {_size(low)} and {_size(high)}"
        # The official checker takes an interpolated record for one of 2N runs of which none is trimmed.
        return Reference(
            status="interpolated",
            mean=mean,
            standard_deviation=deviation,
            num_scored=2 * required_runs,
            source=between,
        )
    if high:
        return _reference("slower_than_smallest", high, f"smallest record, at global batch {_size(high)}")
    return Reference(status="missing", source=f"no record at or above global batch {global_batch_size:g}")


def _size(record: RcpRecord) -> int:
    return record.global_batch_size


def _reference(status: RcpStatus, record: RcpRecord, source: str) -> Reference:
    return Reference(
        status=status,
        mean=record.mean,
        standard_deviation=record.standard_deviation,
        num_scored=record.num_scored,
        source=source,
    )


def lower_limit(reference: Reference, num_scored: int) -> float:
    """Smallest mean that passes: m - t(0.95, n1+n2-2) · s · sqrt(1/n1 + 1/n2), and m where s is 0."""
    from scipy.special import stdtrit

    if not reference.standard_deviation > 0:
        return reference.mean
    degrees = reference.num_scored + num_scored - 2
    return max(0.0, reference.mean - float(stdtrit(degrees, CONFIDENCE)) * _standard_error(reference, num_scored))


def p_value(reference: Reference, value: float, num_scored: int) -> float:
    """Probability that runs like the reference's have a mean of at most `value`; NaN where they never vary."""
    from scipy.special import stdtr

    if not reference.standard_deviation > 0:
        return math.nan
    degrees = reference.num_scored + num_scored - 2
    return float(stdtr(degrees, (value - reference.mean) / _standard_error(reference, num_scored)))


def _standard_error(reference: Reference, num_scored: int) -> float:
    return reference.standard_deviation * math.sqrt(1 / reference.num_scored + 1 / num_scored)


def olympic_mean(values: Sequence[float], trimmed: int) -> float:
    """Mean without the `trimmed` smallest and largest; NaN where nothing finite is left."""
    kept = sorted(values)[trimmed : len(values) - trimmed]
    mean = math.fsum(kept) / len(kept) if kept else math.nan
    return mean if math.isfinite(mean) else math.nan


def compare(
    value: float,
    records: Sequence[RcpRecord],
    *,
    benchmark: str,
    ruleset: str,
    global_batch_size: float,
    required_runs: int,
    num_scored: int,
) -> dict[str, Any]:
    """The test of one mean against one set of records, as the keys of `rcp.json` that differ between sets.

    `passed` is None where there is nothing to compare with, False where the official checker asks for a record.
    """
    reference = reference_at(records, global_batch_size, required_runs=required_runs)
    limit = lower_limit(reference, num_scored) - _allowance(benchmark, ruleset)
    # A mean that equals the limit passes, also where the two are sums in different order.
    passes = value >= limit or math.isclose(value, limit, rel_tol=1e-12)
    status = reference.status
    if status == "slower_than_smallest" and not passes:
        status = "missing"
    margin = value - limit
    return {
        "status": status,
        "passed": None if status == "no_rcps" or math.isnan(value) else passes and status != "missing",
        "mean": reference.mean,
        "standard_deviation": reference.standard_deviation,
        "limit": limit,
        "margin": margin,
        "margin_percent": 100 * margin / limit if limit > 0 else math.nan,
        "p_value": p_value(reference, value, num_scored),
        "normalization": max(1.0, reference.mean / value),
        "source": reference.source,
        "n1": reference.num_scored,
        "n2": num_scored,
    }


def _allowance(benchmark: str, ruleset: str) -> float:
    """Samples below the limit that still pass: one evaluation interval for llama31_405b since round 5.0."""
    return 46080.0 if benchmark == "llama31_405b" and rounds.version(ruleset) >= (5, 0) else 0.0
