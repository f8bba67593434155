"""A whole study: what it leaves behind, and what a change of it would run again."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from checkout import Checkout

pytestmark = [pytest.mark.workflow, pytest.mark.training]
VERDICTS = {
    "check_likeness": 2,
    "make_runs_table": 1,
    "make_points_table": 1,
    "make_scaling_table": 1,
    "make_network_table": 1,
    "plot": 5,
    "summarize": 1,
    "report": 1,
}


def table(checkout: Checkout, name: str) -> list[dict[str, str]]:
    with checkout.results("tables", f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def without_report(jobs: dict[str, int]) -> dict[str, int]:
    return {rule: count for rule, count in jobs.items() if rule != "report"}


# --- what it leaves behind --------------------------------------------------------------------------------------------


def test_every_planned_run_has_a_row_and_a_compliant_log(trained: Checkout) -> None:
    rows = table(trained, "runs")
    assert len(rows) == 9
    assert {row["status"] for row in rows} <= {"success", "aborted"}
    assert sum(row["status"] == "success" for row in rows) >= 8
    assert {(row["compliance"], row["num_attempts"]) for row in rows} == {("passed", "1")}
    for row in rows:
        if row["status"] == "success":
            assert row["official_compliance"] == "passed", row


def test_the_official_checker_passes_the_logs_unmodified(trained: Checkout) -> None:
    for path in sorted(trained.results("validation").rglob("compliance_*.json")):
        verdict = json.loads(path.read_text())
        assert verdict["official"]["ruleset"] == "1.1.0"
        assert verdict["official"]["passed"] is True, verdict["official"]
        assert verdict["agreement"] == "agree"


def test_points_are_labelled_incomplete_and_none_is_valid(trained: Checkout) -> None:
    rows = table(trained, "points")
    assert [row["completeness"] for row in rows] == ["incomplete, 3 of 5"] * 2 + ["incomplete, 3 of 10"]
    assert {row["verdict"] for row in rows} <= {"incomplete", "invalid"}
    done = trained.snakemake("validated", check=False)
    assert done.returncode != 0
    assert "3 of 3 points are not valid" in done.stdout + done.stderr
    assert "emulated_cpu/bert/n1: incomplete" in done.stdout + done.stderr


def test_efficiency_is_throughput_times_convergence(trained: Checkout) -> None:
    for row in table(trained, "scaling"):
        product = float(row["throughput_efficiency"]) * float(row["convergence_efficiency"])
        assert float(row["efficiency"]) == pytest.approx(product, abs=1e-12)
        assert float(row["samples_ratio"]) == pytest.approx(1 / float(row["convergence_efficiency"]), rel=1e-12)


def test_figures_draw_the_numbers_of_the_tables(trained: Checkout) -> None:
    scaling = {(row["workload"], row["nodes"]): row for row in table(trained, "scaling")}
    with trained.results("plots", "speedup.csv").open(newline="") as stream:
        drawn = list(csv.DictReader(stream))
    assert len(drawn) == len(scaling) > 0
    for row in drawn:
        assert float(row["speedup"]) == float(scaling[row["workload"], row["nodes"]]["speedup"])


@pytest.mark.parametrize("name", ["time_to_train", "speedup", "efficiency", "convergence", "spread"])
def test_each_figure_has_svg_png_data_and_caption(trained: Checkout, name: str) -> None:
    for ending in ("svg", "png", "csv", "rst"):
        assert trained.results("plots", f"{name}.{ending}").stat().st_size > 100
    assert "emulated" in trained.results("plots", f"{name}.svg").read_text()


def test_the_report_is_one_file_without_remote_resources(trained: Checkout) -> None:
    report = trained.results("report.html").read_text()
    assert "a study that the tests train" in report
    for name in ("time_to_train", "speedup", "efficiency", "convergence", "spread"):
        assert f"{name}.svg" in report
    loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=[\"'](https?:[^\"']+)", report)
    assert loaded == []


def test_a_browser_without_a_network_shows_the_report(trained: Checkout, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs Debian's package chromium")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    offline = ["--proxy-server=127.0.0.1:9", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", *quiet, *offline, f"--user-data-dir={tmp_path}",
               "--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom"]  # fmt: skip
    report = trained.results("report.html").resolve().as_uri()
    shown = subprocess.run([*command, report], capture_output=True, text=True, timeout=120)
    assert [line for line in shown.stderr.splitlines() if "CONSOLE" in line and "Error" in line] == []
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", shown.stdout, flags=re.DOTALL)
    text = " ".join(re.sub(r"<[^>]+>", " ", body).split())
    (line,) = (row for row in table(trained, "points") if (row["workload"], row["nodes"]) == ("resnet", "2"))
    assert "a study that the tests train" in text
    assert f"{float(line['time_to_train_min']):.4f}" in text


@pytest.mark.parametrize("nodes", [1, 2])
def test_systems_are_described_by_their_nodes(trained: Checkout, nodes: int) -> None:
    described = json.loads(trained.results("systems", f"emulated_cpu_n{nodes}.json").read_text())
    assert (described["number_of_nodes"], described["accelerators_per_node"]) == (str(nodes), "1")
    assert (described["hw_notes"], described["status"]) == ("emulated nodes on one host", "research")
    assert described["framework"].startswith("PyTorch ")
    assert "N/A" not in (described["host_processor_model_name"], described["host_memory_capacity"])
    verdict = json.loads(trained.results("validation/emulated_cpu", f"description_n{nodes}.json").read_text())
    assert (verdict["passed"], verdict["official"]["passed"]) == (True, True)
    assert [found for found in verdict["findings"] if found["severity"] != "note"] == []


def test_an_edited_description_trains_nothing(changeable: Checkout) -> None:
    system = changeable.path / "config/systems/emulated_cpu.yaml"
    system.write_text(system.read_text() + "  cooling: air\n")
    assert without_report(changeable.planned_jobs()) == {"describe_system": 2, "summarize": 1}


def test_the_summary_fits_a_terminal(trained: Checkout) -> None:
    text = trained.results("tables", "summary.txt").read_text()
    assert max(map(len, text.splitlines())) <= 120
    assert "resnet" in text.lower()
    assert "incomplete" in text


def test_a_second_run_has_nothing_to_do(trained: Checkout) -> None:
    started = time.monotonic()
    done = trained.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr
    assert time.monotonic() - started < 60, "no training can hide in here"


# --- what a change would run again ------------------------------------------------------------------------------------


def test_one_deleted_log_trains_one_run(trained: Checkout, changeable: Checkout) -> None:
    changeable.results("runs/emulated_cpu/resnet/n2/result_1.txt").unlink()
    redone = {"train": 1, "check_compliance": 1, "check_rcp": 1, "describe_system": 1, **VERDICTS}
    assert changeable.planned_jobs() == redone


def test_more_nodes_and_runs_train_only_what_is_new(changeable: Checkout) -> None:
    study = changeable.path / "study.yaml"
    text = study.read_text()
    study.write_text(text.replace("nodes: [1]", "nodes: [1, 2]"))
    jobs = changeable.planned_jobs()
    assert (jobs["train"], jobs["check_compliance"], jobs["check_rcp"], jobs["make_plan"]) == (3, 3, 1, 1)
    study.write_text(text.replace("{local_batch_size: 32}, runs: 3", "{local_batch_size: 32}, runs: 4"))
    jobs = changeable.planned_jobs()
    assert (jobs["train"], jobs["check_compliance"], jobs["check_rcp"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("workflow/scripts/mlscaling/plots/spread.py", {"plot": 1}),
        ("workflow/scripts/mlscaling/plots/style.py", {"plot": 5}),
        ("workflow/scripts/mlscaling/summary.py", {"summarize": 1}),
        ("workflow/scripts/mlscaling/trainer.py", {}),
        ("workflow/scripts/train.py", {}),
        ("workflow/scripts/mlscaling/workloads/resnet.py", {}),
    ],
)
def test_an_edited_module_redoes_what_it_makes(changeable: Checkout, file: str, expected: dict[str, int]) -> None:
    path = changeable.path / file
    path.write_text(path.read_text() + "\n# edited\n")
    assert without_report(changeable.planned_jobs()) == expected


def test_what_does_not_change_a_measurement_trains_nothing(changeable: Checkout) -> None:
    system = changeable.path / "config/systems/emulated_cpu.yaml"
    system.write_text(system.read_text().replace("time_limit_min: 20", "time_limit_min: 30"))
    manifest = changeable.path / "results/datasets/imagenet_digits/manifest.json"
    manifest.touch()
    rule = changeable.path / "rules/train.smk"
    rule.write_text(rule.read_text().replace("2> {log:q}", "  2> {log:q}"))
    assert "train" not in changeable.planned_jobs()


def test_a_changed_hyperparameter_trains_its_point(changeable: Checkout) -> None:
    workload = changeable.path / "config/workloads/resnet.yaml"
    text = workload.read_text()
    (record,) = re.findall(r"global_batch_size: 128,.*|global_batch_size: 128\n(?:.*\n)+?(?=\s+- |\Z)", text)[:1]
    workload.write_text(
        text.replace(record, record.replace("opt_base_learning_rate: 0.", "opt_base_learning_rate: 0.9", 1))
    )
    assert changeable.planned_jobs()["train"] == 3


def test_plan_prints_the_matrix(trained: Checkout) -> None:
    lines = trained.snakemake("plan").stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(("resnet ", "bert "))]
    assert [(row[0], row[2]) for row in rows] == [("resnet", "1"), ("resnet", "2"), ("bert", "1")]
    assert any("rcp status" in line for line in lines)


@pytest.mark.parametrize("target", ["data", "tables", "figures", "results/trained/plots/speedup.svg"])
def test_single_targets_are_up_to_date(trained: Checkout, target: str) -> None:
    assert trained.planned_jobs(target) == {}


def test_a_wrong_study_stops_before_anything_runs(trained: Checkout, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((trained.path / "study.yaml").read_text().replace("nodes: [1, 2]", "nodes: [0, 9]"))
    done = trained.snakemake("--configfile", str(wrong), check=False)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "curves[0].nodes[0] = 0: must be at least 1" in " ".join(output.split())
    assert "Traceback" not in output


def test_a_tiny_study_is_no_submission_and_says_why_at_once(trained: Checkout) -> None:
    done = trained.snakemake("submission", check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "Traceback (most recent call last)" not in text
    for reason in (
        "study trained cannot be submitted",
        "submission.submitter is empty",
        "the scale is tiny; MLPerf's task is the full scale",
        "nodes of emulated_cpu are emulated on one host",
        "log the open division (config/rounds/1.1.0.yaml), submission.division is closed",
        "the target of resnet is ≥ 0.97, MLPerf's is ≥ 0.759",
        "emulated_cpu/bert/n1: 3 runs are planned, the round requires 10",
    ):
        assert reason in text
    assert not trained.results("submission").exists()


def test_a_rehearsal_of_a_submission_is_marked(changeable: Checkout) -> None:
    study = changeable.path / "study.yaml"
    study.write_text(study.read_text() + "submission: {submitter: us, division: open, rehearsal: true}\n")
    assert changeable.planned_jobs("submission") == {"submission": 1}, "the key trains nothing"
    changeable.snakemake("submission")
    tree = changeable.results("submission", "us")
    assert "emulated on one host" in (tree / "NOT_SUBMITTABLE.txt").read_text()
    said = json.loads(changeable.results("submission", "package_check.json").read_text())
    assert said["submittable"] is False
    assert [entry["errors"] for entry in said["submitters"]["us"]["results"]] == [
        [
            f"Incorrect number of files in dir, or wrong file names in directory us/results/{folder}, found 3, expected {n}"
        ]
        for folder, n in (("emulated_cpu/resnet", 5), ("2xemulated_cpu/resnet", 5), ("emulated_cpu/bert", 10))
    ]


def test_validation_and_figures_work_without_torch(changeable: Checkout, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no torch here')")
    for folder in ("validation", "tables", "plots"):
        for path in changeable.results(folder).rglob("*.*"):
            path.unlink()
    changeable.snakemake(PYTHONPATH=str(tmp_path))
    assert changeable.results("plots", "efficiency.svg").exists()
