"""Made-up studies for the tests of tables, figures and summary: each covers something that real studies meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from mlscaling import network, network_table, runs, scoring
from mlscaling.mlperf.summary import RunSummary
from mlscaling.planned import Planned, PlannedPoint

TITLES = {"resnet": "ResNet-50", "bert": "BERT", "rnnt": "RNN-T", "ssd": "SSD", "maskrcnn": "Mask R-CNN"}
TRAIN_SAMPLES = {"resnet": 12_000, "bert": 1, "rnnt": 278_528, "ssd": 117_266, "maskrcnn": 117_266}


@dataclass
class Study:
    """Inputs of the tables, and the tables."""

    planned: Planned
    compliance: dict[tuple[str, int], dict[str, Any]]
    attempts: dict[tuple[str, int], list[dict[str, Any]]]
    rcps: dict[str, dict[str, Any]]
    preflights: dict[tuple[str, int], dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> dict[tuple[str, int], dict[str, Any]]:
        return {key: {"preflight": report} for key, report in self.preflights.items() if key in self.compliance}

    @property
    def network(self) -> pd.DataFrame:
        tried = {key: [report] for key, report in self.preflights.items()}
        return network_table.network_table(self.planned, records=self.records, attempts=tried)

    @property
    def runs(self) -> pd.DataFrame:
        return runs.runs_table(self.planned, compliance=self.compliance, attempts=self.attempts)

    @property
    def points(self) -> pd.DataFrame:
        return scoring.points_table(self.runs, self.planned, rcps=self.rcps)

    @property
    def scaling(self) -> pd.DataFrame:
        return scoring.scaling_table(self.points, self.runs, self.planned)


def point(workload="resnet", *, nodes=1, num_runs=5, required=5, batch=64, **changes) -> PlannedPoint:
    unit = "samples" if workload == "bert" else "epochs"
    values = {
        "system": "emulated_cpu", "workload": workload, "nodes": nodes, "accelerators": nodes, "batch_policy": "weak",
        "global_batch_size": batch * nodes, "local_batch_size": batch, "num_runs": num_runs, "required_runs": required,
        "trimmed_runs": 1, "target": 0.759, "convergence_unit": unit, "emulated": True,
        "trial_seeds": tuple(range(100, 100 + num_runs)), "system_title": "One CPU core per emulated node",
        "workload_title": TITLES[workload], "quality_name": "top-1 accuracy",
    }  # fmt: skip
    return PlannedPoint(**values | changes)


def verdict(minutes: float, convergence: float, *, workload="resnet", status="success", passed=True, **changes):
    """`compliance_{run}.json` of a run."""
    samples = convergence * TRAIN_SAMPLES[workload]
    converged = status == "success"
    summary = RunSummary(
        benchmark=workload, status=status, seeds=(7,), time_to_train_min=minutes, init_min=0.04, eval_min=0.03,
        convergence=convergence if converged else float("nan"),
        convergence_unit="samples" if workload == "bert" else "epochs",
        samples_to_converge=samples if converged else float("nan"),
        throughput_samples_per_s=samples / minutes / 60, target=0.759,
    )  # fmt: skip
    finding = {"check": "made_up", "severity": "error", "line": 3, "message": "time runs backwards"}
    return {
        "schema_version": 1, "passed": passed, "findings": [] if passed else [finding], "official": {"passed": passed},
        "summary": dataclasses.replace(summary, **changes).to_dict(),
    }  # fmt: skip


def rcp(value: float, *, mean: float, limit: float, status="exact", complete=True, **changes) -> dict[str, Any]:
    """`rcp.json` of a point; one that is not complete may fail, but not pass."""
    passed = (True if complete else None) if value >= limit else False
    record = {
        "status": status, "passed": passed, "value": value, "mean": mean, "limit": limit, "margin": value - limit,
        "p_value": 0.38 if value >= limit else 0.012, "normalization": max(1, mean / value) if passed else None,
        "records": "pruned",
    }  # fmt: skip
    return record | {"full": {key: record[key] for key in ("status", "mean", "limit")}} | changes


def attempt(number=0, *, status="failed", failure_class="node", message="node n3 lost") -> dict[str, Any]:
    return {"attempt": number, "status": status, "failure_class": failure_class, "message": message}


def preflight(nodes: int, *, per_node=4, peak=21.0, slow=None, least=None, finding="", largest=2**26) -> dict[str, Any]:
    """`preflight.json` of a run whose all-reduce needs 20 µs and a link of `peak` GB/s; `slow` is a node's number."""
    ranks, bandwidth = nodes * per_node, peak * (0.4 if slow else 1)
    names = [f"gpu{number}" for number in range(1, nodes + 1)]
    share = 2 * (ranks - 1) / ranks
    links = [
        {"nodes": [names[one], names[other]], "bytes": largest, "latency_us": 15.0,
         "bandwidth_gb_per_s": peak * (0.4 if slow in (one + 1, other + 1) else 1)}
        for phase in network.ring_phases(nodes) for one, other in phase
    ]  # fmt: skip
    sizes = network.message_sizes(largest) if ranks > 1 else []
    seconds = {size: 20e-6 * nodes + share * size / bandwidth / 1e9 for size in sizes}
    return {
        "schema_version": 1, "nodes": names, "ranks": [{"rank": rank} for rank in range(ranks)], "problems": [],
        "backend": "nccl", "note": "", "links": links, "finding": finding,
        "sweep": [network.sweep_row(size, seconds=seconds[size], ranks=ranks, repetitions=20) for size in sizes],
        "thresholds": {"min_bus_bandwidth_gb_per_s": least, "max_latency_us": None},
    }  # fmt: skip


