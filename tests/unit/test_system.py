"""System descriptions: read whatever is there, and name what they contradict (C13)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import check_description, description_verdict, from_values, memory_gb, read_description
from published_tree import DESCRIPTION

DELL = {
    "submitter": "Dell",
    "division": "closed",
    "system_name": "8xR750xax4A100-PCIE-80GB",
    "number_of_nodes": "8",
    "accelerators_per_node": "4",
    "accelerator_model_name": "NVIDIA A100-PCIE-80GB (300W)",
    "accelerator_memory_capacity": "80 GB",
}


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "box.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def checks(values: dict[str, Any], *logs: dict[str, Any], folder: str = "") -> list[tuple[str, str]]:
    summaries = [RunSummary(**log) for log in logs]
    return [(found.severity, found.check) for found in check_description(from_values(values), summaries, folder=folder)]


# --- reading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "per_node", "expected"),
    [
        ("8", "4", (8, 4, 32)),
        (8, 4, (8, 4, 32)),
        ("8.0", 4.0, (8, 4, 32)),
        (" 2 ", "4 (2 per socket)", (2, 4, 8)),
        ("N/A", "4", (None, 4, None)),
        ("", None, (None, None, None)),
        ("two", "0", (None, None, None)),
        ("-1", True, (None, None, None)),
        ([1, 2], "4x", (None, None, None)),
    ],
)
def test_counts_as_submitters_write_them(nodes: Any, per_node: Any, expected: tuple[int | None, ...]) -> None:
    read = from_values({"number_of_nodes": nodes, "accelerators_per_node": per_node})
    assert (read.num_nodes, read.accelerators_per_node, read.num_accelerators) == expected
    missing = sum(count is None for count in expected[:2])
    assert [found.check for found in read.problems] == ["description_incomplete"] * missing


def test_missing_keys_are_named() -> None:
    messages = [found.message for found in from_values({}).problems]
    assert [message.split(";")[0] for message in messages] == ["number_of_nodes is missing", "accelerators_per_node is missing"]  # fmt: skip


def test_values_that_say_nothing_are_left_out_and_nested_ones_are_joined() -> None:
    read = from_values({**DESCRIPTION, "cooling": "N/A", "hw_notes": "", "sw_notes": None, "list": ["a", "b"]})
    assert {"cooling", "hw_notes", "sw_notes"}.isdisjoint(read.values)
    assert (read.values["other_software_stack.nccl"], read.values["list"]) == ("2.1", "a, b")
    assert (read.submitter, read.framework, read.operating_system) == ("someone", "PyTorch", "")


@pytest.mark.parametrize(
    ("text", "nodes", "problem"),
    [
        (json.dumps(DESCRIPTION), 1, ""),
        ("\ufeff" + json.dumps(DESCRIPTION), 1, ""),
        (json.dumps(DESCRIPTION)[:-1] + ",}", 1, "read without trailing commas"),
        (json.dumps(DESCRIPTION).replace("PyTorch", "Py\tTorch").replace("\\t", "\t"), 1, ""),
        (json.dumps(DESCRIPTION).encode().replace(b"PyTorch", b"Py\xb5"), 1, ""),
        (json.dumps([DESCRIPTION]), None, "a description is a JSON object, not a list"),
        ("{", None, "not JSON"),
        ("", None, "not JSON"),
        ("[" * 100_000, None, "not JSON"),
        (bytes(range(256)), None, "not JSON"),
    ],
)
def test_files_are_read_as_far_as_they_can_be(text: Any, nodes: int | None, problem: str, tmp_path: Path) -> None:
    read = read_description(written(tmp_path, text))
    assert read.num_nodes == nodes
    found = [finding.message for finding in read.problems if finding.check == "description_not_json"]
    assert [problem in message for message in found] == ([True] if problem else [])


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_description(tmp_path / "box.json")


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [("80 GB", 80), ("80GB HBM2e", 80), ("NVIDIA A100-SXM4-40GB (400W)", 40), ("81920 MiB", 80), ("1.5 TB", 1536), ("A100", math.nan), ("400W", math.nan)],
)  # fmt: skip
def test_memory_in_texts(text: str, gigabytes: float) -> None:
    assert memory_gb(text) == pytest.approx(gigabytes, nan_ok=True)


# --- contradictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "logs", "expected"),
    [
        ({}, [], []),
        ({}, [{"organization": "Dell", "division": "closed", "platform": "8xR750xax4A100-PCIE-80GB"}], []),
        ({}, [{"organization": "DELL ", "platform": "8xr750xax4a100_pcie_80gb"}], []),
        ({"accelerator_memory_capacity": "40 GB"}, [], [("warning", "accelerator_memory")]),
        ({"accelerator_memory_capacity": "320 GB"}, [], []),  # of the four of a node
        ({"accelerator_memory_capacity": "81920 MB"}, [], []),
        ({"accelerator_memory_capacity": "40 GB", "accelerator_model_name": "NVIDIA A100"}, [], [("warning", "accelerator_memory")]),
        ({"accelerator_memory_capacity": "N/A"}, [], []),
        ({}, [{"organization": "NVIDIA"}], [("warning", "submitter_differs")]),
        ({}, [{"division": "open"}], [("error", "division_differs")]),
        ({}, [{"platform": "PLACEHOLDER"}] * 5, [("warning", "platform_differs")]),
        ({}, [{"platform": "4xR750xax4A100-PCIE-80GB"}], [("warning", "platform_differs"), ("warning", "nodes_differ")]),
        ({}, [{"platform": "8xR750xax8A100-PCIE-80GB"}], [("warning", "platform_differs"), ("warning", "accelerators_differ")]),
        ({"number_of_nodes": "4"}, [], [("warning", "nodes_differ")]),
        ({"accelerators_per_node": "10"}, [], [("warning", "accelerators_differ")]),
        ({"system_name": "R750xa_32xA100"}, [], []),  # the accelerators of all nodes
        ({"number_of_nodes": "N/A"}, [], [("warning", "description_incomplete")]),
        ({}, [{"hyperparameters": {"number_of_nodes": 8, "accelerators_per_node": 4}}], []),
        ({}, [{"hyperparameters": {"number_of_nodes": 2}}], [("error", "nodes_differ")]),
        ({}, [{"hyperparameters": {"accelerators_per_node": 8}}], [("error", "accelerators_differ")]),
    ],
)  # fmt: skip
def test_contradictions(changes: dict[str, Any], logs: list[dict[str, Any]], expected: list[tuple[str, str]]) -> None:
    assert checks({**DELL, **changes}, *logs) == expected


def test_the_results_folder_is_compared_too() -> None:
    assert checks(DELL, folder="8xR750xax4A100-PCIE-80GB") == []
    assert checks({**DELL, "system_name": "R750xa"}, folder="4xR750xax4A100") == [("note", "folder_differs"), ("warning", "nodes_differ")]  # fmt: skip


def test_one_node_may_be_called_1x() -> None:
    one = {**DELL, "system_name": "XE8545x4A100-SXM-80GB", "number_of_nodes": "1"}
    assert checks(one, {"platform": "1xXE8545x4A100-SXM-80GB"}) == []


def test_verdict_with_the_official_one_beside_it(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({**DESCRIPTION, "accelerator_memory_capacity": "40 GB"}))
    verdict = description_verdict(path, [RunSummary(division="closed")], ruleset="1.1.0")
    assert json.loads(json.dumps(verdict)) == verdict
    assert not verdict["passed"]
    assert [found["check"] for found in verdict["findings"]] == ["accelerator_memory", "division_differs"]
    assert verdict["official"]["tool"] == "mlperf_logging system_desc_checker"
    assert verdict["official"]["passed"] is not None


def test_published_descriptions(shared_data: Path) -> None:
    folder = shared_data / "training_results_v1.1" / "Dell" / "systems"
    read = {path.stem: read_description(path) for path in folder.glob("*.json")}
    assert len(read) == 12
    assert all(description.problems == () for description in read.values())
    assert {name: description.num_accelerators for name, description in read.items() if name.startswith(("2x", "4x", "8x"))} == {
        "2xR750xax4A100-PCIE-80GB": 8, "2xXE8545x4A100-SXM-80GB": 8, "4xR750xax4A100-PCIE-80GB": 16, "8xR750xax4A100-PCIE-80GB": 32,
    }  # fmt: skip
    wrong = {name for name, description in read.items() if check_description(description, folder=name)}
    assert wrong == {"4xR750xax4A100-PCIE-80GB", "8xR750xax4A100-PCIE-80GB", "DSS8440x10A100-PCIE-80GB", "DSS8440x8A100-PCIE-80GB"}  # fmt: skip
    official = description_verdict(folder / "8xR750xax4A100-PCIE-80GB.json", ruleset="1.1.0")["official"]
    assert official["passed"] is True
