"""Seconds of a tiny run by phase, from its MLPerf log: each workload on one and on two emulated nodes.

start: process to `init_start` (interpreter and imports); init: to `run_start` (model, optimiser, connections); train;
evaluation; other: what the run does besides, e.g. opening its data; stop: `run_stop` to the end of the process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import tiny_training  # isort: skip  (it says where the next ones are)
import tiny_runs
from mlscaling.spec import RunSpec

PHASES = ("start", "init", "train", "evaluation", "other", "stop")


def seconds_by_phase(spec: RunSpec, log: Path) -> dict[str, float]:
    """Train with a core for each rank."""
    begin = time.time()
    tiny_training.train_pinned(spec, log)
    return _phases(log, begin=begin, end=time.time())


def _phases(log: Path, *, begin: float, end: float) -> dict[str, float]:
    spans = {"block": 0.0, "eval": 0.0}
    times: dict[str, float] = {}
    for event in tiny_runs.events(log):
        key, now = event["key"], event["time_ms"] / 1000
        name, _, what = key.rpartition("_")
        if what == "stop" and name in spans:
            spans[name] += now - times[f"{name}_start"]
        times[key] = now
    run = times["run_stop"] - times["run_start"]
    return {
        "start": times["init_start"] - begin,
        "init": times["run_start"] - times["init_start"],
        "train": spans["block"],
        "evaluation": spans["eval"],
        "other": run - spans["block"] - spans["eval"],
        "stop": end - times["run_stop"],
    }


def line(workload: str, nodes: int, phases: Mapping[str, float]) -> str:
    """A row of the table, with the sum."""
    cells = "".join(f"{phases[name]:11.1f}" for name in PHASES)
    return f"{workload:9}{nodes:6}{cells}{sum(phases.values()):11.1f}"


def main() -> None:
    """Print a line for each workload and number of nodes."""
    parser = tiny_training.parser(__doc__ or "", all_workloads=True)
    options = parser.parse_args()
    print(f"{'workload':9}{'nodes':>6}{''.join(f'{name:>11}' for name in (*PHASES, 'sum, s'))}")
    for workload in options.workload:
        for nodes in (1, 2):
            spec = tiny_training.spec_of(workload, options.data_root, nodes=nodes)
            found = seconds_by_phase(spec, options.data_root / f"run_phases_{workload}_{nodes}.txt")
            print(line(workload, nodes, found), flush=True)


if __name__ == "__main__":
    main()
