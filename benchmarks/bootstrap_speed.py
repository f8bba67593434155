"""Bootstrap of one point: vectorised against a loop over the resamples, side by side, as a ratio.

Run with `python benchmarks/bootstrap_speed.py`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow" / "scripts"))

from mlscaling import metrics


def in_a_loop(times: np.ndarray, *, trimmed: int, generator: np.random.Generator) -> list[float]:
    """What the vectorised resampling replaces."""
    drawn = (generator.choice(times, size=times.size) for _ in range(metrics.NUM_RESAMPLES))
    return [float(metrics.olympic_mean(sample, trimmed=trimmed)) for sample in drawn]


def best_of(repeats: int, action) -> float:
    """Shortest time of several, seconds."""
    durations = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        durations.append(time.perf_counter() - start)
    return min(durations)


def main() -> None:
    """Print one line for each number of runs that MLPerf requires."""
    for num_runs, trimmed in ((5, 1), (10, 1), (40, 4)):
        times = np.random.default_rng(0).normal(30, 1, num_runs)

        def vectorised(times=times, trimmed=trimmed) -> None:
            metrics.resampled_means({"time": times}, trimmed=trimmed, generator=metrics.generator_of("point"))

        def looped(times=times, trimmed=trimmed) -> None:
            in_a_loop(times, trimmed=trimmed, generator=metrics.generator_of("point"))

        fast, slow = best_of(5, vectorised), best_of(2, looped)
        print(f"{num_runs:2d} runs, {metrics.NUM_RESAMPLES} resamples: {1e3 * fast:.1f} ms, {slow / fast:.0f}× a loop")


if __name__ == "__main__":
    main()
