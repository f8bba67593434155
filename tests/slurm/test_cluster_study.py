"""The Slurm profile on a cluster: one job per run, ranks on distinct hosts, cheap rules at home."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from slurm_study import STUDY, SlurmStudy, curve

pytestmark = [pytest.mark.slurm, pytest.mark.training]
POINTS = [(1, 0), (1, 1), (2, 0), (2, 1), (4, 0)]
"""Node count and run of everything that the study trains."""


@pytest.fixture(scope="module")
def trained(prepared: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> SlurmStudy:
    curves = f"{curve(nodes=[1, 2], runs=2)}\n{curve(nodes=[4], runs=1)}"
    curves += "\n" + curve(nodes=[2], runs=1, system="by_torchrun").replace("64}", "32}")
    study = prepared.copy(tmp_path_factory.mktemp("slurm") / "study", study=STUDY.format(curves=curves))
    system = (study.path / "config/systems/test_cluster.yaml").read_text()
    for old, new in (("launcher: srun", "launcher: torchrun"), ("rs_per_node: 1", "rs_per_node: 2")):
        assert old in system
        system = system.replace(old, new)
    (study.path / "config/systems/by_torchrun.yaml").write_text(system)
    study.snakemake()
    return study


def test_every_run_is_one_job_and_nothing_else_is(trained: SlurmStudy) -> None:
    jobs = {path.stem: path.parent.name for path in trained.path.glob("results/slurm_logs/rule_*/*/*.log")}
    trainings = [f"test_cluster_resnet_{nodes}_{run}" for nodes, run in POINTS]
    assert sorted(jobs.values()) == sorted(["imagenet_digits", "by_torchrun_resnet_2_0", *trainings])
    ids = [trained.attempts(nodes=nodes, run=run)[0]["job_id"] for nodes, run in POINTS]
    assert set(ids) <= set(jobs)
    assert len(set(ids)) == len(POINTS)
    accounted = trained.slurm("sacct", "-X", "-n", "-P", "--format=NNodes,State", f"--jobs={','.join(ids)}").split()
    assert sorted(accounted) == sorted(f"{nodes}|COMPLETED" for nodes, _ in POINTS)


@pytest.mark.parametrize(("nodes", "run"), POINTS)
def test_ranks_are_on_distinct_hosts_of_the_allocation(trained: SlurmStudy, nodes: int, run: int) -> None:
    record = json.loads(trained.results(f"runs/test_cluster/resnet/n{nodes}/run_{run}.json").read_text())
    (attempt,) = record["attempts"]
    assert [rank["rank"] for rank in attempt["ranks"]] == list(range(nodes))
    places = [{"name": rank["host"], "address": rank["address"]} for rank in attempt["ranks"]]
    assert places == attempt["nodes"]
    assert len({place["address"] for place in places}) == nodes
    assert attempt["hostname"] == places[0]["name"]


@pytest.mark.parametrize(("nodes", "run"), POINTS)
def test_every_node_says_what_it_is(trained: SlurmStudy, nodes: int, run: int) -> None:
    record = json.loads(trained.results(f"runs/test_cluster/resnet/n{nodes}/run_{run}.json").read_text())
    (attempt,), captured = record["attempts"], record["nodes"]["captured"]
    assert [{"name": host["hostname"], "address": host["address"]} for host in captured] == attempt["nodes"]
    assert len({host["address"] for host in captured}) == len({host["hostname"] for host in captured}) == nodes
    assert record["nodes"]["slurm"]["job_id"] == attempt["job_id"]
    assert record["nodes"]["slurm"]["partition"] == "main"
    assert (record["nodes"]["silent"], record["nodes"]["differences"], attempt["notes"]) == ([], [], [])
    assert record["nodes"]["seconds"] < 10


@pytest.mark.parametrize(
    ("system", "nodes"), [("test_cluster", 1), ("test_cluster", 2), ("test_cluster", 4), ("by_torchrun", 2)]
)
def test_systems_are_described_and_the_official_checker_accepts_it(
    trained: SlurmStudy, system: str, nodes: int
) -> None:
    described = json.loads(trained.results("systems", f"{system}_n{nodes}.json").read_text())
    assert (described["system_name"], described["number_of_nodes"]) == (system, str(nodes))
    assert described["other_software_stack"]["slurm_version"]
    verdict = json.loads(trained.results("validation", system, f"description_n{nodes}.json").read_text())
    assert (verdict["passed"], verdict["official"]["passed"]) == (True, True)
    assert {found["check"] for found in verdict["findings"]} == {"not_said"}


@pytest.mark.parametrize(("nodes", "run"), POINTS)
def test_one_node_starts_like_many(trained: SlurmStudy, nodes: int, run: int) -> None:
    folder = trained.results(f"attempts/test_cluster/resnet/n{nodes}/run_{run}/attempt_0")
    attempt, command = (json.loads((folder / f"{name}.json").read_text()) for name in ("attempt", "command"))
    job, python = attempt["job_id"], command[command.index("rank") - 2]
    assert command == [
        "srun", f"--jobid={job}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        "--cpus-per-task=1", "--kill-on-bad-exit=1", "--wait=60", "--label",
        "env", f"MASTER_ADDR={attempt['nodes'][0]['address']}", f"MASTER_PORT={20000 + int(job) % 12000}",
        "OMP_NUM_THREADS=1", python, str(trained.path / "workflow/scripts/train.py"), "rank",
        f"--spec={folder / 'spec.json'}", f"--log={folder / 'mlperf.log'}",
    ]  # fmt: skip


def test_torchrun_starts_the_ranks_of_each_node_in_order(trained: SlurmStudy) -> None:
    record = json.loads(trained.results("runs/by_torchrun/resnet/n2/run_0.json").read_text())
    (attempt,) = record["attempts"]
    first, second = (node["name"] for node in attempt["nodes"])
    assert [(rank["rank"], rank["host"]) for rank in attempt["ranks"]] == list(
        enumerate([first, first, second, second])
    )


def test_logs_are_valid(trained: SlurmStudy) -> None:
    with trained.results("tables/runs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(int(row["nodes"]), int(row["run"])) for row in rows] == [*POINTS, (2, 0)]
    assert {(row["compliance"], row["official_compliance"], row["num_attempts"]) for row in rows} == {
        ("passed", "passed", "1")
    }
    assert {row["status"] for row in rows} <= {"success", "aborted"}
    assert trained.results("report.html").stat().st_size > 0


def test_nothing_is_left_to_do(trained: SlurmStudy) -> None:
    done = trained.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr
    assert trained.running_jobs() == []


def test_the_profile_is_the_one_that_users_get(trained: SlurmStudy) -> None:
    root = Path(__file__).resolve().parents[2]
    assert (trained.path / "profiles/slurm/config.yaml").read_text() == (
        root / "profiles/slurm/config.yaml"
    ).read_text()