def study(points: Sequence[PlannedPoint], *, times: dict, epochs: dict, spread=0.02, seed=3, notes=()) -> Study:
    """Runs around the given times and epochs; keys are (workload, nodes) or (system, workload, nodes)."""
    generator = np.random.default_rng(seed)
    compliance = {}
    for planned in points:
        short, long = (planned.workload, planned.nodes), (planned.system, planned.workload, planned.nodes)
        minutes, convergence = times.get(long, times.get(short)), epochs.get(long, epochs.get(short))
        for run in range(planned.num_runs):
            steps = int(generator.integers(-1, 2)) * (convergence // 40 if planned.workload == "bert" else 1)
            ratio = float((convergence + steps) / convergence * generator.normal(1, spread))
            record = verdict(minutes * ratio, convergence + steps, workload=planned.workload)
            compliance[planned.path, run] = record
    planned_study = Planned(study="made_up", title="A made-up study", points=tuple(points), notes=tuple(notes))
    return Study(planned=planned_study, compliance=compliance, attempts={}, rcps={})


def quickstart() -> Study:
    """Two workloads at one and two emulated nodes; BERT has 5 of 10 runs."""
    points = [point(nodes=1), point(nodes=2)] + [
        point("bert", nodes=nodes, required=10, batch=32, target=0.6, quality_name="masked-LM accuracy")
        for nodes in (1, 2)
    ]
    made = study(
        points,
        times={("resnet", 1): 0.44, ("resnet", 2): 0.262, ("bert", 1): 0.31, ("bert", 2): 0.198},
        epochs={("resnet", 1): 6, ("resnet", 2): 6, ("bert", 1): 40_000, ("bert", 2): 44_000},
    )
    made.rcps = {
        "emulated_cpu/resnet/n1": rcp(6.0, mean=5.9, limit=5.31),
        "emulated_cpu/resnet/n2": rcp(6.2, mean=6.4, limit=5.7),
        "emulated_cpu/bert/n1": rcp(40_000, mean=39_600, limit=37_000, complete=False),
        "emulated_cpu/bert/n2": rcp(43_700, mean=43_000, limit=40_500, status="interpolated", complete=False),
    }
    return made


def long_curve() -> Study:
    """One workload at 1, 2, 4, 8 nodes with all that goes wrong: incomplete, invalid, aborted, failed, retried."""
    points = [
        point(nodes=nodes, num_runs=num, system="r750xa", system_title="4 × A100-PCIE-80GB per node", emulated=False)
        for nodes, num in ((1, 5), (2, 5), (4, 4), (8, 5))
    ]
    made = study(
        points,
        times={("resnet", 1): 62.9, ("resnet", 2): 32.1, ("resnet", 4): 17.3, ("resnet", 8): 10.6},
        epochs={("resnet", 1): 35, ("resnet", 2): 35, ("resnet", 4): 36, ("resnet", 8): 41},
        spread=0.01,
    )
    made.compliance["r750xa/resnet/n1", 3] = verdict(90, 60, status="aborted")
    made.attempts["r750xa/resnet/n1", 1] = [attempt(0), attempt(1, status="completed", failure_class="", message="")]
    del made.compliance["r750xa/resnet/n2", 4]
    made.attempts["r750xa/resnet/n2", 4] = [attempt(0, failure_class="network", message="NCCL timed out on rank 7")]
    made.rcps = {
        f"r750xa/resnet/n{nodes}": rcp(value, mean=mean, limit=limit, status=status, complete=nodes != 4)
        for nodes, value, mean, limit, status in (
            (1, 35.0, 35.0, 34.2, "exact"),
            (2, 35.0, 35.15, 34.3, "exact"),
            (4, 36.0, 35.9, 35.1, "interpolated"),
            (8, 41.0, 45.5, 44.7, "exact"),
        )
    }
    made.preflights = {
        (f"r750xa/resnet/n{nodes}", run): preflight(nodes, peak=(21.0 + run / 5) * (9 if nodes == 1 else 1), least=12)
        for nodes in (1, 2, 4, 8)
        for run in range(5)
        if (nodes, run) not in ((2, 4), (4, 4))
    }
    made.preflights["r750xa/resnet/n2", 4] = preflight(2, peak=0.9, least=12, finding="network: bus bandwidth")
    made.preflights["r750xa/resnet/n8", 2] = preflight(8, slow=3, peak=23.0, least=None)
    made.rcps["r750xa/resnet/n4"]["full"] = {"status": "exact", "mean": 37.4, "limit": 36.6}
    return made


def no_score() -> Study:
    """The two-node point has no score (two aborted), the four-node point was never run."""
    points = [point(nodes=nodes) for nodes in (1, 2, 4)]
    sizes = {("resnet", 1): 0.44, ("resnet", 2): 0.26, ("resnet", 4): 0.2}
    made = study(points, times=sizes, epochs=dict.fromkeys(sizes, 6))
    for run in (0, 2):
        made.compliance["emulated_cpu/resnet/n2", run] = verdict(0.6, 12, status="aborted")
    for run in range(5):
        del made.compliance["emulated_cpu/resnet/n4", run]
    return made


def single_point() -> Study:
    """One point: no curve, no ideal line."""
    return study([point(nodes=2)], times={("resnet", 2): 0.26}, epochs={("resnet", 2): 6})


def from_two_nodes() -> Study:
    """No one-node point: relative to two nodes."""
    points = [point(nodes=nodes) for nodes in (2, 4, 8)]
    times = {("resnet", 2): 0.52, ("resnet", 4): 0.28, ("resnet", 8): 0.17}
    return study(points, times=times, epochs={("resnet", 2): 8, ("resnet", 4): 8, ("resnet", 8): 9})


def empty() -> Study:
    """Planned, and nothing has run yet."""
    made = quickstart()
    made.compliance, made.rcps = {}, {}
    return made


def five_workloads() -> Study:
    """Five workloads on two systems at one and two nodes, RNN-T suspiciously fast."""
    systems = {"xe8545": "4 × A100-SXM4-80GB per node", "r750xa": "4 × A100-PCIE-80GB per node"}
    batches = {"resnet": 408, "bert": 56, "rnnt": 512, "ssd": 114, "maskrcnn": 24}
    points = [
        point(workload, nodes=nodes, system=system, system_title=title, emulated=False, batch=batches[workload],
              accelerators=4 * nodes, global_batch_size=batches[workload] * 4 * nodes)
        for system, title in systems.items() for workload in TITLES for nodes in (1, 2)
    ]  # fmt: skip
    one = {"resnet": 56.3, "bert": 38.9, "rnnt": 106.5, "ssd": 16.2, "maskrcnn": 83.8}
    two = {"resnet": 30.1, "bert": 26.5, "rnnt": 35.1, "ssd": 8.7, "maskrcnn": 48.8}
    converge = {"resnet": 35, "bert": 2_800_000, "rnnt": 56, "ssd": 50, "maskrcnn": 14}
    factors = {"xe8545": 1.0, "r750xa": 1.12}
    times = {
        (system, workload, nodes): by_workload[workload] * factor
        for system, factor in factors.items() for nodes, by_workload in ((1, one), (2, two)) for workload in TITLES
    }  # fmt: skip
    epochs = {key: converge[key[1]] for key in times}
    notes = ("Result not verified by MLCommons Association.",)
    made = study(points, times=times, epochs=epochs, spread=0.015, notes=notes)
    made.rcps = {
        planned.path: rcp(converge[planned.workload] * 1.0, mean=converge[planned.workload] * 1.003,
                          limit=converge[planned.workload] * 0.972)
        for planned in points
    }  # fmt: skip
    for planned in points:
        peak = {"xe8545": 24.0, "r750xa": 11.0}[planned.system] * (8 if planned.nodes == 1 else 1)
        for run in range(planned.num_runs):
            made.preflights[planned.path, run] = preflight(planned.nodes, peak=peak * (1 + run / 100))
    return made


STUDIES = {
    made.__name__: made
    for made in (quickstart, long_curve, no_score, single_point, from_two_nodes, empty, five_workloads)
}
