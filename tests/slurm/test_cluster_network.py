"""Slow links: preflight names the node, stops the run where the system's file says so, and explains a slow training."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slurm_study import STUDY, SlurmStudy, curve, quick

pytestmark = [pytest.mark.slurm, pytest.mark.training]
RATE, RATE_GB_PER_S = "20mbit", 20e6 / 8 / 1e9
LIMIT = 4 * RATE_GB_PER_S
"""Threshold of the system `strict`."""
SLOW_NODES = (3, 4)
"""Nodes hang on two switches, the odd and the even ones: jobs of 2 and of 4 nodes take the first of one switch each, in
either order, so that each of them gets exactly one of these."""
TRAINED, STOPPED = "test_cluster/resnet/n2", "strict/resnet/n4"
LOGS = [f"results/on_slurm/runs/{point}/result_0.txt" for point in (TRAINED, STOPPED)]
REPORT = ["tables", "results/on_slurm/plots/network.svg", "results/on_slurm/tables/summary.txt"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The same study without and with slow links."""

    fast: SlurmStudy
    study: SlurmStudy

    def attempt(self, point: str) -> tuple[dict[str, Any], dict[str, Any], Path]:
        """The only attempt at a point's run with slow links, its preflight and its folder."""
        (folder,) = self.study.results(f"attempts/{point}/run_0").glob("attempt_*")
        return *(json.loads((folder / f"{name}.json").read_text()) for name in ("attempt", "preflight")), folder


def rows(study: SlurmStudy, table: str) -> list[dict[str, str]]:
    with study.results(f"tables/{table}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def seen(prepared: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("slurm")
    one_and_two = curve(nodes=[1, 2], runs=1)
    fast = quick(prepared, folder / "fast", nodes=2, runs=1, preflight="auto")
    (fast.path / "study.yaml").write_text(STUDY.format(curves=one_and_two))
    # With nothing to drop, a point of one run has a mean, and with it a scaling efficiency.
    rules = fast.path / "config/rounds/1.1.0.yaml"
    rules.write_text(rules.read_text().replace("trimmed_runs:", "trimmed_runs:\n  resnet: 0"))
    fast.snakemake("tables")

    four = curve(nodes=[4], runs=1, system="strict")
    text = STUDY.format(curves=f"{one_and_two}\n{four}").replace("[speedup]", "[network]")
    study = fast.copy(folder / "slow", study=f"{text}accept_missing_runs: true\n")
    systems = study.path / "config/systems"
    strict = (
        (systems / "test_cluster.yaml").read_text().replace("{when: auto}", f"{{min_bus_bandwidth_gb_per_s: {LIMIT}}}")
    )
    (systems / "strict.yaml").write_text(strict)
    for part in ("runs", "validation", "attempts"):
        shutil.rmtree(study.results(part, TRAINED))
    for node in SLOW_NODES:
        study.cluster.narrow_link(node, rate=RATE)
    try:
        study.snakemake(*LOGS, check=False)
    finally:
        for node in SLOW_NODES:
            study.cluster.widen_link(node)
    study.snakemake(*REPORT)
    return Seen(fast=fast, study=study)


def test_below_the_threshold_the_run_stops_before_its_training_and_its_slow_node_is_named(seen: Seen) -> None:
    attempt, preflight, folder = seen.attempt(STOPPED)
    assert (attempt["status"], attempt["failure_class"]) == ("failed", "network"), attempt
    (slow,) = {f"node{node}" for node in SLOW_NODES} & {node["name"] for node in attempt["nodes"]}
    assert f"is below min_bus_bandwidth_gb_per_s = {LIMIT:g} of system strict" in attempt["message"]
    assert f"the slow node is {slow} (" in attempt["message"]
    assert (
        f"failed (network): {attempt['message']}" in seen.study.results(f"logs/train/{STOPPED}/run_0.log").read_text()
    )
    assert [(rank["node"], rank["host"]) for rank in preflight["ranks"]] == [(n["name"],) * 2 for n in attempt["nodes"]]
    assert not (folder / "mlperf.log").exists()
    assert not (folder / "command.json").exists()
    assert seen.study.running_jobs() == []


def test_without_a_threshold_throughput_is_lower_and_convergence_the_same(seen: Seen) -> None:
    attempt, preflight, _ = seen.attempt(TRAINED)
    assert attempt["status"] == "completed"
    assert 0 < max(row["bus_bandwidth_gb_per_s"] for row in preflight["sweep"]) < 1.5 * RATE_GB_PER_S
    record = json.loads(seen.study.results(f"runs/{TRAINED}/run_0.json").read_text())
    assert record["preflight"] == preflight
    before, after = (rows(study, "scaling")[1] for study in (seen.fast, seen.study))
    assert float(after["throughput_efficiency"]) < 0.9 * float(before["throughput_efficiency"])
    assert after["convergence_efficiency"] == before["convergence_efficiency"]
    before, after = (rows(study, "runs")[1] for study in (seen.fast, seen.study))
    assert after["samples_to_converge"] == before["samples_to_converge"]
    assert after["seed"] == before["seed"]


def test_both_sweeps_are_in_table_figure_and_summary(seen: Seen) -> None:
    table = {(row["system"], row["nodes"], row["ranks"], row["stopped"]) for row in rows(seen.study, "network")}
    assert table == {("test_cluster", "2", "2", "False"), ("strict", "4", "4", "True")}
    assert {row["slow_node"] for row in rows(seen.study, "network") if row["nodes"] == "4"} <= {"node3", "node4"}
    fast = {float(row["best_bus_bandwidth_gb_per_s"]) for row in rows(seen.fast, "network")}
    assert min(fast) > 2 * RATE_GB_PER_S
    assert "stopped" in seen.study.results("plots/network.rst").read_text()
    assert "the network's bus bandwidth was 0.002" in " ".join(
        seen.study.results("tables/summary.txt").read_text().split()
    )
