"""docs/adding_a_workload.md is a complete example: its two files and its study train in a copy of the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT, copy_of_repository

pytestmark = [pytest.mark.workflow, pytest.mark.training]
PAGE = ROOT / "docs" / "adding_a_workload.md"


def files_of_the_page() -> dict[str, str]:
    """Path in each block's first line → the block."""
    blocks = re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return dict(blocks)


def test_the_example_is_one_yaml_one_module_and_a_study_and_trains(tmp_path: Path) -> None:
    files = files_of_the_page()
    assert list(files) == [
        "config/workloads/perceptron.yaml",
        "workflow/scripts/mlscaling/workloads/perceptron.py",
        "study.yaml",
    ]
    checkout = copy_of_repository(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    verdict = "results/perceptron/validation/emulated_cpu/perceptron/n1/compliance_0.json"
    checkout.snakemake(verdict, "results/perceptron/plan.tsv")
    found = json.loads((tmp_path / verdict).read_text())
    assert found["passed"] is True, found["findings"]
    assert found["official"]["passed"] is True, found["official"]
    assert found["summary"]["status"] == "success"
    for tool in (["ruff", "check"], ["ruff", "format", "--check"]):
        command = [sys.executable, "-m", *tool, list(files)[1]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
