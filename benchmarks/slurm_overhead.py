"""What a training job costs through Snakemake and Slurm beyond the training itself, on the idle test cluster.

A tiny training on one node, several times, with the settings that docs/slurm.md names for a cluster of one's own.
Overhead is the time from `sbatch` until snakemake has seen the end, less that of the attempt: the queue, two starts of
snakemake in the job, and the wait for the next question to Slurm. The goal is at most 10 s. The last column is once
per snakemake, not per job: it sleeps out its interval before it ends.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "slurm"))

from cluster import Cluster, missing  # noqa: E402
from slurm_study import FAST, STUDY, SlurmStudy, copy_of_repository, curve, quick  # noqa: E402


def main() -> None:
    """Print the parts of each job's overhead, and the median and the largest of their sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="trainings, one after another")
    options = parser.parse_args()
    if lacking := missing():
        print(f"not measured: {lacking}")
        return
    cluster = Cluster()
    mine = not cluster.is_up()
    cluster.up()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder), cluster=cluster, rounds=options.rounds)
    finally:
        if mine:
            cluster.down()


def _measure(folder: Path, *, cluster: Cluster, rounds: int) -> None:
    prepared = copy_of_repository(
        folder / "prepared", cluster=cluster, study=STUDY.format(curves=curve(nodes=[1], runs=1))
    )
    prepared.snakemake("data")
    study = quick(prepared, folder / "study", nodes=1, runs=rounds)
    print("  queue  start of job  training  end of job  noticed  overhead, s  until snakemake ends")
    sums = []
    for run in range(rounds):
        done = study.snakemake(f"results/on_slurm/runs/test_cluster/resnet/n1/result_{run}.txt")
        noticed, ended = _noticed(done.stdout + done.stderr), time.time()
        parts = _parts(study, run=run, noticed=noticed)
        sums.append(sum(parts) - parts[2])
        row = (*parts, sums[-1], ended - noticed)
        print("  {:5.1f}  {:12.1f}  {:8.1f}  {:10.1f}  {:7.1f}  {:11.1f}  {:20.1f}".format(*row))
    print(f"overhead: median {statistics.median(sums):.1f} s, largest {max(sums):.1f} s (goal ≤ 10)")
    print(f"settings: {' '.join(FAST)}")


def _noticed(output: str) -> float:
    """When snakemake saw that the training had ended, seconds since 1970."""
    lines = output.splitlines()
    (number,) = (number for number, line in enumerate(lines) if "Finished jobid" in line and "train" in line)
    return time.mktime(time.strptime(lines[number - 1].strip("[]")))


def _parts(study: SlurmStudy, *, run: int, noticed: float) -> list[float]:
    """Seconds in the queue, until the training starts, of the training, until the job ends, until that is noticed."""
    (attempt,) = study.attempts(nodes=1, run=run)
    listed = study.slurm("sacct", "-X", "-n", "-P", "--format=Submit,Start,End", f"--jobs={attempt['job_id']}")
    submit, start, end = (time.mktime(time.strptime(word, "%Y-%m-%dT%H:%M:%S")) for word in listed.split("|"))
    times = [submit, start, attempt["started"], attempt["ended"], max(end, attempt["ended"]), noticed]
    return [max(0.0, later - earlier) for earlier, later in itertools.pairwise(times)]


if __name__ == "__main__":
    main()
