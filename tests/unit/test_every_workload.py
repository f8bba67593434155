"""What every workload with a tiny scale keeps, found by looking into the folders: equal runs are equal however their
ranks are spread, and reference runs with other seeds pass against the committed RCPs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
import yaml
from mlscaling import trainer
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.rcp import check_point, load_rcps
from mlscaling.spec import RunSpec
from mlscaling.workloads import workload_names

pytestmark = pytest.mark.training
TINY = [name for name in workload_names() if "tiny" in tiny_runs.configuration("workloads", name)["scales"]]
LAYOUTS = {"two nodes": (2, 1), "one node": (1, 2)}
"""Nodes and ranks of each."""
NUM_REFERENCE_RUNS = 3

RANK = """
import os, sys
from pathlib import Path
from mlscaling import distributed
from mlscaling.spec import RunSpec
from mlscaling.trainer import train
for number, file in enumerate(sys.argv[2:]):
    spec = RunSpec.from_file(Path(file))
    os.environ["LOCAL_RANK"] = str(int(os.environ["RANK"]) % spec.accelerators_per_node)
    os.environ["MASTER_PORT"] = sys.argv[1].split(",")[number]
    train(spec, log_file=Path(file).with_suffix(".txt"))
    distributed.leave()
distributed.exit_process(0)
"""


def short(name: str, data: Path, *, nodes: int, ranks: int) -> RunSpec:
    """Two ranks until the first evaluation, which ends the run."""
    found = tiny_runs.workload_spec(name)
    settings = found.scales["tiny"]
    spec = tiny_runs.run_spec(name, data_dir=data, nodes=nodes, accelerators_per_node=ranks, evaluate_every_samples=0)
    interval = settings.evaluate_every_samples.at(spec.global_batch_size)
    units = interval if found.convergence_unit == "samples" else interval // settings.train_samples
    return dataclasses.replace(
        spec,
        target=tiny_runs.unreachable(settings.target, mode=found.quality_mode),
        evaluate_every_samples=interval,
        hyperparameters={**spec.hyperparameters, f"max_{found.convergence_unit}": units},
    )


@pytest.fixture(scope="module")
def series(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list]:
    """(workload, layout) → evaluations; one pair of processes trains all of them, one after the other."""
    folder, files = tmp_path_factory.mktemp("series"), {}
    for name in TINY:
        data = tiny_runs.prepared(tiny_runs.workload_spec(name).scales["tiny"].dataset, tiny_data)
        for number, (layout, (nodes, ranks)) in enumerate(LAYOUTS.items()):
            files[name, layout] = folder / f"{name}_{number}.json"
            files[name, layout].write_text(short(name, data, nodes=nodes, ranks=ranks).to_json(), encoding="utf-8")
    ports = ",".join(str(tiny_runs.free_port()) for _ in files)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, ports, *map(str, files.values())],
            env={"PYTHONPATH": str(tiny_runs.SCRIPTS), "OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": "2",
                 "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    return {key: tiny_runs.series(tiny_runs.events(file.with_suffix(".txt"))) for key, file in files.items()}


@pytest.mark.parametrize("name", TINY)
def test_equal_seeds_evaluate_alike_however_ranks_are_spread(name: str, series) -> None:
    first, second = (series[name, layout] for layout in LAYOUTS)
    assert first == second
    assert len(first) >= 1


def cheapest_with_rcps() -> str:
    """Workload whose reference run is expected to be the shortest, of those with committed RCPs."""
    system = yaml.safe_load((tiny_runs.ROOT / "config" / "systems" / "emulated_cpu.yaml").read_text(encoding="utf-8"))
    costs = {}
    for name in TINY:
        found, speed = tiny_runs.workload_spec(name), system["samples_per_s_per_accelerator"].get(name)
        settings = found.scales["tiny"]
        if speed and settings.rcps and (tiny_runs.ROOT / settings.rcps).is_file():
            record = load_rcps(tiny_runs.ROOT / settings.rcps, benchmark=found.mlperf_benchmark, ruleset="1.1.0")[0]
            samples = record.mean * (1 if found.convergence_unit == "samples" else settings.train_samples)
            costs[name] = samples / speed
    return min(costs, key=costs.__getitem__)


def test_reference_runs_with_other_seeds_pass_against_the_committed_rcps(tiny_data: Path, tmp_path: Path) -> None:
    """A sample: few runs of the cheapest workload. They need no less training than the RCPs allow, and not much more."""
    name = cheapest_with_rcps()
    found = tiny_runs.workload_spec(name)
    settings, benchmark = found.scales["tiny"], found.mlperf_benchmark
    rcps = tiny_runs.ROOT / settings.rcps
    record = load_rcps(rcps, benchmark=benchmark, ruleset="1.1.0")[0]
    data = tiny_runs.prepared(settings.dataset, tiny_data)
    summaries = []
    for run in range(NUM_REFERENCE_RUNS):
        spec = tiny_runs.run_spec(name, data_dir=data, global_batch_size=record.global_batch_size, seed=1_000_003 + run)
        assert trainer.train(spec, log_file=tmp_path / f"result_{run}.txt") == "success"
        summaries.append(summarize(tmp_path / f"result_{run}.txt"))
    verdict = check_point(
        summaries,
        benchmark=benchmark,
        ruleset="1.1.0",
        global_batch_size=record.global_batch_size,
        rcps=rcps,
        num_runs=NUM_REFERENCE_RUNS,
        required_runs=NUM_REFERENCE_RUNS,
    )
    assert verdict["passed"] is True, json.dumps(verdict, indent=1)
    assert verdict["value"] < record.mean + 3 * record.standard_deviation
