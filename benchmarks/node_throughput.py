"""Training samples per second of two emulated nodes ÷ those of one, each node pinned to a core of its own.

The local batch is that of the default study. Runs of one and two nodes alternate, so that whatever else the host does
hits both alike; the first block of each run, in which memory and connections are made, is not counted. The goal for
ResNet on two idle cores is at least 1.6.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import tiny_training  # isort: skip  (it says where the next ones are)
import tiny_runs
from mlscaling.spec import RunSpec


def throughputs(spec: RunSpec, log: Path) -> list[float]:
    """Samples per second of every block but the first."""
    spec_file = log.with_suffix(".json")
    spec_file.write_text(spec.to_json(), encoding="utf-8")
    port = str(tiny_runs.free_port())
    environment = {**os.environ, "PYTHONPATH": str(tiny_runs.SCRIPTS), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            ["taskset", "--cpu-list", str(rank), sys.executable, "-c", tiny_runs.RANK, str(spec_file), str(log)],
            env=environment | tiny_runs.rank_variables(spec, rank=rank, port=port),
            stdout=subprocess.DEVNULL,
        )
        for rank in range(spec.world_size)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit(f"a rank failed; see {log}")
    found = [event["value"]["throughput"] for event in tiny_runs.events(log) if event["key"] == "tracked_stats"]
    return found[1:]


def main() -> None:
    """Print samples per second and the ratio."""
    parser = tiny_training.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each number of nodes")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of a run; the first is not counted")
    options = parser.parse_args()
    found: dict[int, list[float]] = {1: [], 2: []}
    for number in range(options.rounds):
        for nodes in found:
            spec = tiny_training.endless(options.workload, options.data_root, nodes=nodes, epochs=options.epochs)
            found[nodes] += throughputs(spec, options.data_root / f"node_throughput_{nodes}_{number}.txt")
    medians = {nodes: statistics.median(values) for nodes, values in found.items()}
    for nodes, value in medians.items():
        print(f"{options.workload}, {nodes} node(s): {value:.0f} samples/s, best {max(found[nodes]):.0f}")
    best = max(found[2]) / max(found[1])
    print(f"two nodes ÷ one: {medians[2] / medians[1]:.2f} of the medians, {best:.2f} of the best blocks (goal ≥ 1.6)")


if __name__ == "__main__":
    main()
