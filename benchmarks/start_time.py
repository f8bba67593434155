"""Seconds from the start of a rank's process to its `run_start`: interpreter, imports, model, optimiser.

On one core; the goal is at most 5 s. The first start is not counted, as it reads the libraries from disk.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import time

import tiny_training  # isort: skip  (it says where the next one is)
import tiny_runs


def main() -> None:
    """Print the seconds of each start and their median."""
    parser = tiny_training.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5, help="starts; one more is made before and not counted")
    options = parser.parse_args()
    spec = tiny_training.endless(options.workload, options.data_root, epochs=1)
    spec = dataclasses.replace(spec, data_dir=str(options.data_root / "no such data"))  # ends right after run_start
    spec_file, log = options.data_root / "start_time.json", options.data_root / "start_time.txt"
    spec_file.write_text(spec.to_json(), encoding="utf-8")
    tiny_training.pin(0)
    seconds = []
    for _ in range(options.rounds + 1):
        begin = time.time()
        command = tiny_runs.rank_command(spec_file, log)
        subprocess.run(command, env={"OMP_NUM_THREADS": "1"}, check=False, capture_output=True)
        (start,) = (event["time_ms"] / 1000 for event in tiny_runs.events(log) if event["key"] == "run_start")
        seconds.append(start - begin)
    print(f"{options.workload}: start to run_start {', '.join(f'{value:.2f}' for value in seconds[1:])} s")
    print(f"median {statistics.median(seconds[1:]):.2f} s (goal ≤ 5)")


if __name__ == "__main__":
    main()
