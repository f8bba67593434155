"""What the benchmarks share: tiny data, prepared once, and specs of runs that never reach their target."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests" / "unit")]

import tiny_runs  # noqa: E402
import yaml  # noqa: E402
from mlscaling.spec import RunSpec  # noqa: E402
from mlscaling.workloads import workload_names  # noqa: E402


def local_batch_sizes() -> dict[str, int]:
    """Workload → local batch size of the study of all five, for those that are built in."""
    study = yaml.safe_load((ROOT / "config" / "studies" / "five_workloads.yaml").read_text(encoding="utf-8"))
    built_in = workload_names()
    curves = [curve for curve in study["curves"] if curve["workload"] in built_in]
    return {curve["workload"]: curve["weak"]["local_batch_size"] for curve in curves}


LOCAL_BATCH_SIZES = local_batch_sizes()


def parser(description: str, *, all_workloads: bool = False) -> argparse.ArgumentParser:
    """Options of every benchmark; `options.workload` is a list where it measures all of them."""
    found = argparse.ArgumentParser(description=description)
    names = list(LOCAL_BATCH_SIZES)
    if all_workloads:
        found.add_argument("--workload", choices=names, nargs="+", default=names)
    else:
        found.add_argument("--workload", choices=names, default="resnet")
    found.add_argument("--data-root", type=Path, default=ROOT / "results" / "benchmarks", help="tiny data is made here")
    return found


def spec_of(workload: str, data_root: Path, *, nodes: int = 1, **changes: Any) -> RunSpec:
    """A run at the study's local batch size, on data that is prepared if it is not there."""
    dataset = tiny_runs.workload_spec(workload).scales["tiny"].dataset
    return tiny_runs.run_spec(
        workload,
        data_dir=tiny_runs.prepared(dataset, data_root),
        nodes=nodes,
        global_batch_size=LOCAL_BATCH_SIZES[workload] * nodes,
        **changes,
    )


def endless(workload: str, data_root: Path, *, nodes: int = 1, epochs: int = 3) -> RunSpec:
    """A run of so many evaluations, which cannot reach its target."""
    settings = tiny_runs.workload_spec(workload)
    samples, unit = settings.scales["tiny"].train_samples, settings.convergence_unit
    return spec_of(
        workload,
        data_root,
        nodes=nodes,
        target=tiny_runs.unreachable(settings.scales["tiny"].target, mode=settings.quality_mode),
        evaluate_every_samples=samples,
        hyperparameters={f"max_{unit}": epochs * samples if unit == "samples" else epochs},
    )


def train_pinned(spec: RunSpec, log: Path) -> None:
    """Train with a core for each rank; the spec is written beside the log. A failed rank ends the benchmark."""
    spec_file = log.with_suffix(".json")
    spec_file.write_text(spec.to_json(), encoding="utf-8")
    port = str(tiny_runs.free_port())
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            ["taskset", "--cpu-list", str(rank), *tiny_runs.rank_command(spec_file, log)],
            env=environment | tiny_runs.rank_variables(spec, rank=rank, port=port),
            stdout=subprocess.DEVNULL,
        )
        for rank in range(spec.world_size)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit(f"a rank failed; see {log}")


def pin(core: int) -> None:
    """Keep this process, and those it starts, on one core with one thread."""
    os.sched_setaffinity(0, {core})
    os.environ["OMP_NUM_THREADS"] = "1"
