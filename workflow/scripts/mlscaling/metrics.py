"""The arithmetic of a scaling study: Olympic means, speed-up, its decomposition, and their confidence intervals.

A quantity with an interval is an array whose element 0 is the measured value and whose other elements are bootstrap
resamples of it. Every formula then works on measured values and resamples alike, so that an identity which holds for
the values holds for each resample too. Runs that did not converge, failed or are missing have infinite values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A measured value and its 95 % confidence interval; all NaN where there is none."""

    value: float
    """As measured."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""

    @property
    def significant(self) -> bool:
        """Whether the interval of a ratio excludes 1, i.e. no change."""
        return self.low > 1 or self.high < 1

    @property
    def above_one(self) -> bool:
        """Whether all of the interval is above 1: for an efficiency, a finding that asks for an explanation."""
        return self.low > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Decomposition:
    """Scaling of a point against the reference point of its curve; resamples as the module says."""

    speedup: Array
    """Time of the reference ÷ time of the point."""
    efficiency: Array
    """Speed-up ÷ ratio of the node counts."""
    throughput_efficiency: Array
    """Ratio of the samples per second ÷ ratio of the node counts."""
    convergence_efficiency: Array
    """Samples to converge of the reference ÷ those of the point."""
    samples_ratio: Array
    """Inverse of the convergence efficiency."""


def olympic_mean(values: ArrayLike, *, trimmed: int) -> Array:
    """Mean over the last axis without the `trimmed` smallest and the `trimmed` largest values.

    MLPerf training_rules, "Benchmark Results": the fastest and the slowest runs are dropped; up to `trimmed` runs that
    did not converge (infinite) count as the slowest. NaN where more are infinite, where fewer than 2 · trimmed + 1
    values are left to drop from, or where a value is NaN: an unknown number must not hide among the dropped ones.
    """
    sorted_values = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    num_values = sorted_values.shape[-1]
    if num_values < 2 * trimmed + 1:
        return np.full(sorted_values.shape[:-1], np.nan)
    mean = sorted_values[..., trimmed : num_values - trimmed].mean(axis=-1)
    # Sorting puts NaN last, behind infinity.
    return np.where(np.isfinite(mean) & ~np.isnan(sorted_values[..., -1]), mean, np.nan)


def epochs_to_converge(epochs: ArrayLike, *, trimmed: int) -> float:
    """Olympic mean of the sorted epochs (or samples) of a point, as the RCP checker of mlperf_logging takes it.

    The runs dropped here are those with fewest and most epochs, which need not be the fastest and the slowest.
    """
    return float(olympic_mean(epochs, trimmed=trimmed))


def no_score_reason(times: ArrayLike, *, trimmed: int) -> str:
    """Why these runs have no Olympic mean, in words; empty if they have one."""
    times = np.asarray(times, dtype=np.float64)
    num_infinite = int(np.isinf(times).sum())
    if times.size < 2 * trimmed + 1:
        return f"{_runs(times.size)} planned; a mean without the fastest and slowest needs at least {2 * trimmed + 1}"
    if np.isnan(times).any():
        return f"{_runs(int(np.isnan(times).sum()))} without a time"
    if num_infinite > trimmed:
        return f"{num_infinite} of {times.size} runs did not converge, failed or are missing; at most {trimmed} may"
    return ""


def completeness(num_runs: int, *, required: int) -> str:
    """`complete`, or `incomplete, 5 of 10` where a round requires more runs than there are logs of."""
    return "complete" if num_runs >= required else f"incomplete, {num_runs} of {required}"


def normalized_time(time_min: float, *, normalization: float) -> float:
    """Time with the factor max(1, RCP mean ÷ epochs) of a passed RCP test; NaN without one."""
    return time_min * normalization


def generator_of(identity: str) -> np.random.Generator:
    """Random numbers that depend on `identity` only, so that adding a point moves no interval of another."""
    digest = hashlib.sha256(identity.encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def resampled_means(
    quantities: Mapping[str, ArrayLike],
    *,
    trimmed: int,
    generator: np.random.Generator,
    num_resamples: int = NUM_RESAMPLES,
) -> dict[str, Array]:
    """Olympic means of several quantities of the same runs, as measured and for bootstrap resamples of the runs.

    One resample draws the same runs for every quantity, because time and samples of a run belong together. A resample
    without a score (too many runs that did not converge) is NaN: intervals are those of points that have a score.

    Args:
        quantities: name → one value per run, in the same order of runs.
        trimmed: runs dropped at each end.
        generator: source of the resamples.
        num_resamples: resamples; fewer than 10 000 only in tests.

    Returns:
        Name → array of 1 + `num_resamples` means, element 0 as measured.
    """
    runs = np.stack([np.asarray(values, dtype=np.float64) for values in quantities.values()])
    num_runs = runs.shape[1]
    if num_runs == 0:
        return {name: np.full(1 + num_resamples, np.nan) for name in quantities}
    drawn = generator.integers(num_runs, size=(num_resamples, num_runs))
    measured = olympic_mean(runs, trimmed=trimmed)
    resampled = olympic_mean(runs[:, drawn], trimmed=trimmed)
    # Without a measured value there is nothing that an interval could belong to.
    resampled[np.isnan(measured)] = np.nan
    means = np.concatenate([measured[:, None], resampled], axis=1)
    return dict(zip(quantities, means, strict=True))


def decompose(
    *, time: Array, samples: Array, reference_time: Array, reference_samples: Array, node_ratio: float
) -> Decomposition:
    """Speed-up over the reference point, and efficiency = throughput efficiency × convergence efficiency.

    Throughput is samples ÷ time of the Olympic means, which makes the identity exact.

    Args:
        time, samples: Olympic means of the point, element 0 as measured, then resamples.
        reference_time, reference_samples: the same of the smallest measured node count, drawn independently.
        node_ratio: nodes ÷ nodes of the reference.
    """
    speedup = reference_time / time
    throughput_ratio = (samples / time) / (reference_samples / reference_time)
    return Decomposition(
        speedup=speedup,
        efficiency=speedup / node_ratio,
        throughput_efficiency=throughput_ratio / node_ratio,
        convergence_efficiency=reference_samples / samples,
        samples_ratio=samples / reference_samples,
    )


def split_samples_ratio(samples_ratio: float, *, rcp: float, reference_rcp: float) -> tuple[float, float]:
    """Inherent and avoidable factor of the samples ratio: what the batch size costs by the RCPs, and the rest.

    Args:
        samples_ratio: samples to converge ÷ those of the reference point.
        rcp: RCP mean at the point's global batch size, NaN if there is none.
        reference_rcp: RCP mean at the reference point's global batch size, in the same unit.
    """
    inherent = rcp / reference_rcp
    return inherent, samples_ratio / inherent


def interval(resampled: Array, *, confidence: float = CONFIDENCE) -> Interval:
    """Measured value with its percentile interval; resamples without a value are left out.

    With few runs the bootstrap is a little too narrow: for normally distributed times the nominal 95 % cover the true
    value in 90 % of the cases with 5 runs, in 93 % with 10, in 95 % with 40 (1,500 simulations each).
    """
    measured, resamples = float(resampled[0]), resampled[1:][~np.isnan(resampled[1:])]
    if np.isnan(measured) or resamples.size == 0:
        return Interval(value=measured, low=np.nan, high=np.nan)
    tail = (1 - confidence) / 2
    low, high = np.quantile(resamples, [tail, 1 - tail])
    return Interval(value=measured, low=float(low), high=float(high))


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
