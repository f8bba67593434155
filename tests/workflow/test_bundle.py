"""The target `bundle` on a study that was really trained: it holds what the rules made, and verifies elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import Checkout
from mlscaling.bundles.reading import opened

pytestmark = [pytest.mark.workflow, pytest.mark.training]
DERIVED = ("results/validation/", "results/tables/", "results/plots/", "results/planned.json", "results/plan.tsv")


@pytest.fixture(scope="module")
def bundle(trained: Checkout) -> Path:
    trained.snakemake("bundle")
    return trained.path / "results/bundles/trained.zip"


def test_what_follows_from_the_evidence_is_what_the_rules_made(trained: Checkout, bundle: Path) -> None:
    with opened(bundle) as root:
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
        derived = [name for name in names if name.startswith(DERIVED)]
        theirs = {name: (trained.results() / name.removeprefix("results/")).read_bytes() for name in derived}
        assert {name for name in derived if (root / name).read_bytes() != theirs[name]} == set()
    assert len(derived) == 2 + 9 + 3 + 2 + 6 + 20 + 2
    for file in ("attempt.json", "spec.json", "command.json", "ranks.log", "mlperf.log", "nodes.json"):
        assert sum(name.startswith("results/attempts/") and name.endswith(f"/{file}") for name in names) == 9, file
    assert sum(name.startswith("results/runs/") for name in names) == 9 * 2


def test_it_verifies_in_an_empty_folder_and_is_not_packed_again(
    trained: Checkout, bundle: Path, tmp_path: Path
) -> None:
    script = trained.path / "workflow/scripts/bundle.py"
    done = subprocess.run(
        [sys.executable, str(script), "verify", str(bundle)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "study trained, COMPLETE, 9 runs" in done.stdout
    assert trained.planned_jobs("bundle") == {}
