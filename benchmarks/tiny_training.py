"""What the benchmarks share: tiny data, prepared once, and specs of runs that never reach their target."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests" / "unit")]

import tiny_runs  # noqa: E402
from mlscaling.spec import RunSpec  # noqa: E402

WORKLOADS = {
    "resnet": ("imagenet_digits", 64),
    "bert": ("wikipedia_closed_world", 32),
    "rnnt": ("librispeech_digits", 32),
}
"""Workload → dataset and local batch size of the default study."""


def parser(description: str) -> argparse.ArgumentParser:
    """Options of every benchmark."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--workload", choices=sorted(WORKLOADS), default="resnet")
    found.add_argument("--data-root", type=Path, default=ROOT / "results" / "benchmarks", help="tiny data is made here")
    return found


def endless(workload: str, data_root: Path, *, nodes: int = 1, epochs: int = 3) -> RunSpec:
    """A run of so many evaluations at the default study's local batch size, which cannot reach its target."""
    dataset, local_batch_size = WORKLOADS[workload]
    counts = tiny_runs.configuration("workloads", workload)["scales"]["tiny"]
    return tiny_runs.run_spec(
        workload,
        data_dir=tiny_runs.prepared(dataset, data_root),
        nodes=nodes,
        global_batch_size=local_batch_size * nodes,
        target=-1.0,
        quality_mode="min",
        evaluate_every_samples=counts["train_samples"],
        hyperparameters={"max_epochs": epochs, "max_samples": epochs * counts["train_samples"]},
    )


def pin(core: int) -> None:
    """Keep this process, and those it starts, on one core with one thread."""
    os.sched_setaffinity(0, {core})
    os.environ["OMP_NUM_THREADS"] = "1"
