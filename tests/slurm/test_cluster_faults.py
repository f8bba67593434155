"""Faults of running jobs: each ends with the right class, leaves nothing behind, and the next snakemake completes."""

from __future__ import annotations

import csv
import os
import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slurm_study import RUNS_TABLE, STUDY, SlurmStudy, curve, quick, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.training]


# --- faults of jobs, one in each run of a study -----------------------------------------------------------------------


def kill_a_rank(study: SlurmStudy, attempt: dict[str, Any], folder: Path) -> None:
    os.kill(study.rank_processes(folder)[attempt["nodes"][1]["name"]], signal.SIGKILL)


def cancel(study: SlurmStudy, attempt: dict[str, Any], folder: Path) -> None:
    study.slurm("scancel", attempt["job_id"])


def reach_the_time_limit(study: SlurmStudy, attempt: dict[str, Any], folder: Path) -> None:
    for pid in study.rank_processes(folder).values():  # Slurm looks at limits twice a minute
        os.kill(pid, signal.SIGSTOP)
    study.slurm("scontrol", "update", f"JobId={attempt['job_id']}", "EndTime=now")


def hang(study: SlurmStudy, attempt: dict[str, Any], folder: Path) -> None:
    os.kill(study.rank_processes(folder)[attempt["nodes"][1]["name"]], signal.SIGSTOP)


def lose_a_node(study: SlurmStudy, attempt: dict[str, Any], folder: Path) -> None:
    study.cluster.power_off(int(attempt["nodes"][1]["name"].removeprefix("node")))


def lose_the_first_node(study: SlurmStudy, attempt: dict[str, Any], folder: Path) -> None:
    study.cluster.power_off(int(attempt["nodes"][0]["name"].removeprefix("node")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens to a run, and how it must end."""

    happens: Callable[[SlurmStudy, dict[str, Any], Path], None]
    failure_class: str
    message: str
    state: str


FAULTS = [
    Fault(happens=hang, failure_class="timeout", message="no MLLOG event for .*silence_limit_min = 1;", state="FAILED"),
    Fault(happens=lose_the_first_node, failure_class="node", message="a node failure", state="NODE_FAIL"),
    Fault(happens=lose_a_node, failure_class="node", message="node failure|no answer from", state="NODE_FAIL|FAILED"),
    Fault(happens=reach_the_time_limit, failure_class="timeout", message="time limit", state="TIMEOUT"),
    Fault(happens=kill_a_rank, failure_class="unknown", message="task 1: Killed", state="FAILED"),
    Fault(happens=cancel, failure_class="interrupted", message="cancellation", state="CANCELLED"),
]
NUM_RUNS = len(FAULTS) + 1
"""One more runs out of memory by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The study after its faults, and after it was run again."""

    study: SlurmStudy
    status: int
    output: str
    attempts: list[list[dict[str, Any]]]
    out_of_memory: dict[str, Any]
    states: list[str]


@pytest.fixture(scope="module")
def outcome(prepared: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    study = quick(prepared, tmp_path_factory.mktemp("slurm") / "faults", nodes=2, runs=len(FAULTS))
    study.change("config/systems/test_cluster.yaml", {"silence_limit_min: 5": "silence_limit_min: 1"})
    small = {"mem_mib_per_node: 9000": "mem_mib_per_node: 1000", "rs_per_node: 1": "rs_per_node: 2"}
    study.system("small_memory", small)
    curves = (
        f"{curve(nodes=[2], runs=len(FAULTS))}\n{curve(nodes=[1], runs=1, system='small_memory', local_batch_size=32)}"
    )
    (study.path / "study.yaml").write_text(STUDY.format(curves=curves))
    snakemake = study.start(RUNS_TABLE)
    waiting = dict(enumerate(FAULTS))
    while waiting:
        run = wait_for(lambda: training_now(study, waiting), what=f"runs {list(waiting)} train")
        folder = study.results(f"attempts/test_cluster/resnet/n2/run_{run}/attempt_0")
        waiting.pop(run).happens(study, study.attempts(nodes=2, run=run)[0], folder)
    output = snakemake.end()
    study.wait_until_idle()
    attempts = [study.attempts(nodes=2, run=run) for run in range(len(FAULTS))]
    jobs = [tried[0]["job_id"] for tried in attempts]
    states = [study.slurm("sacct", "-X", "-n", "-P", "--format=State", f"--jobs={job}") for job in jobs]
    (out_of_memory,) = study.attempts(nodes=1, system="small_memory")
    study.change("config/systems/small_memory.yaml", {"mem_mib_per_node: 1000": "mem_mib_per_node: 9000"})
    for node in range(1, study.cluster.shape.nodes + 1):
        study.cluster.power_on(node)
    study.cluster.wait_until_ready()
    study.snakemake(RUNS_TABLE)
    return Outcome(
        study=study, status=snakemake.process.returncode, output=output, attempts=attempts, states=states,
        out_of_memory=out_of_memory,
    )  # fmt: skip


def training_now(study: SlurmStudy, waiting: Iterable[int]) -> int | None:
    return next((run for run in waiting if study.trains(run=run)), None)


@pytest.mark.parametrize("run", range(len(FAULTS)), ids=[fault.happens.__name__ for fault in FAULTS])
def test_class_and_state(outcome: Outcome, run: int) -> None:
    fault, (attempt,) = FAULTS[run], outcome.attempts[run]
    assert (attempt["status"], attempt["failure_class"]) == ("failed", fault.failure_class), attempt
    assert re.search(fault.message, attempt["message"])
    assert outcome.states[run].split()[0] in fault.state.split("|")


def test_a_rank_that_takes_too_much_memory_is_named_so(outcome: Outcome) -> None:
    assert outcome.out_of_memory["failure_class"] == "out_of_memory", outcome.out_of_memory
    assert "exceeded memory limit" in outcome.out_of_memory["message"]


def test_snakemake_fails_and_names_each_run(outcome: Outcome) -> None:
    assert outcome.status != 0
    assert outcome.output.count("Error in rule train") == NUM_RUNS
    assert "run_1: attempt 0 failed (node): job" in outcome.output, "the one that nobody was left to judge"


def test_a_rerun_completes_the_study(outcome: Outcome) -> None:
    assert outcome.study.running_jobs() == []
    with outcome.study.results("tables/runs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["status"], row["num_attempts"]) for row in rows] == [("success", "2")] * NUM_RUNS
