"""What differs between the points of a curve, and the alarm above 100 % efficiency (C11)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlscaling import tables
from mlscaling.likeness import CurvePoint, likeness, read_curve
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import from_values, read_description
from mlscaling.settings_of_runs import kind_of_hyperparameter

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
SUPER = {"efficiency": 1.519, "efficiency_low": 1.462, "efficiency_high": 1.57, "reference_nodes": 1}
LINEAR = {"efficiency": 0.98, "efficiency_low": 0.93, "efficiency_high": 1.03, "reference_nodes": 1}
SETTINGS: dict[str, Any] = {
    "opt_name": "sgd",
    "opt_base_learning_rate": 0.1,
    "opt_learning_rate_warmup_epochs": 2,
    "opt_weight_decay": 5e-5,
    "gradient_accumulation_steps": 1,
    "precision": "float32",
    "number_of_nodes": 1,
    "seed": 1,
}
RECORD: dict[str, Any] = {
    "spec": {"options": {"precision": "float32", "compile": False}, "model": {"width": 0.125}},
    "system": {"accelerator": "GPU9", "accelerators_per_node": 4, "container": "none", "image": "", "environment": {}},
    "code": {"commit": "0123456789abcdef", "dirty": False},
    "packages": {"torch": "2.14.1"},
    "environment": {"OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "77"},
    "host": {"hostname": "node1", "processor": "CPU", "kernel": "Linux 6", "cores": 8, "memory_mib": 1000},
    "attempts": [],
}


def point(nodes: int, *, batch: float = 64, scaling: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **settings: Any) -> CurvePoint:  # fmt: skip
    hyperparameters = {**SETTINGS, "number_of_nodes": nodes, "global_batch_size": batch, **settings}
    hyperparameters = {name: value for name, value in hyperparameters.items() if value is not None}
    run = RunSummary(global_batch_size=batch, hyperparameters=hyperparameters)
    return CurvePoint(nodes=nodes, summaries=[run] * 5, records=[record] if record else [], scaling=scaling or {})


def verdict(*points: CurvePoint) -> dict[str, Any]:
    return likeness(points, system="box", workload="resnet")


def found(*points: CurvePoint) -> list[tuple[str, str, str]]:
    return [(item["severity"], item["check"], item["setting"]) for item in verdict(*points)["findings"]]


def changed(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(record)
    *parents, last = path.split("/")
    place = result
    for name in parents:
        place = place[name]
    place[last] = value
    return result


# --- logs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({}, []),
        ({"opt_weight_decay": 0.00005}, []),
        ({"gradient_accumulation_steps": 1.0}, []),
        ({"batch": 128}, [("note", "batch", "global_batch_size")]),
        ({"batch": 128, "opt_base_learning_rate": 0.2}, [("note", "learning_rate", "opt_base_learning_rate"), ("note", "batch", "global_batch_size")]),
        ({"opt_base_learning_rate": 0.2}, [("warning", "learning_rate", "opt_base_learning_rate")]),
        ({"opt_learning_rate_warmup_epochs": 3}, [("warning", "schedule", "opt_learning_rate_warmup_epochs")]),
        ({"gradient_accumulation_steps": 8, "batch": 128}, [("warning", "gradient_accumulation", "gradient_accumulation_steps"), ("note", "batch", "global_batch_size")]),
        ({"opt_weight_decay": 1e-4, "batch": 128}, [("warning", "hyperparameter", "opt_weight_decay"), ("note", "batch", "global_batch_size")]),
        ({"opt_weight_decay": None}, [("warning", "hyperparameter", "opt_weight_decay")]),
        ({"opt_name": "lars"}, [("warning", "optimiser", "opt_name")]),
        ({"precision": "bfloat16"}, [("warning", "precision", "precision")]),
        ({"seed": 2, "train_samples": 5, "eval_samples": 6, "target_quality": 0.7}, []),
    ],
)  # fmt: skip
def test_differences_between_logs(second: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert found(point(1), point(2, **second)) == expected


def test_a_learning_rate_that_follows_the_batch_only_sometimes_is_a_warning() -> None:
    follows = [
        point(1),
        point(2, batch=128, opt_base_learning_rate=0.2),
        point(4, batch=128, opt_base_learning_rate=0.2),
    ]
    assert found(*follows)[0][0] == "note"
    strays = [*follows[:2], point(4, batch=128, opt_base_learning_rate=0.3)]
    assert found(*strays)[0] == ("warning", "learning_rate", "opt_base_learning_rate")


def test_runs_of_one_point_that_differ() -> None:
    mixed = CurvePoint(nodes=2, summaries=[*point(2).summaries, *point(2, precision="bfloat16").summaries])
    (item,) = verdict(point(1), mixed)["findings"]
    assert item["message"] == "precision is float32 at 1 node, float32 and bfloat16 at 2 nodes"
    assert item["values"] == {"1": ["float32"], "2": ["float32", "bfloat16"]}


def test_messages_name_the_nodes() -> None:
    (item,) = verdict(*(point(n, precision="bf16" if n > 2 else "fp32") for n in (4, 1, 8, 2)))["findings"]
    assert item["message"] == "precision is fp32 at 1 and 2 nodes, bf16 at 4 and 8 nodes"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gradient_accumulation_steps", "gradient_accumulation"), ("d_batch_size", "batch"), ("model_bn_span", "batch"),
        ("lars_opt_base_learning_rate", "learning_rate"), ("lars_opt_learning_rate_warmup_epochs", "schedule"),
        ("opt_learning_rate_decay_boundary_epochs", "schedule"), ("opt_learning_rate_training_steps", "schedule"),
        ("sgd_opt_learning_rate_decay_poly_power", "schedule"), ("lars_opt_weight_decay", "hyperparameter"),
        ("opt_lamb_beta_1", "hyperparameter"), ("opt_name", "optimiser"), ("max_sequence_length", "hyperparameter"),
    ],
)  # fmt: skip
def test_kinds_of_hyperparameters(name: str, kind: str) -> None:
    assert kind_of_hyperparameter(name) == kind


# --- records and descriptions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("host/hostname", "node2", ("note", "host_name", "hostname")),
        ("environment/SLURM_JOB_ID", "78", None),
        ("host/memory_mib", 1001, None),
        ("code/commit", "fedcba9876543210", ("warning", "commit", "commit")),
        ("code/dirty", True, ("warning", "commit", "commit")),
        ("packages/torch", "2.15.0", ("warning", "software", "torch")),
        ("host/kernel", "Linux 7", ("warning", "software", "kernel")),
        ("host/processor", "other", ("warning", "host", "processor")),
        ("system/accelerator", "GPU8", ("warning", "accelerator", "accelerator")),
        ("system/image", "ngc:24", ("warning", "container", "image")),
        ("environment/OMP_NUM_THREADS", "4", ("warning", "environment", "OMP_NUM_THREADS")),
        ("spec/options/precision", "bfloat16", ("warning", "precision", "precision")),
        ("spec/options/compile", True, ("warning", "execution_option", "compile")),
        ("spec/model/width", 1, ("warning", "model", "model.width")),
    ],
)
def test_differences_between_run_records(path: str, value: Any, expected: tuple[str, str, str] | None) -> None:
    points = [
        CurvePoint(nodes=nodes, records=[record]) for nodes, record in ((1, RECORD), (2, changed(RECORD, path, value)))
    ]
    assert found(*points) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("system_name", "2xbox", None), ("number_of_nodes", "2", None), ("submitter", "else", None),
        ("accelerator_memory_capacity", "40 GB", "accelerator"), ("framework", "JAX", "framework"),
        ("operating_system", "other", "software"), ("host_networking", "IB", "network"), ("host_memory_capacity", "1TB", "host"),
    ],
)  # fmt: skip
def test_differences_between_descriptions(key: str, value: str, expected: str | None) -> None:
    values = {"system_name": "box", "number_of_nodes": "1", "accelerator_memory_capacity": "80 GB", "framework": "PyTorch", "operating_system": "Linux", "host_networking": "Ethernet", "host_memory_capacity": "512GB"}  # fmt: skip
    points = [CurvePoint(nodes=1, description=from_values(values)), CurvePoint(nodes=2, description=from_values({**values, key: value}))]  # fmt: skip
    assert [item["check"] for item in verdict(*points)["findings"]] == ([expected] if expected else [])


def captured(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": {"captured": [{"hostname": f"n{number}", **node} for number, node in enumerate(nodes)]}}


GPU = {
    "accelerators": {"driver": "535", "devices": [{"name": "A100", "memory_mib": 81920, "vbios": "92.1"}]},
    "kernel": "Linux 5",
}
NEWER = {**GPU, "accelerators": {**GPU["accelerators"], "driver": "550"}}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([GPU], [GPU, GPU], []),
        ([GPU], [NEWER, NEWER], [("warning", "software", "accelerator_driver", {"1": ["535"], "2": ["550"]})]),
        ([GPU], [GPU, NEWER], [("warning", "software", "accelerator_driver", {"1": ["535"], "2": ["535", "550"]})]),
        ([GPU], [GPU, {**GPU, "kernel": "Linux 6"}], [("warning", "software", "kernel", {"1": ["Linux 5"], "2": ["Linux 5", "Linux 6"]})]),
        ([{"kernel": "5", "storage": {"file_system": "nfs4"}}], [{"kernel": "5"}, {"kernel": "5", "storage": {"file_system": "nfs4"}}],
         [("warning", "storage", "file_system", {"1": ["nfs4"], "2": ["not stated", "nfs4"]})]),
        ([{"accelerators": {"devices": [{"vbios": "92.1"}]}}], [{"accelerators": {"devices": [{"vbios": "92.2"}]}}], [("note", "firmware", "vbios", {"1": ["92.1"], "2": ["92.2"]})]),
        ([{"software": {"environment": {"CUDA_VISIBLE_DEVICES": "0"}}}], [{"software": {"environment": {"CUDA_VISIBLE_DEVICES": "1"}}}], []),
        ([{"software": {"environment": {"NCCL_ALGO": "Ring"}}}], [{"software": {"environment": {"NCCL_ALGO": "Tree"}}}], [("warning", "environment", "NCCL_ALGO", {"1": ["Ring"], "2": ["Tree"]})]),
        ([], [GPU], []),
    ],
)  # fmt: skip
def test_differences_between_captured_nodes(first: list[Any], second: list[Any], expected: list[Any]) -> None:
    answer = verdict(CurvePoint(nodes=1, records=[captured(*first)]), CurvePoint(nodes=2, records=[captured(*second)]))
    found = [(item["severity"], item["check"], item["setting"], item["values"]) for item in answer["findings"]]
    assert [item for item in found if item[2] != "accelerators_of_node"] == expected


def test_a_point_without_logs_is_not_told_to_differ() -> None:
    assert found(point(1), CurvePoint(nodes=2)) == []


# --- the alarm --------------------------------------------------------------------------------------------------------------


def test_case_c11_an_alarm_names_the_settings_that_differ() -> None:
    answer = verdict(point(1, batch=2048, gradient_accumulation_steps=8), point(2, batch=2048, scaling=SUPER))
    alarm = answer["alarm"]
    assert not answer["alike"]
    assert alarm["points"][0]["settings"] == ["gradient_accumulation_steps"]
    assert alarm["message"] == (
        "efficiency 151.9 % (95 % 146.2 to 157.0) at 2 nodes against 1 node; "
        "settings that differ: gradient_accumulation_steps 8 → 1"
    )


def test_an_alarm_without_a_difference_says_so() -> None:
    alarm = verdict(point(1), point(2, scaling=SUPER))["alarm"]
    assert alarm["message"].endswith("; no stated setting differs")


def test_an_alarm_names_notes_where_there_is_nothing_else() -> None:
    alarm = verdict(point(1), point(2, batch=128, scaling=SUPER))["alarm"]
    assert alarm["message"].endswith("; settings that differ: global_batch_size 64 → 128")


@pytest.mark.parametrize("scaling", [{}, LINEAR, {**SUPER, "efficiency_low": 0.99}, {**SUPER, "efficiency_low": float("nan")}])  # fmt: skip
def test_no_alarm_within_the_interval(scaling: dict[str, Any]) -> None:
    answer = verdict(point(1, gradient_accumulation_steps=8), point(2, scaling=scaling))
    assert answer["alarm"] is None
    assert answer["findings"][0]["severity"] == "warning"


def test_form_of_the_verdict() -> None:
    answer = verdict(point(2, scaling=SUPER), point(1, precision="bf16"))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert list(answer) == ["schema_version", "system", "workload", "nodes", "alike", "findings", "alarm"]
    assert (answer["system"], answer["workload"], answer["nodes"]) == ("box", "resnet", [1, 2])
    assert list(answer["findings"][0]) == ["check", "severity", "line", "message", "setting", "values"]


def published(shared_data: Path, system: str, benchmark: str, scaling: dict[str, Any]) -> CurvePoint:
    folder = shared_data / "training_results_v1.1" / "Dell"
    nodes = int(system.split("x")[0]) if system[0].isdigit() else 1
    return CurvePoint(
        nodes=nodes,
        summaries=[summarize(log) for log in sorted((folder / "results" / system / benchmark).glob("result_*.txt"))],
        description=read_description(folder / "systems" / f"{system}.json"),
        scaling=scaling if nodes > 1 else {},
    )


def test_case_c11_in_the_published_logs(shared_data: Path) -> None:
    points = [published(shared_data, f"{count}XE8545x4A100-SXM-80GB", "rnnt", SUPER) for count in ("", "2x")]
    answer = verdict(*points)
    logged = [item for item in answer["findings"] if item["check"] not in ("host", "software")]
    assert [(item["setting"], item["values"]) for item in logged] == [("gradient_accumulation_steps", {"1": ["8"], "2": ["1"]})]  # fmt: skip
    assert "settings that differ: gradient_accumulation_steps 8 → 1, " in answer["alarm"]["message"]


def test_the_published_resnet_curve(shared_data: Path) -> None:
    points = [published(shared_data, f"{count}R750xax4A100-PCIE-80GB", "resnet", LINEAR) for count in ("", "2x", "4x", "8x")]  # fmt: skip
    answer = verdict(*points)
    assert answer["alarm"] is None
    assert {(item["severity"], item["setting"]) for item in answer["findings"]} >= {
        ("note", "global_batch_size"), ("warning", "accelerator_memory_capacity"), ("warning", "lars_opt_weight_decay"),
        ("warning", "lars_opt_base_learning_rate"), ("note", "lars_opt_learning_rate_warmup_epochs"),
    }  # fmt: skip


# --- files of a study -------------------------------------------------------------------------------------------------------


def written_curve(folder: Path) -> dict[str, Any]:
    files: dict[str, Any] = {"compliance": [], "records": []}
    for nodes, batch in ((1, 64), (2, 128)):
        for run in (0, 1):
            for kind, content in (
                ("compliance", {"summary": point(nodes, batch=batch).summaries[0].to_dict()}),
                ("run", changed(RECORD, "host/hostname", f"node{nodes}") | {"description": {"framework": f"F{nodes}"}}),
            ):
                path = folder / "box" / "resnet" / f"n{nodes}" / f"{kind}_{run}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(content))
                files["compliance" if kind == "compliance" else "records"].append(str(path))
    rows = [
        {"study": "s", "system": system, "workload": "resnet", "nodes": nodes, "reference_nodes": 1, "global_batch_size": 64 * nodes,
         "finding": "", "verdict": "valid", "efficiency": 1.0 + nodes, "efficiency_low": nodes - 0.5, "efficiency_high": 2.0 + nodes}
        for system in ("box", "other") for nodes in (1, 2)
    ]  # fmt: skip
    tables.write_table(tables.table(rows, kind="scaling"), folder / "scaling.csv")
    return files | {"scaling": str(folder / "scaling.csv")}


def test_curves_are_read_from_the_files_of_a_study(tmp_path: Path) -> None:
    points = read_curve(**written_curve(tmp_path), system="box", workload="resnet")
    assert [(p.nodes, len(p.summaries), len(p.records), p.scaling["efficiency"]) for p in points] == [(1, 2, 2, 2.0), (2, 2, 2, 3.0)]  # fmt: skip
    assert [p.description.framework for p in points if p.description] == ["F1", "F2"]


def test_the_adapter_writes_the_verdict(tmp_path: Path) -> None:
    files = written_curve(tmp_path)
    snakemake = SimpleNamespace(
        input=SimpleNamespace(**files),
        output=SimpleNamespace(verdict=str(tmp_path / "likeness.json")),
        wildcards=SimpleNamespace(system="box", workload="resnet"),
    )
    exec(compile((SCRIPTS / "check_likeness.py").read_text(), "check_likeness.py", "exec"), {"snakemake": snakemake})
    answer = json.loads((tmp_path / "likeness.json").read_text())
    assert [(item["check"], item["severity"]) for item in answer["findings"]] == [("framework", "warning"), ("batch", "note"), ("host_name", "note")]  # fmt: skip
    assert answer["alarm"]["points"][0]["nodes"] == 2
