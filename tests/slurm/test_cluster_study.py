"""The Slurm profile on a cluster: one job per run or point, ranks on distinct hosts, cheap rules at home, options."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from slurm_study import STUDY, SlurmStudy, curve

pytestmark = [pytest.mark.slurm, pytest.mark.training]
POINTS = [(nodes, run) for nodes in (1, 2, 4) for run in (0, 1, 2)]
"""Node count and run of everything that a job each trains."""
MPIRUN = os.environ.get("CI") == "true" or shutil.which("mpirun") is not None
"""Whether the tests need Open MPI's, or may use it; as root it wants to be allowed."""
LAUNCHERS = ["torchrun", *(["mpirun"] if MPIRUN else [])]
"""Those that a run of two ranks on each of two nodes tries, beside `srun`."""
TREE_ORDER = ["node4", "node3"]
"""The even nodes' switch comes first by name; Slurm lists node3 first."""
AS_ROOT = "environment: {OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1'}\n"
OTHERS = "exclude_nodes: ['node[1-2,5-8]']\nrank_order: topology\n"


@pytest.fixture(scope="module")
def trained(prepared: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> SlurmStudy:
    study = prepared.copy(tmp_path_factory.mktemp("slurm") / "study", study=with_runs_in_one_job(2))
    for launcher, keys in (("torchrun", OTHERS), ("mpirun", OTHERS + AS_ROOT)):
        two_ranks = {"launcher: srun": f"launcher: {launcher}", "rs_per_node: 1": "rs_per_node: 2"}
        study.system(f"by_{launcher}", two_ranks, keys=keys)
    staged = f"stage_data_to: {study.cluster.local}/staged\ndrop_page_cache: true\n"
    study.system("in_one_job", {}, keys=OTHERS + staged)
    study.snakemake("--jobs=4")
    return study


def with_runs_in_one_job(runs: int) -> str:
    curves = [
        curve(nodes=[1, 2, 4], runs=3),
        *(curve(nodes=[2], runs=1, system=f"by_{name}", local_batch_size=32) for name in LAUNCHERS),
        curve(nodes=[2], runs=runs, system="in_one_job", allocation="point"),
    ]
    return STUDY.format(curves="\n".join(curves))


def jobs_of(study: SlurmStudy) -> dict[str, str]:
    """Slurm job → what the executor named its log after."""
    logs = study.path.glob("results/slurm_logs/rule_*/*/*.log")
    return {path.stem: f"{path.parents[1].name} {path.parent.name}" for path in logs}


def record_of(study: SlurmStudy, system: str, run: int) -> dict[str, Any]:
    return json.loads(study.results(f"runs/{system}/resnet/n2/run_{run}.json").read_text())


def rows_of(study: SlurmStudy, table: str = "runs") -> list[dict[str, str]]:
    with study.results(f"tables/{table}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_run_or_point_is_one_job_and_nothing_else_is(trained: SlurmStudy) -> None:
    trainings = [f"rule_train test_cluster_resnet_{nodes}_{run}" for nodes, run in POINTS]
    others = ["rule_prepare_dataset imagenet_digits", *(f"rule_train by_{name}_resnet_2_0" for name in LAUNCHERS)]
    in_one = "rule_train_in_one_job_resnet_n2 in_one_job_resnet_2"
    jobs = jobs_of(trained)
    assert sorted(jobs.values()) == sorted([*trainings, *others, in_one])
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


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_every_node_says_what_it_is(trained: SlurmStudy, nodes: int) -> None:
    record = json.loads(trained.results(f"runs/test_cluster/resnet/n{nodes}/run_0.json").read_text())
    (attempt,), captured = record["attempts"], record["nodes"]["captured"]
    assert [{"name": host["hostname"], "address": host["address"]} for host in captured] == attempt["nodes"]
    assert len({host["address"] for host in captured}) == len({host["hostname"] for host in captured}) == nodes
    assert record["nodes"]["slurm"]["job_id"] == attempt["job_id"]
    assert record["nodes"]["slurm"]["partition"] == "main"
    assert (record["nodes"]["silent"], record["nodes"]["differences"]) == ([], [])
    assert record["nodes"]["seconds"] < 30


@pytest.mark.parametrize(("system", "nodes"), [("test_cluster", 1), ("test_cluster", 2), ("test_cluster", 4)])
def test_systems_are_described_and_the_official_checker_accepts_it(
    trained: SlurmStudy, system: str, nodes: int
) -> None:
    described = json.loads(trained.results("systems", f"{system}_n{nodes}.json").read_text())
    assert (described["system_name"], described["number_of_nodes"]) == (system, str(nodes))
    assert described["other_software_stack"]["slurm_version"]
    verdict = json.loads(trained.results("validation", system, f"description_n{nodes}.json").read_text())
    assert (verdict["passed"], verdict["official"]["passed"]) == (True, True)
    assert {found["check"] for found in verdict["findings"]} == {"not_said"}


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_one_node_starts_like_many(trained: SlurmStudy, nodes: int) -> None:
    folder = trained.results(f"attempts/test_cluster/resnet/n{nodes}/run_0/attempt_0")
    attempt, command = (json.loads((folder / f"{name}.json").read_text()) for name in ("attempt", "command"))
    job, python = attempt["job_id"], command[command.index("rank") - 2]
    assert command == [
        "srun", f"--jobid={job}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        "--cpus-per-task=1", "--kill-on-bad-exit=1", "--wait=60", "--label",
        "env", f"MASTER_ADDR={attempt['nodes'][0]['address']}", f"MASTER_PORT={20000 + int(job) % 12000}",
        "OMP_NUM_THREADS=1", python, str(trained.path / "workflow/scripts/train.py"), "rank",
        f"--spec={folder / 'spec.json'}", f"--log={folder / 'mlperf.log'}",
    ]  # fmt: skip


@pytest.mark.parametrize(("system", "ranks_per_node"), [*((f"by_{name}", 2) for name in LAUNCHERS), ("in_one_job", 1)])
def test_ranks_fill_the_nodes_that_may_be_used_in_the_order_asked_for(
    trained: SlurmStudy, system: str, ranks_per_node: int
) -> None:
    (attempt,) = record_of(trained, system, 0)["attempts"]
    assert attempt["hostname"] == "node3"
    assert [node["name"] for node in attempt["nodes"]] == TREE_ORDER
    hosts = [host for host in TREE_ORDER for _ in range(ranks_per_node)]
    assert [(rank["rank"], rank["host"]) for rank in attempt["ranks"]] == list(enumerate(hosts))


def test_every_run_converged_and_complies_and_no_point_is_invalid(trained: SlurmStudy) -> None:
    rows = rows_of(trained)
    assert [(int(row["nodes"]), int(row["run"])) for row in rows] == [
        *POINTS,
        *((2, 0) for _ in LAUNCHERS),
        (2, 0),
        (2, 1),
    ]
    verdicts = {
        tuple(row[key] for key in ("status", "compliance", "official_compliance", "num_attempts")) for row in rows
    }
    assert verdicts == {("success", "passed", "passed", "1")}
    points = rows_of(trained, "points")
    assert [(int(row["nodes"]), row["num_converged"]) for row in points[:3]] == [(1, "3"), (2, "3"), (4, "3")]
    assert {row["verdict"] for row in points} == {"incomplete"}, "the round asks for 5 runs"
    assert trained.results("report.html").stat().st_size > 0


def test_nothing_is_left_to_do(trained: SlurmStudy) -> None:
    done = trained.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr
    assert trained.running_jobs() == []


def test_what_a_job_makes_may_change_and_re_runs_nothing(trained: SlurmStudy) -> None:
    study = trained.path / "study.yaml"
    before = study.read_text()
    swapped = before.replace(": run}", ": ?}").replace(": point}", ": run}").replace(": ?}", ": point}")
    study.write_text(swapped)
    done = trained.snakemake("--dry-run", "results/on_slurm/tables/summary.txt")
    study.write_text(before)
    assert swapped.count(": point}") == 1 + len(LAUNCHERS)
    assert "Nothing to be done" in done.stdout + done.stderr


def test_the_profile_is_the_one_that_users_get(trained: SlurmStudy) -> None:
    root = Path(__file__).resolve().parents[2]
    assert (trained.path / "profiles/slurm/config.yaml").read_text() == (
        root / "profiles/slurm/config.yaml"
    ).read_text()


# --- options ----------------------------------------------------------------------------------------------------------


def test_each_node_has_a_copy_of_the_data_which_the_second_run_only_verifies(trained: SlurmStudy) -> None:
    spool = trained.cluster.state / "spool"
    for run, copied in ((0, True), (1, False)):
        folder = trained.results(f"attempts/in_one_job/resnet/n2/run_{run}/attempt_0")
        said = json.loads((folder / "stage.json").read_text())
        assert {node["host"]: node["copied"] == node["files"] for node in said["nodes"]} == dict.fromkeys(
            TREE_ORDER, copied
        )
        read_from = Path(json.loads((folder / "spec.json").read_text())["data_dir"])
        assert read_from.parent == trained.cluster.local / "staged"
        assert not read_from.exists(), "only the nodes have it"
        assert all((spool / node / "local/staged" / read_from.name / "train.txt").is_file() for node in TREE_ORDER)
        (attempt,) = record_of(trained, "in_one_job", run)["attempts"]
        assert attempt["staging_s"] == said["seconds"]
    minutes = [float(row["staging_min"]) for row in rows_of(trained) if row["staging_min"]]
    assert len(minutes) == 2
    assert all(value > 0 for value in minutes)


def test_the_log_says_that_the_page_cache_was_dropped_where_it_was(trained: SlurmStudy) -> None:
    for node in TREE_ORDER:
        assert (trained.cluster.state / "spool" / node / "drop_caches").read_text() == "3\n"
    for system, cleared in (("in_one_job", True), ("test_cluster", False)):
        log = trained.results(f"runs/{system}/resnet/n2/result_0.txt").read_text()
        (line,) = (line for line in log.splitlines() if '"cache_clear"' in line)
        assert json.loads(line.removeprefix(":::MLLOG "))["value"] is cleared


def test_one_more_run_of_a_point_in_one_job_trains_only_that_run(trained: SlurmStudy, tmp_path: Path) -> None:
    logs = [trained.results(f"runs/in_one_job/resnet/n2/result_{run}.txt") for run in range(3)]
    before, jobs = [log.read_bytes() for log in logs[:2]], set(jobs_of(trained))
    (trained.path / "study.yaml").write_text(with_runs_in_one_job(3))
    trained.snakemake("results/on_slurm/tables/runs.csv")
    (job,) = set(jobs_of(trained)) - jobs
    attempts = [trained.attempts(nodes=2, run=run, system="in_one_job") for run in range(3)]
    assert [len(tried) for tried in attempts] == [1, 1, 1]
    assert [tried[0]["job_id"] == job for tried in attempts] == [False, False, True]
    assert [log.read_bytes() for log in logs[:2]] == before
