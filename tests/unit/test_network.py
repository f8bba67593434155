"""The network's arithmetic, its table, its figure and its note in the summary."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import synthetic_study as made
from mlscaling import network, network_table, plots, summary, tables
from test_tables import run_adapter, write_study


@pytest.mark.parametrize("nodes", range(1, 10))
def test_a_ring_measures_every_node_with_both_neighbours_one_at_a_time(nodes: int) -> None:
    phases = network.ring_phases(nodes)
    links = [link for phase in phases for link in phase]
    for phase in phases:
        ends = [node for link in phase for node in link]
        assert len(ends) == len(set(ends))
    assert len({frozenset(link) for link in links}) == len(links) == (nodes if nodes > 2 else nodes - 1)
    degrees = {node: sum(node in link for link in links) for node in range(nodes)}
    assert set(degrees.values()) == {min(nodes - 1, 2)}


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """Their doc/PERFORMANCE.md: all-reduce, busbw = algbw × 2 (n−1) ÷ n."""
    row = network.sweep_row(10**9, seconds=0.1, ranks=8, repetitions=5)
    assert (row["algorithm_bandwidth_gb_per_s"], row["bus_bandwidth_gb_per_s"]) == (10, 17.5)
    assert row["latency_us"] == pytest.approx(1e5)
    assert network.sweep_row(4096, seconds=1, ranks=2, repetitions=5)["bus_bandwidth_gb_per_s"] == 4.096e-6


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [4096]), (2**20, [4096, 16384, 65536, 262144, 1048576]), (65535, [4096, 16384])]
)
def test_message_sizes(largest: int, sizes: list[int]) -> None:
    assert network.message_sizes(largest) == sizes


def ring(*bandwidths: float) -> list[dict]:
    """Links of a ring of as many nodes, a, b, c …"""
    count = len(bandwidths)
    return [
        {"nodes": ["abcdef"[n], "abcdef"[(n + 1) % count]], "bandwidth_gb_per_s": value, "latency_us": 10 / value}
        for n, value in enumerate(bandwidths)
    ]


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        (ring(1, 1, 10), ("b", 1, 10, True)),  # three nodes: b's two links are slow
        (ring(10, 10, 1, 1), ("d", 1, 10, True)),
        (ring(10, 10, 1, 10), ("a", 10, 10, False)),  # one bad cable is no bad node
        (ring(10, 7, 7, 10, 10), ("c", 7, 10, False)),
        (ring(10, 10, 5, 5, 10, 10), ("d", 5, 10, True)),  # half its rate
        (ring(1, 1)[:1], None),  # of two nodes either may be slow
        ([], None),
    ],
)
def test_slowest_node(links: list[dict], expected: tuple | None) -> None:
    for by, factor in (("bandwidth_gb_per_s", 1), ("latency_us", -1)):
        found = network.slowest_node(links, by=by)
        if expected is None:
            assert found is None
        else:
            node, value, median, slow = expected
            assert (found["node"], found["slow"]) == (node, slow)
            assert (found["value"], found["median"]) == tuple(
                number if factor == 1 else 10 / number for number in (value, median)
            )


# --- the table --------------------------------------------------------------------------------------------------------


@cache
def long_curve() -> made.Study:
    return made.long_curve()


def test_table_has_a_row_for_each_run_and_size_also_of_runs_that_were_stopped() -> None:
    table = long_curve().network
    assert len(table) == 8 * (5 + 5 + 4 + 5)
    assert not table[table["nodes"] == 1]["stopped"].any()
    stopped = table[table["stopped"]]
    assert set(zip(stopped["nodes"], stopped["run"], strict=True)) == {(2, 4)}
    assert set(table["ranks"] / table["nodes"]) == {4}
    row = table[(table["nodes"] == 8) & (table["run"] == 2)].iloc[-1]
    assert (row["bytes"], row["slow_node"], row["backend"]) == (2**26, "gpu3", "nccl")
    assert pd.isna(row["min_bus_bandwidth_gb_per_s"])
    assert table["best_bus_bandwidth_gb_per_s"].ge(table["bus_bandwidth_gb_per_s"]).all()


def test_a_published_attempt_speaks_for_its_run_else_the_last_one() -> None:
    planned, path = long_curve().planned, "r750xa/resnet/n2"
    weak, strong = (made.preflight(2, peak=peak) for peak in (1.0, 20.0))
    for records, attempts, peak in (
        ({(path, 0): {"preflight": strong}}, [weak, weak], 20),
        ({}, [weak, strong], 20),
        ({}, [strong, weak], 1),
        ({(path, 0): {"preflight": None}}, [strong], 20),
    ):
        table = network_table.network_table(planned, records=records, attempts={(path, 0): attempts})
        assert table["best_bus_bandwidth_gb_per_s"].iloc[0] == pytest.approx(peak, rel=0.1)


def test_points_have_medians_and_the_node_that_all_runs_blame() -> None:
    planned = long_curve().planned
    reports = {
        ("r750xa/resnet/n4", run): {"preflight": made.preflight(4, peak=peak, slow=slow)}
        for run, (peak, slow) in enumerate([(10.0, 2), (20.0, 2), (40.0, 2)])
    } | {("r750xa/resnet/n8", run): {"preflight": made.preflight(8, slow=run + 1)} for run in range(2)}
    reports |= {("r750xa/resnet/n1", 0): {"preflight": made.preflight(1, peak=300.0)}}
    points = network_table.by_point(network_table.network_table(planned, records=reports, attempts={}))
    points = points.set_index("nodes")
    assert points["bus_bandwidth_gb_per_s"][4] == pytest.approx(8, rel=0.01)
    assert points["slow_node"].to_dict() == {1: "", 4: "gpu2", 8: ""}
    assert points["best_of_system_gb_per_s"].nunique() == 1
    assert points["best_of_system_gb_per_s"][1] < 10, "ranks of one node need no network"
    assert network_table.by_point(tables.table([], kind="network")).empty


# --- figure and summary -----------------------------------------------------------------------------------------------


def test_figure_has_a_line_for_each_node_count_and_one_for_stopped_runs() -> None:
    study = long_curve()
    context = plots.Context(planned=study.planned, network=study.network)
    (axes,) = plots.module_of("network").draw(runs=study.runs, context=context).axes
    *lines, threshold = axes.lines
    data = plots.module_of("network").data(context=context)
    assert len(lines) == 5
    drawn = pd.concat([pd.Series(line.get_ydata()) for line in lines], ignore_index=True)
    pd.testing.assert_series_equal(drawn, data["bus_bandwidth_gb_per_s"], check_names=False)
    hollow = [line for line in lines if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 1
    assert list(hollow[0].get_ydata()) == list(data[data["stopped"]]["bus_bandwidth_gb_per_s"])
    assert set(threshold.get_ydata()) == {12}
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    caption = plots.module_of("network").caption(context=context)
    assert "* r750xa, 2 nodes, 8 ranks: 0.900 GB/s at 64 MiB, 48.0 µs at 4 KiB (median of 1 run, stopped)." in caption
    assert "Slow against the median node: gpu3 in 1 run." in caption


def with_slow_network(*, slow: int | None) -> made.Study:
    """Four nodes at 40 % throughput efficiency, two nodes at 95 %."""
    points = [made.point(nodes=nodes) for nodes in (1, 2, 4)]
    times = {("resnet", 1): 0.4, ("resnet", 2): 0.21, ("resnet", 4): 0.25}
    study = made.study(points, times=times, epochs=dict.fromkeys(times, 6), spread=0.001)
    for nodes in (2, 4):
        for run in range(5):
            key = (f"emulated_cpu/resnet/n{nodes}", run)
            study.preflights[key] = made.preflight(nodes, slow=slow if nodes == 4 else None)
    return study


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (3, "the network's bus bandwidth was 8.36 GB/s, that of another point of the system 20.9, slow node gpu3"),
        (None, "the network's bus bandwidth was 20.7 GB/s"),
    ],
)
def test_summary_tells_the_network_beside_a_low_throughput_efficiency(slow: int | None, words: str) -> None:
    study = with_slow_network(slow=slow)
    for form in (summary.text_summary, summary.rst_summary):
        text = " ".join(form(study.points, study.scaling, study.planned, network=study.network).split())
        assert text.count("bus bandwidth") == 1
        assert f"throughput efficiency 40.0 %: {words}" in text
        assert "bus bandwidth" not in form(study.points, study.scaling, study.planned)


def test_adapter_reads_records_and_attempts(tmp_path: Path) -> None:
    study = long_curve()
    inputs = write_study(study, tmp_path)
    output = SimpleNamespace(table=str(tmp_path / "network.csv"))
    run_adapter("make_network_table", input=inputs, output=output, params=SimpleNamespace(attempts_dir=str(tmp_path / "attempts")))  # fmt: skip
    pd.testing.assert_frame_equal(tables.read_table(tmp_path / "network.csv", "network"), study.network)
