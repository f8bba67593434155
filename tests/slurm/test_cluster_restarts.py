"""Jobs and daemons of Slurm that end and come back while a study runs: one snakemake sees all of it through."""

from __future__ import annotations

import csv
import signal
import time
from dataclasses import dataclass
from typing import Any

import pytest
from slurm_study import RUNS_TABLE, SlurmStudy, quick, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.training]
AWAY_S = 25.0
"""With its own defaults the executor, which asks the accounting meanwhile, forgets its jobs at once and never ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What was seen while a job was preempted without accounting, and controller and accounting were away."""

    study: SlurmStudy
    status: int
    output: str
    attempts: list[list[dict[str, Any]]]
    rows: list[dict[str, str]]
    submitted: int


@pytest.fixture(scope="module")
def history(prepared: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Both runs train on nodes of their own, in a partition whose jobs are requeued for more urgent ones."""
    study = quick(prepared, tmp_path_factory.mktemp("slurm") / "restarts", nodes=2, runs=2)
    cluster = study.cluster
    snakemake = study.start(RUNS_TABLE, "--slurm-requeue", "--default-resources", "slurm_partition=spare",
                            "slurm_account=mlperf", "mem_mb=2000", "runtime=30")  # fmt: skip
    wait_for(lambda: all(study.trains(run=run) for run in (0, 1)) or None, what="both runs train")
    preempted, other = (study.attempts(nodes=2, run=run)[0] for run in (0, 1))
    held = study.rank_processes(study.results("attempts/test_cluster/resnet/n2/run_1/attempt_0"))
    for pid in held.values():  # so that it trains while the controller is away
        study.send(pid, signal.SIGSTOP)
    cluster.stop("slurmdbd")
    names = ",".join(node["name"] for node in preempted["nodes"])
    urgent = study.slurm("sbatch", "--parsable", "--partition=urgent", "--nodes=2", f"--nodelist={names}", "--mem=9000",
                         "--time=5", "--output=/dev/null", "--wrap=sleep 300")  # fmt: skip
    wait_for(lambda: study.attempts(nodes=2)[0]["status"] == "failed" or None, what="the attempt is judged")
    cluster.start_accounting()
    study.slurm("scancel", urgent)
    job = f"--jobs={preempted['job_id']}"
    wait_for(lambda: study.slurm("squeue", "-h", "-o%T", job) == "PENDING" or None, what="the job is requeued")
    study.slurm("scontrol", "update", f"JobId={preempted['job_id']}", "StartTime=now")  # else in two minutes
    wait_for(lambda: study.trains(run=0, attempt=1) or None, what="run 0 trains again")
    time.sleep(5.0)  # until the controller has saved what it knows of that job
    for daemon in ("slurmctld", "slurmdbd"):
        cluster.stop(daemon, number=signal.SIGKILL)
    for pid in held.values():
        study.send(pid, signal.SIGCONT)
    time.sleep(AWAY_S)
    cluster.start_accounting()
    cluster.start_controller()
    cluster.wait_until_ready()
    output = snakemake.end()
    study.wait_until_idle()
    with study.results("tables/runs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return History(
        study=study,
        status=snakemake.process.returncode,
        output=output,
        attempts=[study.attempts(nodes=2, run=run) for run in (0, 1)],
        rows=rows,
        submitted=len({preempted["job_id"], other["job_id"]}),
    )


def test_a_preempted_job_is_requeued_and_starts_again_as_a_new_attempt(history: History) -> None:
    first, second = history.attempts[0]
    assert (first["status"], first["failure_class"]) == ("failed", "preempted"), first
    assert "DUE TO PREEMPTION" in first["message"], "the accounting was silent"
    assert second["status"] == "completed"
    assert first["job_id"] == second["job_id"]


def test_a_training_and_snakemake_outlive_the_controller(history: History) -> None:
    (attempt,) = history.attempts[1]
    assert attempt["status"] == "completed"
    assert history.status == 0, history.output
    assert "has been submitted with SLURM jobid" in history.output
    assert history.output.count("has been submitted with SLURM jobid") == history.submitted


def test_nothing_is_lost_doubled_or_left(history: History) -> None:
    assert [(row["status"], row["num_attempts"]) for row in history.rows] == [("success", "2"), ("success", "1")]
    assert history.study.running_jobs() == []
    done = history.study.snakemake(RUNS_TABLE)
    assert "Nothing to be done" in done.stdout + done.stderr
