"""Jobs that never start, and a snakemake that ends while its jobs run: the next ones lose nothing, nothing runs twice."""

from __future__ import annotations

import csv
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slurm_study import RUNS_TABLE, SlurmStudy, quick, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.training]
RUNS = (0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What was seen while snakemake was refused, had to wait, was interrupted, killed and run again."""

    study: SlurmStudy
    refused: str
    attempts_of_refused: list[dict[str, Any]]
    waited: str
    attempts_of_waited: list[list[dict[str, Any]]]
    status_after_sigint: int
    interrupted: list[list[dict[str, Any]]]
    jobs_after_sigkill: list[str]
    finished: list[list[dict[str, Any]]]
    rows: list[dict[str, str]]


@pytest.fixture(scope="module")
def history(prepared: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> History:
    study = quick(prepared, tmp_path_factory.mktemp("slurm") / "interrupted", nodes=2, runs=len(RUNS))
    refused = study.snakemake(RUNS_TABLE, "--set-resources", "train:mem_mb=999999", check=False)
    assert refused.returncode != 0
    attempts_of_refused = study.attempts(nodes=2)

    waited = wait_in_the_queue(study)
    attempts_of_waited = [study.attempts(nodes=2, run=run) for run in RUNS]

    snakemake = study.start(RUNS_TABLE)
    wait_for(lambda: all(study.trains(run=run, attempt=1) for run in RUNS) or None, what="both runs train")
    snakemake.end(signal.SIGINT)
    study.wait_until_idle()
    status_after_sigint = snakemake.process.returncode
    interrupted = [study.attempts(nodes=2, run=run) for run in RUNS]

    snakemake = study.start(RUNS_TABLE)
    wait_for(lambda: all(study.trains(run=run, attempt=2) for run in RUNS) or None, what="both runs train again")
    # One job ends while no snakemake is there, the other while the next one waits for it.
    held = study.attempts(nodes=2, run=1)[-1]["job_id"]
    study.slurm("scontrol", "suspend", held)
    snakemake.end(signal.SIGKILL)
    jobs_after_sigkill = study.running_jobs()
    wait_for(lambda: set(study.running_jobs()) == {held} or None, what="the job of run 0 ended")
    snakemake = study.start(RUNS_TABLE)
    wait_for(lambda: waits(study, run=1) or None, what="the new job of run 1 waits for the old one")
    study.slurm("scontrol", "resume", held)
    output = snakemake.end()
    assert snakemake.process.returncode == 0, output
    with study.results("tables/runs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return History(
        study=study,
        refused=refused.stdout + refused.stderr,
        attempts_of_refused=attempts_of_refused,
        waited=waited,
        attempts_of_waited=attempts_of_waited,
        status_after_sigint=status_after_sigint,
        interrupted=interrupted,
        jobs_after_sigkill=jobs_after_sigkill,
        finished=[study.attempts(nodes=2, run=run) for run in RUNS],
        rows=rows,
    )


def wait_in_the_queue(study: SlurmStudy) -> str:
    """Run snakemake while all nodes are taken, until Slurm has removed its jobs; returns what it printed."""
    study.change("config/systems/test_cluster.yaml", {"max_nodes: 8": "max_nodes: 8\nqueue_limit_min: 1"})
    taken = study.slurm("sbatch", "--parsable", "--nodes=8", "--mem=16000", "--time=9", "--wrap=sleep 500",
                        "--output=/dev/null")  # fmt: skip
    snakemake = study.start(RUNS_TABLE)
    jobs = wait_for(
        lambda: pending if len(pending := pending_jobs(study)) == len(RUNS) else None, what="both jobs wait"
    )
    for job in jobs:  # the minute is over in a second: 20 minutes are what each asks for
        study.slurm("scontrol", "update", f"JobId={job}", "Deadline=now+1201seconds")
    output = snakemake.end()
    assert snakemake.process.returncode != 0, output
    study.slurm("scancel", taken)
    return output


def pending_jobs(study: SlurmStudy) -> list[str]:
    return study.slurm("squeue", "--noheader", "--format=%i", "--states=PENDING").split()


def waits(study: SlurmStudy, *, run: int) -> bool:
    log: Path = study.results(f"logs/train/test_cluster/resnet/n2/run_{run}.log")
    return log.exists() and "another process is at work" in log.read_text()


def test_a_refused_job_is_an_error_with_sbatchs_words_and_no_attempt(history: History) -> None:
    assert history.refused.count("Error in rule train") == len(RUNS)
    assert "Memory specification can not be satisfied" in history.refused
    assert history.attempts_of_refused == []


def test_a_job_that_waits_too_long_is_removed_and_its_run_has_failed(history: History) -> None:
    assert history.waited.count("SLURM status is: 'DEADLINE'") == len(RUNS)
    for run, (attempt,) in zip(RUNS, history.attempts_of_waited, strict=True):
        assert (attempt["status"], attempt["failure_class"]) == ("failed", "timeout"), attempt
        assert "waited in the queue longer than the system's queue_limit_min = 1" in attempt["message"]
        assert f"run_{run}: attempt 0 failed (timeout): {attempt['message']}" in history.waited


def test_sigint_cancels_the_jobs(history: History) -> None:
    assert history.status_after_sigint != 0
    for _, attempt in history.interrupted:
        assert (attempt["status"], attempt["failure_class"]) == ("failed", "interrupted"), attempt
        assert "cancellation" in attempt["message"]


def test_sigkill_leaves_the_jobs_running(history: History) -> None:
    assert len(history.jobs_after_sigkill) == len(RUNS)


@pytest.mark.parametrize("run", RUNS, ids=["ended unseen", "still running"])
def test_the_next_snakemake_takes_over_a_job_and_does_not_train_again(history: History, run: int) -> None:
    attempts = history.finished[run]
    assert [attempt["status"] for attempt in attempts] == ["failed", "failed", "completed"]
    assert attempts[2]["job_id"] in history.jobs_after_sigkill
    log = history.study.results(f"runs/test_cluster/resnet/n2/result_{run}.txt").read_bytes()
    trained = history.study.results(f"attempts/test_cluster/resnet/n2/run_{run}/attempt_2/mlperf.log").read_bytes()
    assert log == trained


def test_the_study_is_complete_and_nothing_is_left(history: History) -> None:
    assert [(row["status"], row["num_attempts"]) for row in history.rows] == [("success", "3")] * len(RUNS)
    assert history.study.running_jobs() == []
    done = history.study.snakemake(RUNS_TABLE)
    assert "Nothing to be done" in done.stdout + done.stderr
