"""Options of Slurm jobs: limits, excluded nodes, the order of ranks, and jobs that were removed from the queue."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlscaling import launchers, slurm
from mlscaling.aftermath import name_of_point_rule, note_removed, removed_jobs
from mlscaling.attempt_folders import read_attempts
from mlscaling.configuration import check_schema
from mlscaling.rank_order import ordered
from mlscaling.spec import Point
from slurm_requests import point, submission

# --- what the executor submits ----------------------------------------------------------------------------------------


def changed(of: Point, **system: object) -> Point:
    return dataclasses.replace(of, system=dataclasses.replace(of.system, **system))


@pytest.mark.parametrize(
    ("system", "options"),
    [
        ({}, "--ntasks-per-node=4"),
        ({"exclude_nodes": ["gpu7", "gpu[3-5,9]"]}, "--ntasks-per-node=4 --exclude=gpu7,gpu[3-5,9]"),
        # Removed when it cannot end in time any more: 60 minutes after its submission, whatever its own limits are.
        ({"queue_limit_min": 60}, "--ntasks-per-node=4 --deadline=now+335minutes"),
        ({"queue_limit_min": 60, "time_limit_min": 10}, "--ntasks-per-node=4 --deadline=now+105minutes"),
    ],
)
def test_options_reach_sbatch(system: dict[str, object], options: str) -> None:
    assert f"--cpus-per-task=2 {options} --gres=gpu:4" in submission(changed(point(nodes=2, accelerators=4), **system))


def test_all_runs_in_one_job_ask_for_the_limits_of_each() -> None:
    of = changed(point(nodes=2, accelerators=4), startup_limit_min=10, time_limit_min=60)
    assert [slurm.geometry(of, num_runs=runs).runtime_min for runs in (1, 5)] == [75, 355]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("exclude_nodes", ["gpu7", "gpu[3-5,9]", "rack1-gpu0[01-16]"], ""),
        ("exclude_nodes", ["gpu7 --qos=x"], "exclude_nodes[0]"),
        ("exclude_nodes", ["gpu7; rm"], "exclude_nodes[0]"),
        ("stage_data_to", "/local/scratch", ""),
        ("stage_data_to", "scratch", "stage_data_to"),
        ("rank_order", "hostname", "rank_order"),
        ("queue_limit_min", 0, ""),
        ("startup_limit_min", 0, "startup_limit_min"),
    ],
)
def test_bad_options_are_named(key: str, value: object, problem: str) -> None:
    system = {"title": "x", "accelerator": "x", "device": "cpu", "launcher": "srun", "max_nodes": 1}
    _, found = check_schema({**system, "accelerators_per_node": 1, key: value}, schema="system", file="x.yaml")
    assert [problem in str(one) for one in found] == ([True] if problem else [])


# --- order of ranks ---------------------------------------------------------------------------------------------------

TOPOLOGY = """\
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu1,gpu11,gpu2
SwitchName=leaf10 Level=0 LinkSpeed=1 Nodes=gpu10,gpu3
SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu1,gpu10,gpu11,gpu2,gpu3 Switches=leaf2,leaf10
"""


def answers(topology: str) -> Callable[..., str]:
    """As `scontrol` answers; its lists of hosts are not compressed here."""
    return lambda *command: topology if command[-1] == "topology" else command[-1].replace(",", "\n")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("slurm", ["gpu10", "gpu2", "gpu1", "gpu3", "gpu11"]),
        ("host_name", ["gpu1", "gpu2", "gpu3", "gpu10", "gpu11"]),
        ("topology", ["gpu1", "gpu2", "gpu11", "gpu3", "gpu10"]),
    ],
)
def test_ranks_fill_nodes_in_this_order(order: str, expected: list[str]) -> None:
    listed = ["gpu10", "gpu2", "gpu1", "gpu3", "gpu11"]
    assert ordered(listed, order=order, answer=answers(TOPOLOGY)) == expected


@pytest.mark.parametrize(("topology", "known"), [("", "no topology at all"), (TOPOLOGY, "no switch")])
def test_an_order_that_slurm_cannot_tell_is_an_error(topology: str, known: str) -> None:
    with pytest.raises(ValueError, match=f"for cpu1 Slurm knows {known}; legal then: slurm, host_name"):
        ordered(["cpu1"], order="topology", answer=answers(topology))


@pytest.mark.parametrize(("launcher", "names"), [("srun", "b,b,a,a"), ("torchrun", "b,a")])
def test_an_order_of_ones_own_is_told_to_srun_task_by_task(launcher: str, names: str) -> None:
    request = launchers.LaunchRequest(
        command=["x"], nodes=2, ranks_per_node=2, cpus_per_rank=1, train_script="", job_id="1", hosts=["b", "a"],
        hosts_are_ordered=True,
    )  # fmt: skip
    command = launchers.launch_command(launcher, request)
    position = command.index("--distribution=arbitrary")
    assert command[position + 1] == f"--nodelist={names}"
    plain = launchers.launch_command(launcher, dataclasses.replace(request, hosts_are_ordered=False))
    assert plain == command[:position] + command[position + 2 :]


# --- removed from the queue -------------------------------------------------------------------------------------------


def test_a_run_whose_job_waited_too_long_has_failed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comments = {
        7: "rule_train_wildcards_unit_resnet_2_0",
        8: "rule_train_unit_resnet_n4_without_1_2_wildcards_unit_resnet_4",
    }
    lines = [f"{job}|{tmp_path}|{comment}" for job, comment in comments.items()]
    lines += ["9|/elsewhere|rule_train_wildcards_unit_resnet_2_1", f"10|{tmp_path}|(null)"]
    for name, lines_of in (("squeue", []), ("sacct", lines)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines_of))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    jobs = removed_jobs(tmp_path)
    in_own_jobs = changed(point(nodes=2, accelerators=1), queue_limit_min=30)
    in_one_job = dataclasses.replace(changed(point(nodes=4, accelerators=1), queue_limit_min=30), allocation="point")
    in_one_job = dataclasses.replace(in_one_job, num_runs=4)
    assert name_of_point_rule(in_one_job, runs=[0, 3]) in comments[8]
    for of, run, job in ((in_own_jobs, 0, 7), (in_own_jobs, 1, None), (in_one_job, 3, 8)):
        folder = tmp_path / "attempts" / f"n{of.nodes}" / f"run_{run}"
        told = [note_removed(of, run=run, attempts_dir=folder, jobs=jobs) for _ in range(2)]
        if job is None:
            assert told == ["", ""]
            assert not folder.exists()
            continue
        assert f"run_{run}: attempt 0 failed (timeout): job {job} waited in the queue longer than" in told[0]
        assert told[1] == "", "said once"
        (record,) = read_attempts(folder)
        assert (record["status"], record["failure_class"], record["job_id"]) == ("failed", "timeout", str(job))
        assert "queue_limit_min = 30" in json.dumps(record["message"])


# --- how often the executor asks --------------------------------------------------------------------------------------

ASKS = """
from types import SimpleNamespace
from snakemake.cli import main
try:
    main(["--profile", "none", "--cores", "1", "--list-rules", "--quiet"])
except SystemExit as end:
    assert not end.code, end.code
from snakemake_executor_plugin_slurm import Executor
executor = object.__new__(Executor)
executor.workflow = SimpleNamespace(executor_settings=SimpleNamespace(init_seconds_before_status_checks=7))
executor.next_seconds_between_status_checks += 10  # as the executor does where no job completed
assert executor.next_seconds_between_status_checks == 7
"""


@pytest.mark.workflow
def test_the_interval_between_two_questions_to_slurm_stays_that_of_the_profile() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", ASKS], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
