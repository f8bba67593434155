"""The arithmetic, against hand-computed cases and a vendor's published ResNet-50 and RNN-T results."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from mlscaling import metrics

INF, NAN = np.inf, np.nan

# MLPerf Training v1.1, Dell R750xa, ResNet-50: nodes → minutes of the five runs, epochs of each run, RCP mean.
R750XA_TRAIN_SAMPLES = 1281167
R750XA = {
    1: ([62.920467, 62.918633, 62.912783, 63.008217, 63.0764], 35, 35.0),
    2: ([32.067667, 32.115667, 32.151133, 32.074083, 32.0711], 35, 35.153846),
    4: ([17.33755, 17.335883, 17.329617, 17.335867, 17.337067], 35, 35.153846),
    8: ([10.595633, 10.536533, 10.5835, 10.578, 10.610683], 45, 42.07),
}


def resampled(times, samples, *, trimmed=1, seed="point", num_resamples=metrics.NUM_RESAMPLES):
    quantities = {"time": times, "samples": samples}
    generator = metrics.generator_of(seed)
    return metrics.resampled_means(quantities, trimmed=trimmed, generator=generator, num_resamples=num_resamples)


def decompose(point, reference, *, node_ratio):
    return metrics.decompose(
        time=point["time"],
        samples=point["samples"],
        reference_time=reference["time"],
        reference_samples=reference["samples"],
        node_ratio=node_ratio,
    )


def r750xa(nodes):
    times, epochs, _ = R750XA[nodes]
    return resampled(times, [epochs * R750XA_TRAIN_SAMPLES] * 5, seed=f"n{nodes}")


@pytest.mark.parametrize(
    ("values", "trimmed", "mean"),
    [
        pytest.param([5, 1, 3, 2, 4], 1, 3.0, id="middle three"),
        pytest.param([5, 1, INF, 2, 4], 1, 11 / 3, id="one aborted run is dropped as the slowest"),
        pytest.param([5, 1, INF, INF, 4], 1, NAN, id="two are not"),
        pytest.param([1, 2], 1, NAN, id="two runs have no middle"),
        pytest.param([7, 1, 9], 1, 7.0, id="three runs have one"),
        pytest.param([], 1, NAN, id="no run"),
        pytest.param([3, 5], 0, 4.0, id="plain mean"),
        pytest.param([*range(36), INF, INF, INF, INF], 4, 19.5, id="unet3d drops four of forty at each end"),
        pytest.param([1, 2, 3, 4, NAN], 1, NAN, id="an unknown time is not the slowest"),
        pytest.param([1, NAN, 3, 4, INF], 1, NAN, id="nor hides behind one that is"),
        pytest.param([54, 54, 57, 55, 57, 56, 57, 54, 56, INF], 1, 55.75, id="RNN-T with an aborted run, MLPerf v1.1"),
    ],
)
def test_olympic_mean(values, trimmed, mean):
    assert float(metrics.olympic_mean(values, trimmed=trimmed)) == pytest.approx(mean, rel=1e-15, nan_ok=True)


def test_olympic_mean_works_on_the_last_axis():
    values = np.array([[[3, 1, 2], [6, 4, 5]], [[9, 7, 8], [1, INF, INF]]])
    np.testing.assert_array_equal(metrics.olympic_mean(values, trimmed=1), [[2, 5], [8, NAN]])


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1, 2, 3, 4, 5], ""),
        ([1, 2, 3, 4, INF], ""),
        ([1, 2, 3, INF, INF], "2 of 5 runs did not converge, failed or are missing; at most 1 may"),
        ([1, 2], "2 runs planned; a mean without the fastest and slowest needs at least 3"),
        ([1], "1 run planned"),
        ([1, 2, 3, NAN, 5], "1 run without a time"),
    ],
)
def test_no_score_reason(times, words):
    reason = metrics.no_score_reason(times, trimmed=1)
    assert reason.startswith(words)
    assert bool(reason) == bool(np.isnan(metrics.olympic_mean(times, trimmed=1)))


def test_epochs_are_sorted_on_their_own_not_by_time():
    # The fastest run is not the one with fewest epochs; the RCP checker drops 30 and 50.
    assert metrics.epochs_to_converge([50, 36, 35, 34, 30], trimmed=1) == 35


@pytest.mark.parametrize(
    ("num", "required", "label"),
    [(5, 5, "complete"), (6, 5, "complete"), (5, 10, "incomplete, 5 of 10"), (0, 5, "incomplete, 0 of 5")],
)
def test_completeness(num, required, label):
    assert metrics.completeness(num, required=required) == label


@pytest.mark.parametrize(
    ("nodes", "time", "speedup", "efficiency", "throughput", "convergence"),
    [
        (1, 62.949, 1.00, 1.0, 1.0, 1.0),
        (2, 32.087, 1.96, 0.981, 0.981, 1.0),
        (4, 17.336, 3.63, 0.908, 0.908, 1.0),
        (8, 10.586, 5.95, 0.743, 0.956, 0.778),
    ],
)
def test_published_resnet_study(nodes, time, speedup, efficiency, throughput, convergence):
    point = r750xa(nodes)
    parts = decompose(point, r750xa(1), node_ratio=nodes)
    assert point["time"][0] == pytest.approx(time, abs=1e-3)
    assert parts.speedup[0] == pytest.approx(speedup, abs=5e-3)
    assert parts.efficiency[0] == pytest.approx(efficiency, abs=5e-4)
    assert parts.throughput_efficiency[0] == pytest.approx(throughput, abs=5e-4)
    assert parts.convergence_efficiency[0] == pytest.approx(convergence, abs=5e-4)


def test_published_resnet_study_splits_the_epochs():
    parts = decompose(r750xa(8), r750xa(1), node_ratio=8)
    inherent, avoidable = metrics.split_samples_ratio(
        float(parts.samples_ratio[0]), rcp=R750XA[8][2], reference_rcp=R750XA[1][2]
    )
    assert (inherent, avoidable) == (pytest.approx(1.202, abs=5e-4), pytest.approx(1.070, abs=5e-4))
    assert inherent * avoidable == pytest.approx(float(parts.samples_ratio[0]), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_identities_hold_for_values_and_every_resample(seed):
    generator = np.random.default_rng(seed)
    points = [
        resampled(generator.lognormal(3, 0.3, 10), generator.lognormal(15, 0.2, 10), seed=f"{seed}{name}")
        for name in "ab"
    ]
    parts = decompose(*points, node_ratio=3)
    product = parts.throughput_efficiency * parts.convergence_efficiency
    np.testing.assert_allclose(product, parts.efficiency, rtol=1e-12)
    np.testing.assert_allclose(parts.speedup / 3, parts.efficiency, rtol=1e-12)
    assert np.isfinite(parts.efficiency).all()


def test_reference_scales_to_itself_without_spread():
    point = r750xa(1)
    parts = decompose(point, point, node_ratio=1)
    assert metrics.interval(parts.speedup) == metrics.Interval(value=1, low=1, high=1)


def test_super_linear_rnnt_is_above_one():
    # MLPerf Training v1.1, Dell XE8545, RNN-T on one and two nodes.
    one = [106.118817, 109.01705, 98.881667, 105.368483, 107.5673, 108.41975, 102.520033, 104.493517, 108.82845]
    two = [35.406083, 35.38305, 35.366667, 33.474733, 36.04185, 35.353483, 34.113867, 35.403983, 38.428767]
    one, two = [*one, 114.335117], [*two, 32.855]
    epochs_one, epochs_two = [56, 57, 52, 55, 57, 57, 54, 55, 57, 60], [57, 57, 57, 54, 58, 57, 55, 57, 62, 53]
    parts = decompose(resampled(two, epochs_two, seed="two"), resampled(one, epochs_one, seed="one"), node_ratio=2)
    efficiency = metrics.interval(parts.efficiency)
    assert metrics.interval(parts.speedup).value == pytest.approx(3.04, abs=5e-3)
    assert efficiency.value == pytest.approx(1.519, abs=5e-4)
    assert efficiency.above_one
    assert parts.convergence_efficiency[0] == pytest.approx(0.9912, abs=5e-5)


def test_one_resample_draws_the_same_runs_for_every_quantity():
    # Time proportional to samples: throughput has no spread, which independent draws would not reproduce.
    samples = np.array([30.0, 35, 40, 33, 50])
    point = resampled(samples * 0.25, samples)
    throughput = point["samples"] / point["time"]
    np.testing.assert_allclose(throughput, 4.0, rtol=1e-12)
    assert metrics.interval(point["time"]).low < metrics.interval(point["time"]).high


def test_intervals_depend_on_the_identity_only():
    times = [5.0, 5.5, 6.0, 5.2, 5.9]
    first, same, other = (resampled(times, times, seed=seed)["time"] for seed in ("a", "a", "b"))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    assert first.size == 1 + 10_000


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([5, 6, 7, INF, INF], (NAN, NAN, NAN), id="no score, no interval"),
        pytest.param([5, 6], (NAN, NAN, NAN), id="too few runs"),
        pytest.param([], (NAN, NAN, NAN), id="no runs"),
        pytest.param([5, 5, 5, 5, 5], (5, 5, 5), id="no spread"),
        pytest.param([5, 5, 5, 5, INF], (5, 5, 5), id="resamples without a score are left out"),
    ],
)
def test_interval_of_edge_cases(times, expected):
    interval = metrics.interval(resampled(times, times)["time"])
    assert (interval.value, interval.low, interval.high) == pytest.approx(expected, nan_ok=True)


def test_interval_is_the_middle_95_percent_of_the_resamples():
    values = np.concatenate([[7.0], np.arange(1001.0)])
    interval = metrics.interval(values)
    assert (interval.value, interval.low, interval.high) == pytest.approx((7, 25, 975), rel=1e-12)


def test_interval_covers_the_true_value_about_as_often_as_it_says():
    # Forty runs, untrimmed: the percentile interval is close to its nominal 95 %; a wrong tail or axis is not.
    generator, hits = np.random.default_rng(1), 0
    for trial in range(200):
        times = generator.normal(10, 1, 40)
        interval = metrics.interval(resampled(times, times, trimmed=0, seed=str(trial), num_resamples=1000)["time"])
        hits += interval.low <= 10 <= interval.high
    assert 0.90 <= hits / 200 <= 0.99


@pytest.mark.parametrize(
    ("low", "high", "significant", "above"),
    [
        (1.2, 1.4, True, True),
        (0.9, 1.1, False, False),
        (0.7, 0.9, True, False),
        (1.0, 1.4, False, False),
        (NAN, NAN, False, False),
    ],
)
def test_significant_when_the_interval_excludes_one(low, high, significant, above):
    interval = metrics.Interval(value=1, low=low, high=high)
    assert (interval.significant, interval.above_one) == (significant, above)


def test_normalized_time():
    assert metrics.normalized_time(32.08695, normalization=35.153846 / 35) == pytest.approx(32.228, abs=1e-3)
    assert np.isnan(metrics.normalized_time(32.08695, normalization=NAN))


def test_scores_of_all_published_groups(shared_data: Path):
    """Every system × benchmark group of the Dell v1.1 tree equals the independently computed score."""
    times: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader((shared_data / "dell_v1.1_runs.csv").open()):
        minutes = float(row["ttt_min"]) if row["status"] == "success" else INF
        times.setdefault((row["system"], row["benchmark"]), []).append(minutes)
    compared = 0
    for row in csv.DictReader((shared_data / "dell_v1.1_scores.csv").open()):
        trimmed = 4 if row["benchmark"] == "unet3d" else 1
        score = float(metrics.olympic_mean(times[row["system"], row["benchmark"]], trimmed=trimmed))
        assert score == pytest.approx(float(row["score_olympic_min"]), abs=1e-3), row
        compared += 1
    assert compared == 51
