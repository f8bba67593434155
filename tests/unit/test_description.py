"""MLPerf system descriptions made from captured nodes, and what these contradict."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import node_samples as samples
import pytest
from mlscaling.described import Described, described_system
from mlscaling.inventory import accelerators, processors, slurm_job
from mlscaling.inventory.commands import Answer
from mlscaling.mlperf import official
from mlscaling.mlperf.description import KEYS, describe
from mlscaling.mlperf.description_checks import check_nodes
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import from_values
from mlscaling.study import expected_log, load_study, run_spec
from published_tree import DESCRIPTION

ROOT = Path(__file__).resolve().parents[2]
PORT = {"rate": "200 Gb/sec (4X HDR)", "state": "ACTIVE", "link_layer": "InfiniBand"}
NODE: dict[str, Any] = {
    "hostname": "n1", "kernel": "Linux 5.4.0-88-generic", "operating_system": "Ubuntu 20.04.3 LTS",
    "processor": processors.parse_lscpu(samples.LSCPU_EPYC), "memory_mib": 515_582,
    "accelerators": {
        "vendor": "NVIDIA", "driver": "535.104.05", "cuda": "12.2",
        "devices": accelerators.parse_nvidia_smi(samples.QUERY_GPU)[1] * 2,
        "links": accelerators.parse_topology(samples.TOPOLOGY_2021),
    },
    "network": {
        "interfaces": [{"name": "ib0", "driver": "mlx5_core", "state": "down"}, {"name": "e1", "driver": "igb", "speed_mbit_per_s": 1000, "state": "up"}],
        "infiniband": [{"name": "mlx5_0", "type": "MT4123", "firmware": "20", "ports": [PORT]}] * 2,
    },
    "storage": {"file_system": "lustre", "medium": "network", "capacity_gib": 2048.0},
    "software": {
        "packages": {"python": "3.11.7", "torch": "2.3.0", "numpy": "2.0"}, "environment": {},
        "libraries": {"nccl": "2.19.3", "cuda": "12.3", "mpi": "Open MPI 4.1.4", "ofed": "5.8"},
    },
}  # fmt: skip
BOX = Described(
    system="box", nodes=2, accelerators_per_node=4, accelerator="NVIDIA A100-PCIE-40GB (250W)", division="closed",
    device="cuda", said={"submitter": "somebody", "status": "available", "cooling": "air", "accelerator_memory_configuration": "HBM2"},
)  # fmt: skip


def record(*nodes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    shared = {
        "slurm": {"version": "23.02.7", "switches": slurm_job.parse_topology(samples.SHOW_TOPOLOGY)},
        "container": {"runtime": "none"},
    }
    return {"nodes": {"captured": list(nodes), **shared, **changes}}


def node(hostname: str = "n1", **changes: Any) -> dict[str, Any]:
    """A node with changes below it: `accelerators__driver="550"`."""
    changed = {**copy.deepcopy(NODE), "hostname": hostname}
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = changed
        for name in parents:
            place = place[name]
        place[last] = value
    return changed


RECORDS = [record(node("n1"), node("n2"))] * 3


def test_the_whole_description() -> None:
    assert describe(BOX, RECORDS) == {
        "submitter": "somebody", "division": "closed", "status": "available", "system_name": "box", "number_of_nodes": "2",
        "host_processors_per_node": "2", "host_processor_model_name": "AMD EPYC 7543 32-Core Processor",
        "host_processor_core_count": "32", "host_processor_vcpu_count": "64", "host_processor_frequency": "3737 MHz (maximum)",
        "host_processor_caches": "L1d 2 MiB (64 instances), L1i 2 MiB (64 instances), L2 32 MiB (64 instances), L3 512 MiB (16 instances)",
        "host_processor_interconnect": "N/A", "host_memory_capacity": "503.5 GiB", "host_storage_type": "lustre (network)",
        "host_storage_capacity": "2048 GiB, where the data are",
        "host_networking": "2x MT4123 InfiniBand 200 Gb/sec (4X HDR), 1x igb Ethernet 1 Gb/s",
        "host_networking_topology": "Slurm's switches, 2 levels: leaf1, leaf2 below spine1", "host_memory_configuration": "N/A",
        "accelerators_per_node": "4", "accelerator_model_name": "NVIDIA A100-PCIE-40GB",
        "accelerator_host_interconnect": "PCIe 4.0 x16", "accelerator_frequency": "1410 MHz", "accelerator_on-chip_memories": "N/A",
        "accelerator_memory_configuration": "HBM2", "accelerator_memory_capacity": "40.0 GiB",
        "accelerator_interconnect": "12 NVLinks between two", "accelerator_interconnect_topology": "4 × SYS, 2 × NV12",
        "cooling": "air", "hw_notes": "N/A", "framework": "PyTorch 2.3.0",
        "other_software_stack": {
            "python_version": "3.11.7", "torch_version": "2.3.0", "numpy_version": "2.0", "cuda_version": "12.3", "nccl_version": "2.19.3",
            "mpi_version": "Open MPI 4.1.4", "mofed_version": "5.8", "cuda_driver_version": "535.104.05", "slurm_version": "23.02.7"},
        "operating_system": "Ubuntu 20.04.3 LTS Linux 5.4.0-88-generic", "sw_notes": "N/A",
    }  # fmt: skip


def test_the_official_checker_accepts_it_and_names_what_a_later_round_wants(tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text(json.dumps(describe(BOX, RECORDS)))
    assert official.system_description(tmp_path / "box.json", ruleset="1.1.0").passed is True
    later = official.system_description(tmp_path / "box.json", ruleset="5.1.0")
    assert later.passed is False
    assert "Available on-premise" in " ".join(later.messages)


def test_keys_are_those_of_the_official_checker() -> None:
    from importlib.util import find_spec

    origin = find_spec("mlperf_logging.system_desc_checker.system_desc_checker").origin  # type: ignore[union-attr]
    source = Path(str(origin)).read_text()
    block = source[source.index("required_fields = [") : source.index("# Check if all required")]
    assert tuple(line.strip().strip('",') for line in block.splitlines() if line.strip().startswith('"')) == KEYS


def test_emulated_nodes_on_the_cpu_say_so_and_nothing_of_idle_gpus() -> None:
    emulated = Described(
        system="box", nodes=2, accelerators_per_node=1, accelerator="CPU core", division="open", emulated=True
    )
    values = describe(emulated, [record(NODE, container={"runtime": "apptainer", "digest": "sha256:1"})])
    assert values["hw_notes"] == "emulated nodes on one host"
    assert (values["accelerator_model_name"], values["accelerator_memory_capacity"]) == ("CPU core", "N/A")
    assert not {"cuda_version", "nccl_version", "cuda_driver_version"} & values["other_software_stack"].keys()
    assert values["sw_notes"] == "container by apptainer, sha256:1"
    assert [found.check for found in check_nodes(emulated, [record(NODE)], values)] == ["not_said"]


def test_nothing_known_is_nothing_said() -> None:
    values = describe(dataclasses.replace(BOX, said={}), [{}])
    assert set(values) == set(KEYS)
    assert values["accelerator_model_name"] == BOX.accelerator
    assert values["other_software_stack"] == {}
    assert {values[key] for key in ("status", "framework", "host_memory_capacity", "cooling", "host_networking")} == {
        "N/A"
    }


# --- contradictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "records", "expected"),
    [
        ({}, RECORDS, []),
        ({"accelerator": "NVIDIA A100-PCIE-80GB (300W)"}, RECORDS, [("warning", "accelerator_memory")]),
        ({"said": {"accelerator_memory_capacity": "80 GB"}}, RECORDS, [("warning", "accelerator_memory")]),
        ({"said": {"accelerator_memory_capacity": "40 GB"}}, RECORDS, []),
        ({"accelerator": "NVIDIA H100-PCIE-40GB"}, RECORDS, [("warning", "accelerator_differs")]),
        ({"accelerator": "A100"}, RECORDS, []),
        ({"accelerators_per_node": 8}, RECORDS, [("error", "accelerators_differ")]),
        ({"accelerators_per_node": 2}, RECORDS, [("note", "accelerators_idle")]),
        ({}, [record(node("n1"), node("n2", accelerators={}))], [("warning", "nodes_unlike"), ("error", "accelerators_differ")]),
        ({}, [record(node("n1", accelerators={}), node("n2", accelerators={}))], [("warning", "accelerators_unknown")]),
        ({}, [record(node("n1"), node("n2", accelerators__driver="550"))], [("warning", "nodes_unlike")]),
        ({}, [RECORDS[0], record(node("n1", kernel="Linux 6"), node("n2", kernel="Linux 6"))], [("warning", "nodes_unlike")]),
        ({}, [record(node("n1"), node("n2", memory_mib=515_600))], []),
        ({}, [record(node("n1"), node("n2", memory_mib=257_000))], [("warning", "nodes_unlike")]),
        ({}, [record(node("n1"))], [("warning", "nodes_silent")]),
        ({"emulated": True}, [record(node("n1"))], []),
        ({}, [RECORDS[0], {}], [("warning", "nodes_unknown")]),
        ({}, [{}], [("warning", "nodes_unknown")]),
        ({}, [], [("warning", "nodes_unknown")]),
    ],
)  # fmt: skip
def test_what_the_nodes_contradict(
    described: dict[str, Any], records: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    box = dataclasses.replace(BOX, **described)
    found = check_nodes(box, records, describe(box, records))
    assert [(item.severity, item.check) for item in found if item.check != "not_said"] == expected


def test_messages_name_both_sides() -> None:
    box = dataclasses.replace(BOX, accelerator="NVIDIA A100-PCIE-80GB (300W)")
    messages = [item.message for item in check_nodes(box, RECORDS, describe(box, RECORDS))]
    assert messages[0] == "accelerator is 'NVIDIA A100-PCIE-80GB (300W)' in the system file, the nodes say 40.0 GiB"
    assert messages[1].startswith("not known: host_processor_interconnect, host_memory_configuration, ")
    assert messages[1].endswith("goes under `description` in config/systems/box.yaml")


# --- files of a study ---------------------------------------------------------------------------------------------------


def written(folder: Path, *records: dict[str, Any], **logged: Any) -> SimpleNamespace:
    inputs = SimpleNamespace(records=[], compliance=[])
    for run, content in enumerate(records):
        summary = RunSummary(platform="box", organization="somebody", division="closed", hyperparameters={"number_of_nodes": 2, "accelerators_per_node": 4}, **logged)  # fmt: skip
        for kind, part in (("run", content), ("compliance", {"summary": summary.to_dict()})):
            path = folder / kind / "box" / "resnet" / "n2" / f"{kind}_{run}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(part))
            getattr(inputs, "records" if kind == "run" else "compliance").append(str(path))
    return inputs


def run_adapter(
    folder: Path, inputs: SimpleNamespace, *, described: Described = BOX, root: str = ""
) -> tuple[Any, Any]:
    output = SimpleNamespace(description=str(folder / "box_n2.json"), verdict=str(folder / "verdict.json"))
    params = SimpleNamespace(described=dataclasses.asdict(described), ruleset="1.1.0", published_root=root)
    source = (ROOT / "workflow" / "scripts" / "describe_system.py").read_text()
    exec(
        compile(source, "describe_system", "exec"),
        {"snakemake": SimpleNamespace(input=inputs, output=output, params=params)},
    )
    return json.loads(Path(output.description).read_text()), json.loads(Path(output.verdict).read_text())


def test_a_trained_system_is_described_checked_and_compared_with_its_logs(tmp_path: Path) -> None:
    values, verdict = run_adapter(tmp_path, written(tmp_path, *RECORDS))
    assert values == describe(BOX, RECORDS)
    assert list(verdict) == [
        "schema_version",
        "system",
        "nodes",
        "description",
        "ruleset",
        "passed",
        "findings",
        "official",
    ]
    assert (verdict["system"], verdict["nodes"], verdict["description"], verdict["passed"]) == (
        "box",
        2,
        "box_n2.json",
        True,
    )
    assert verdict["official"]["passed"] is True
    assert [found["check"] for found in verdict["findings"]] == ["not_said"]
    four = dataclasses.replace(BOX, nodes=4, said={**BOX.said, "submitter": "another"}, division="open")
    found = run_adapter(tmp_path, written(tmp_path, *RECORDS), described=four)[1]
    assert not found["passed"]
    assert [item["check"] for item in found["findings"]] == ["nodes_silent", "not_said", "submitter_differs", "division_differs", "nodes_differ"]  # fmt: skip


def test_a_published_system_keeps_the_description_of_its_tree(tmp_path: Path) -> None:
    text = json.dumps(
        {
            **DESCRIPTION,
            "system_name": "box",
            "accelerator_model_name": "X 80GB",
            "accelerator_memory_capacity": "40 GB",
        }
    )
    (tmp_path / "tree" / "someone" / "systems").mkdir(parents=True)
    (tmp_path / "tree" / "someone" / "systems" / "box.json").write_text(text + "\n\n")
    source = {"log": "someone/results/box/resnet/result_0.txt", "description": "box.json"}
    published = {"source": source, "description": dict(from_values(json.loads(text)).values)}
    values, verdict = run_adapter(tmp_path, written(tmp_path, published), root=str(tmp_path / "tree"))
    assert values == json.loads(text)
    assert (tmp_path / "box_n2.json").read_text() == text + "\n\n"
    assert {"accelerator_memory", "submitter_differs"} <= {found["check"] for found in verdict["findings"]}
    without = {"source": {**source, "description": None}}
    values, verdict = run_adapter(tmp_path, written(tmp_path, without), root=str(tmp_path / "tree"))
    assert values == {}
    assert verdict["findings"][0]["check"] == "description_missing"
    assert verdict["official"]["passed"] is False


def test_who_submits_stands_in_the_logs_only_where_a_person_said_so() -> None:
    curve = {"workload": "resnet", "system": "emulated_cpu", "nodes": [1], "weak": {"local_batch_size": 64}, "runs": 1}
    study = load_study({"study": "s", "round": "1.1.0", "scale": "tiny", "curves": [curve]}, config_dir=ROOT / "config")
    (point,) = study.points
    assert Described(**described_system(point, division="open")).said["status"] == "research"
    assert run_spec(study, point, run=0).options == study.options
    assert "organization" not in expected_log(study, point, run=0)
    said = dataclasses.replace(point, system=dataclasses.replace(point.system, description={"submitter": "somebody"}))
    assert run_spec(study, said, run=0).options == {**study.options, "submitter": "somebody"}
    assert expected_log(study, said, run=0)["organization"] == "somebody"


def test_answers_of_tools_make_the_node_of_these_tests() -> None:
    given = {name: Answer() for name in accelerators.COMMANDS} | {"nvidia-smi": Answer(text=samples.QUERY_GPU)}
    assert accelerators.accelerators(given)["devices"] * 2 == NODE["accelerators"]["devices"]
