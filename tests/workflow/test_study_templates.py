"""The studies of five workloads and of full scale: what a dry run says that they would start."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

import pytest
import yaml
from checkout import ROOT, Checkout

pytestmark = pytest.mark.workflow
TRAINING = re.compile(r"^Job \d+: Training (\w+) on (\d+) node\(s\) of (\w+), run \d+\.$", re.MULTILINE)
RUNS = {"resnet": 5, "ssd": 5, "maskrcnn": 5, "bert": 10, "rnnt": 10}


def trainings(study: str, *, profile: str) -> Counter:
    """(workload, nodes, system) → trainings that a dry run would start."""
    path = ROOT / "config" / "studies" / f"{study}.yaml"
    checkout = Checkout(path=ROOT)
    command = checkout.command("--dry-run", "--nolock", "--configfile", str(path))
    command[command.index("profiles/local")] = f"profiles/{profile}"
    done = subprocess.run(command, cwd=ROOT, env=checkout.environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return Counter(TRAINING.findall(done.stdout + done.stderr))


def test_five_workloads_have_the_required_runs_on_one_and_two_nodes() -> None:
    found = trainings("five_workloads", profile="slurm")  # whose plain log names each training
    assert found == {(name, nodes, "emulated_cpu"): runs for name, runs in RUNS.items() for nodes in "12"}


def test_full_scale_on_slurm_has_the_very_jobs() -> None:
    expected = {("resnet", nodes, "r750xa_a100_pcie_80gb"): 5 for nodes in "1248"}
    expected |= {(name, nodes, "xe8545_a100_sxm_80gb"): runs for name, runs in RUNS.items() for nodes in "12"}
    assert trainings("full_slurm", profile="slurm") == expected


def test_full_scale_has_the_batches_of_the_published_study() -> None:
    """But for SSD on eight R750xa nodes, which that study did not show."""
    batches = []
    for study in ("full_slurm", "dell_v1.1"):
        curves = yaml.safe_load((ROOT / "config" / "studies" / f"{study}.yaml").read_text())["curves"]
        keys = ("workload", "system", "nodes", "strong", "weak", "explicit", "runs")
        batches.append([{key: curve[key] for key in keys if key in curve} for curve in curves])
    template, published = batches
    assert [curve for curve in published if curve not in template] == [
        {
            "workload": "ssd",
            "system": "r750xa_a100_pcie_80gb",
            "nodes": [1, 8],
            "explicit": {"global_batch_sizes": [912, 1536]},
            "runs": 5,
        }
    ]
    assert all(curve in published for curve in template)
