"""Published logs through the same rules as trained runs: the headline numbers, the alarm, and a tree left as it was."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from checkout import Checkout, copy_of_repository

pytestmark = pytest.mark.workflow
CURVES = [("resnet", "r750xa_a100_pcie_80gb"), ("rnnt", "xe8545_a100_sxm_80gb")]


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        total.update(str(path.relative_to(folder)).encode())
        total.update(path.read_bytes() if path.is_file() else b"")
    return total.hexdigest()


@pytest.fixture(scope="module")
def imported(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = copy_of_repository(tmp_path_factory.mktemp("published"))
    study = yaml.safe_load((checkout.path / "config/studies/dell_v1.1.yaml").read_text())
    study["study"] = "trained"  # the folder that Checkout.results knows
    study["published_root"] = str(shared_data / "training_results_v1.1")
    study["curves"] = [curve for curve in study["curves"] if (curve["workload"], curve["system"]) in CURVES]
    (checkout.path / "study.yaml").write_text(yaml.safe_dump(study))
    before = digest(shared_data / "training_results_v1.1")
    checkout.snakemake()
    assert digest(shared_data / "training_results_v1.1") == before, "the tree that was read has changed"
    return checkout


def table(checkout: Checkout, name: str) -> dict[tuple[str, str], dict[str, str]]:
    with checkout.results("tables", f"{name}.csv").open(newline="") as stream:
        return {(row["workload"], row["nodes"]): row for row in csv.DictReader(stream)}


@pytest.mark.parametrize(
    ("workload", "nodes", "minutes", "speedup", "efficiency", "throughput", "convergence"),
    [
        ("resnet", 1, 62.949, 1.00, 1.000, 1.000, 1.000),
        ("resnet", 2, 32.087, 1.96, 0.981, 0.981, 1.000),
        ("resnet", 4, 17.336, 3.63, 0.908, 0.908, 1.000),
        ("resnet", 8, 10.586, 5.95, 0.743, 0.956, 0.778),
        ("rnnt", 1, 106.542, 1.00, 1.000, 1.000, 1.000),
        ("rnnt", 2, 35.068, 3.04, 1.519, 1.533, 0.991),
    ],
)
def test_scores_and_decomposition(
    imported: Checkout, workload: str, nodes: int, minutes: float, speedup: float, efficiency: float,
    throughput: float, convergence: float,
) -> None:  # fmt: skip
    key = (workload, str(nodes))
    point, scaling = table(imported, "points")[key], table(imported, "scaling")[key]
    assert float(point["time_to_train_min"]) == pytest.approx(minutes, abs=1e-3)
    assert point["verdict"] == "valid"
    assert float(scaling["speedup"]) == pytest.approx(speedup, abs=5e-3)
    found = [float(scaling[f"{name}efficiency"]) for name in ("", "throughput_", "convergence_")]
    assert found == pytest.approx([efficiency, throughput, convergence], abs=6e-4)


def test_eight_nodes_are_inherent_times_avoidable_and_both_rcp_sets_are_kept(imported: Checkout) -> None:
    scaling = table(imported, "scaling")["resnet", "8"]
    found = [float(scaling[name]) for name in ("samples_ratio", "inherent_ratio", "avoidable_ratio")]
    assert found == pytest.approx([1.286, 1.202, 1.070], abs=5e-4)
    rcp = json.loads(imported.results("validation/r750xa_a100_pcie_80gb/resnet/n8/rcp.json").read_text())
    assert (rcp["mean"], rcp["limit"]) == pytest.approx((42.07, 41.31), abs=5e-3)
    assert (rcp["full"]["mean"], rcp["full"]["limit"]) == pytest.approx((45.5, 44.68), abs=5e-3)
    assert rcp["official"]["passed"] is True


def test_more_than_linear_is_an_alarm_that_names_the_setting(imported: Checkout) -> None:
    verdict = json.loads(imported.results("validation/xe8545_a100_sxm_80gb/rnnt/likeness.json").read_text())
    assert "gradient_accumulation_steps 8 → 1" in verdict["alarm"]["message"]
    assert "ALARM" in imported.results("tables/summary.txt").read_text()
    other = json.loads(imported.results("validation/r750xa_a100_pcie_80gb/resnet/likeness.json").read_text())
    assert other["alarm"] is None


def test_case_c13_descriptions_are_kept_and_what_they_contradict_is_reported(
    imported: Checkout, shared_data: Path
) -> None:
    tree = shared_data / "training_results_v1.1" / "Dell" / "systems"
    kept = imported.results("systems", "r750xa_a100_pcie_80gb_n8.json").read_bytes()
    assert kept == (tree / "8xR750xax4A100-PCIE-80GB.json").read_bytes()
    verdict = json.loads(imported.results("validation/r750xa_a100_pcie_80gb/description_n8.json").read_text())
    (found,) = verdict["findings"]
    assert (found["check"], verdict["official"]["passed"]) == ("accelerator_memory", True)
    text = " ".join(imported.results("tables/summary.txt").read_text().split())
    assert "description of r750xa_a100_pcie_80gb, 8 nodes: accelerator_memory_capacity is '40 GB', but" in text
    assert "System descriptions with findings" in imported.results("tables/summary.rst").read_text()


def test_every_figure_and_the_report_carry_the_trademark_note(imported: Checkout) -> None:
    for path in imported.results("plots").glob("*.svg"):
        assert "registered and unregistered trademarks of MLCommons" in path.read_text(), path.name
    assert "trademarks of MLCommons" in imported.results("report.html").read_text()


def test_its_submission_is_what_was_published(imported: Checkout, shared_data: Path) -> None:
    """Every file is the published one, and the official checker says what it says of the published tree."""
    output = imported.snakemake("submission")
    tree, source = imported.results("submission", "Dell"), shared_data / "training_results_v1.1" / "Dell"
    copied = [path.relative_to(tree) for path in tree.rglob("*") if path.is_file() and path.suffix != ".md"]
    assert len(copied) == 20 + 20 + 6, "logs of ResNet-50 and RNN-T, descriptions of four and two systems"
    assert all((tree / path).read_bytes() == (source / path).read_bytes() for path in copied)
    said = json.loads(imported.results("submission", "package_check.json").read_text())
    assert sorted(said["submitters"]["Dell"]["files"]) == sorted(
        path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()
    )
    assert said["submittable"] is True
    assert said["submitters"]["Dell"]["passed"] is True
    assert {entry["scaling"]["kept"] for entry in said["submitters"]["Dell"]["results"] if entry["scaling"]} == {False}
    assert "passes; it accepts 6 of 6 folders" in output.stdout + output.stderr


def test_it_compares_with_itself(imported: Checkout) -> None:
    command = [sys.executable, "workflow/scripts/bundle.py", "compare", "results/trained", "results/trained"]
    done = subprocess.run(command, cwd=imported.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No change: nothing is significantly faster or slower." in done.stdout
    assert "6 points tested" in done.stdout
    assert "trademarks of MLCommons" in " ".join(done.stdout.split())
    other = [*command, "--map", "r750xa_a100_pcie_80gb=xe8545_a100_sxm_80gb"]
    done = subprocess.run(other, cwd=imported.path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no workload at the same number of nodes" in done.stderr


def test_its_bundle_holds_without_the_tree(imported: Checkout, tmp_path: Path) -> None:
    def bundle(*arguments: str) -> str:
        command = [sys.executable, "workflow/scripts/bundle.py", *arguments]
        done = subprocess.run(command, cwd=imported.path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    archive = str(tmp_path / "published.zip")
    assert "complete, 40 of 40 runs" in bundle("write", "--configfile", "study.yaml", "--output", archive)
    assert "study trained, COMPLETE, 40 runs" in bundle("verify", archive)


def test_a_missing_tree_or_folder_is_a_clear_error(imported: Checkout, tmp_path: Path) -> None:
    study = yaml.safe_load((imported.path / "study.yaml").read_text())
    for root in ("", str(tmp_path / "nowhere")):
        (tmp_path / "s.yaml").write_text(yaml.safe_dump({**study, "published_root": root}))
        done = imported.snakemake("--dry-run", "--configfile", str(tmp_path / "s.yaml"), check=False)
        assert done.returncode != 0
        assert "published_root" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
