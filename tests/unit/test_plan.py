"""The plan: RCP status and cost of each point before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlscaling.plan import aligned_plan, plan_rows, plan_text, read_plan

POINT = {
    "workload": "resnet", "system": "s", "nodes": 2, "accelerators": 4, "batch_policy": "weak", "mlperf_benchmark": "resnet",
    "global_batch_size": 128, "local_batch_size": 32, "num_runs": 5, "required_runs": 5, "convergence_unit": "epochs",
    "train_samples": 1500, "samples_per_s_per_accelerator": 100.0, "rcps": "rcps.json",
}  # fmt: skip


@pytest.fixture
def base(tmp_path: Path) -> Path:
    record = {"Benchmark": "resnet", "BS": 128, "Hyperparams": {}, "Epochs to converge": [8] * 10}
    (tmp_path / "rcps.json").write_text(json.dumps({"resnet_ref_128": record}))
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "status", "mean", "minutes", "hours"),
    [
        ({}, "exact", "8 epochs", "0.5", "0.167"),
        ({"samples_per_s_per_accelerator": None}, "exact", "8 epochs", "unknown", "unknown"),
        ({"convergence_unit": "samples"}, "exact", "8 samples", "0.000333", "0.000111"),
        ({"global_batch_size": 64}, "slower_than_smallest", "8 epochs", "0.5", "0.167"),
        ({"global_batch_size": 256}, "missing", "unknown", "unknown", "unknown"),
        ({"rcps": ""}, "none given", "unknown", "unknown", "unknown"),
        ({"rcps": "other.json"}, "no file other.json", "unknown", "unknown", "unknown"),
        ({"rcps": "official", "global_batch_size": 3264}, "exact", "35.1538 epochs", "2.2", "0.732"),
    ],
)
def test_rcp_status_and_cost(base: Path, changes: dict, status: str, mean: str, minutes: str, hours: str) -> None:
    (row,) = plan_rows({"round": "1.1.0", "points": [{**POINT, **changes}]}, base=base)
    found = [row[name] for name in ("rcp_status", "rcp_mean", "expected_minutes_per_run", "accelerator_hours")]
    assert found == [status, mean, minutes, hours]


def test_text_and_back_and_for_people(base: Path) -> None:
    rows = plan_rows({"round": "1.1.0", "points": [POINT, {**POINT, "rcps": ""}]}, base=base)
    assert read_plan(plan_text(rows)) == rows
    lines = aligned_plan(rows, warnings=["my.yaml: …"]).splitlines()
    assert lines[0].startswith("workload  system  nodes")
    assert lines[-2] == "0.167 accelerator-hours at least, and 1 points of unknown cost"
    assert lines[-1] == "my.yaml: …"
