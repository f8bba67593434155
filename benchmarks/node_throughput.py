"""Training samples per second of two emulated nodes ÷ those of one, each node pinned to a core of its own.

The local batch is that of the study of five workloads. Runs of one and two nodes alternate, so that whatever else the
host does hits both alike; the first block of each run, in which memory and connections are made, is not counted. The
goal for ResNet on two idle cores is at least 1.6.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import tiny_training  # isort: skip  (it says where the next ones are)
import tiny_runs
from mlscaling.spec import RunSpec


def throughputs(spec: RunSpec, log: Path) -> list[float]:
    """Samples per second of every block but the first."""
    tiny_training.train_pinned(spec, log)
    found = [event["value"]["throughput"] for event in tiny_runs.events(log) if event["key"] == "tracked_stats"]
    return found[1:]


def main() -> None:
    """Print samples per second and the ratio."""
    parser = tiny_training.parser(__doc__ or "", all_workloads=True)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each number of nodes")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of a run; the first is not counted")
    options = parser.parse_args()
    print("workload  local batch  samples/s, 1 node  2 nodes  ÷ of the medians  ÷ of the best blocks")
    for workload in options.workload:
        found: dict[int, list[float]] = {1: [], 2: []}
        for number in range(options.rounds):
            for nodes in found:
                spec = tiny_training.endless(workload, options.data_root, nodes=nodes, epochs=options.epochs)
                found[nodes] += throughputs(spec, options.data_root / f"node_throughput_{nodes}_{number}.txt")
        one, two = (statistics.median(values) for values in found.values())
        local, best = tiny_training.LOCAL_BATCH_SIZES[workload], max(found[2]) / max(found[1])
        print(f"{workload:8}  {local:11}  {one:17.0f}  {two:7.0f}  {two / one:16.2f}  {best:20.2f}", flush=True)


if __name__ == "__main__":
    main()
