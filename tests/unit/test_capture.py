"""Capture of nodes as a step of an attempt: the real command on this host, with stand-ins for GPUs and containers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import node_samples as samples
import pytest
from mlscaling import capture, containers
from mlscaling.attempts import run_training
from mlscaling.capture import capture_nodes, notes_of, where_it_ran
from mlscaling.jobs import Job
from mlscaling.settings_of_nodes import differing, memory_class, sentence, settings_of_captured, settings_of_node
from mlscaling.slurm import Node
from test_attempts import SYSTEM, Paths, make_spec, paths  # noqa: F401  (a fixture)

TRAIN = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "train.py"
SECRETS = {
    "HF_TOKEN": "planted-1",
    "AWS_SECRET_ACCESS_KEY": "planted-2",
    "NCCL_API_KEY": "planted-3",
    "NCCL_IB_HCA_TOKEN": "planted-4",
    "UCX_PASSWORD": "planted-5",
    "OMP_CREDENTIALS": "planted-6",
    "NCCL_IB_HCA": "ghp_plantedplantedplantedplanted7777",
    "UCX_NET_DEVICES": "https://me:planted-8@registry.example",
}


def job(folder: Path, **changes: Any) -> Job:
    folder.mkdir(exist_ok=True)
    system = dataclasses.replace(SYSTEM, **changes.pop("system", {}))
    spec = make_spec(data_dir=str(folder), emulated=system.emulated)
    values = {"folder": folder, "spec": spec, "system": system, "train_script": TRAIN, "job_id": "", "nodes": []}
    values["data_dir"] = folder
    return Job(**{**values, **changes})


def nodes_json(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "nodes.json").read_text())


def test_emulated_nodes_are_the_one_host_that_they_are(tmp_path: Path) -> None:
    assert capture_nodes(job(tmp_path, system={"environment": {"NCCL_DEBUG": "INFO"}})) == ""
    found = nodes_json(tmp_path)
    (host,) = found["captured"]
    assert (found["emulated"], found["silent"], found["problem"], found["slurm"]) == (True, [], "", {})
    assert host["hostname"] == os.uname().nodename
    assert host["kernel"] == f"Linux {os.uname().release}"
    assert host["processor"]["usable_cores"] == 1, "as its rank is pinned"
    assert host["processor"]["cpus"] == os.cpu_count()
    assert host["memory_mib"] > 100
    assert host["software"]["environment"] == {"NCCL_DEBUG": "INFO"} | {
        name: value for name, value in host["software"]["environment"].items() if name.endswith("NUM_THREADS")
    }
    assert host["software"]["environment"]["OMP_NUM_THREADS"] == "1", "as ranks have it"
    assert "torch" in host["software"]["packages"]
    assert set(host["tools"]) == {"lscpu", "nvidia-smi", "rocm-smi", "mpirun", "ucx_info", "ofed_info", "ldconfig"}
    assert notes_of(tmp_path) == ()
    assert not (tmp_path / "nodes").exists()


def test_gpus_by_a_stand_in_and_tools_that_are_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = samples.stand_in_nvidia_smi(tmp_path / "bin")
    samples.stand_in(tools, "ucx_info", "exit 3")
    for name in ("env", "cat"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    capture_nodes(job(tmp_path / "attempt"))
    (host,) = nodes_json(tmp_path / "attempt")["captured"]
    assert host["accelerators"]["vendor"] == "NVIDIA"
    assert (host["accelerators"]["driver"], host["accelerators"]["cuda"]) == ("535.104.05", "12.2")
    assert [device["name"] for device in host["accelerators"]["devices"]] == ["NVIDIA A100-PCIE-40GB"] * 2
    assert "somebody" not in json.dumps(host), "of other processes on the GPUs nothing is taken"
    statuses = {name: status for name, status in host["tools"].items() if name != "ldconfig"}
    assert statuses == {
        "lscpu": "absent", "nvidia-smi": "ok", "rocm-smi": "absent", "mpirun": "absent",
        "ucx_info": "ended with status 3", "ofed_info": "absent",
    }  # fmt: skip
    assert host["processor"]["model"], "from /proc/cpuinfo"


def test_secrets_are_nowhere_in_what_an_attempt_leaves(
    paths: Paths, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    (paths.train_script.parent / "fate").write_text("")
    configured = {
        "WANDB_API_KEY": "planted-9",
        "NCCL_DEBUG": "WARN",
        "NCCL_IB_TC": "ghp_plantedplantedplantedplanted10",
    }
    assert run_training(make_spec(), dataclasses.replace(SYSTEM, environment=configured), paths) == 0
    left = [path for path in (*paths.attempts_dir.rglob("*"), *paths.log.parent.iterdir()) if path.is_file()]
    assert {path.name for path in left} >= {"nodes.json", "command.json", "attempt.json", "run_3.json"}
    assert [path for path in left if "planted" in path.read_text()] == []
    record = json.loads(paths.record.read_text())
    assert record["environment"].items() >= {("NCCL_DEBUG", "WARN"), ("NCCL_IB_HCA", "(withheld)")}
    assert record["system"]["environment"] == {"WANDB_API_KEY": "(withheld)", "NCCL_DEBUG": "WARN", "NCCL_IB_TC": "(withheld)"}  # fmt: skip


def test_the_record_says_what_the_ranks_found_not_what_the_publisher_has(
    paths: Paths, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    (paths.train_script.parent / "fate").write_text("")
    assert run_training(make_spec(), SYSTEM, paths) == 0
    record = json.loads(paths.record.read_text())
    assert record["nodes"] == nodes_json(paths.attempts_dir / "attempt_0")
    (host,) = record["nodes"]["captured"]
    assert record["host"]["hostname"] == host["hostname"]
    assert record["packages"] == host["software"]["packages"]
    assert record["code"] == record["nodes"]["code"]
    monkeypatch.setattr(capture.provenance, "host", lambda: {"hostname": "publisher"})
    folder = paths.attempts_dir / "attempt_0"
    assert where_it_ran(folder, code_dir=TRAIN.parent)["host"] == record["host"]
    (folder / "nodes.json").unlink()
    assert where_it_ran(folder, code_dir=TRAIN.parent)["host"] == {"hostname": "publisher"}


def test_software_is_asked_inside_the_container_and_hardware_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = samples.stand_in(tmp_path / "bin", "boxed", 'shift; export NCCL_DEBUG=inside; exec "$@"') / "boxed"
    monkeypatch.setitem(containers.EXECUTABLES, "boxed", (str(runtime),))
    monkeypatch.setitem(
        containers.CONTAINERS,
        "boxed",
        lambda request: containers.Wrapped(command=[*request.executable, request.image, *request.command]),
    )
    image = f"registry/x@sha256:{'0' * 64}"
    capture_nodes(
        job(tmp_path / "attempt", system={"container": "boxed", "image": image, "container_python": sys.executable})
    )
    found = nodes_json(tmp_path / "attempt")
    (host,) = found["captured"]
    assert found["container"] == {"runtime": "boxed", "image": image, "digest": f"sha256:{'0' * 64}"}
    assert host["software"]["environment"]["NCCL_DEBUG"] == "inside"
    runtime.write_text("#!/bin/sh\nexit 125\n")
    capture_nodes(
        job(tmp_path / "again", system={"container": "boxed", "image": image, "container_python": sys.executable})
    )
    assert notes_of(tmp_path / "again") == (f"{host['hostname']}: the container gave no facts (status 125)",)
    assert where_it_ran(tmp_path / "again", code_dir=TRAIN.parent)["packages"] == {}


@pytest.mark.parametrize(
    ("image", "digest"),
    [
        (f"nvcr.io/nvidia/pytorch@sha256:{'a1' * 32}", f"sha256:{'a1' * 32}"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", ""), ("/images/pytorch.sif", ""), ("x@sha256:123", ""), ("", ""),
    ],
)  # fmt: skip
def test_digest_of_an_image_that_is_named_by_it(image: str, digest: str) -> None:
    assert containers.image_identity(image) == digest


# --- nodes that differ, are silent, or cannot be asked ------------------------------------------------------------------

ASKED = """
import json, sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
if sys.argv[1] == "emulate":
    import train
    sys.exit(train.main(sys.argv[1:]))
folder = Path(sys.argv[3].removeprefix("--folder="))
for facts in json.loads({facts!r}):
    (folder / (facts["hostname"] + ".json")).write_text(json.dumps(facts))
    print("mlscaling node", facts["hostname"], "is in", facts["hostname"] + ".json", flush=True)
print("mlscaling node liar is in ../../etc/passwd")
sys.exit(3)
"""


def facts(hostname: str, *, driver: str = "535", devices: int = 2, memory_mib: int = 515_582) -> dict[str, Any]:
    device = {"name": "NVIDIA A100-PCIE-40GB", "memory_mib": 40960, "power_limit_w": 250, "vbios": "92"}
    return {
        "hostname": hostname, "address": "10.0.0.1", "kernel": "Linux 5", "operating_system": "Rocky 8", "memory_mib": memory_mib,
        "processor": {"model": "EPYC", "sockets": 2, "settings": {"governor": "performance"}},
        "accelerators": {"vendor": "NVIDIA", "driver": driver, "cuda": "12.2", "devices": [device] * devices, "links": {"GPU0-GPU1": "NV12"}},
        "network": {"interfaces": [], "infiniband": []}, "storage": {"file_system": "lustre", "medium": "network"},
        "software": {"packages": {"torch": "2.3"}, "libraries": {"nccl": "2.19"}, "environment": {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": hostname}},
        "tools": {},
    }  # fmt: skip


def asked(folder: Path, *said: dict[str, Any]) -> Job:
    script = folder / "stand_in.py"
    script.write_text(ASKED.format(scripts=str(TRAIN.parent), facts=json.dumps(said)))
    allocated = [Node(name=name, address=f"10.0.0.{n}", port=6818) for n, name in enumerate(("a2", "a1"), start=1)]
    return job(folder / "attempt", train_script=script, nodes=allocated)


def test_nodes_that_differ_are_a_note_and_keep_the_order_of_the_allocation(tmp_path: Path) -> None:
    step = asked(tmp_path, facts("a1.cluster.example", driver="550"), facts("a2.cluster.example", memory_mib=515_570))
    assert capture_nodes(step) == ""
    found = nodes_json(step.folder)
    assert [host["hostname"] for host in found["captured"]] == ["a2.cluster.example", "a1.cluster.example"]
    assert (found["silent"], found["problem"]) == ([], "")
    assert notes_of(step.folder) == (
        "the nodes differ: accelerator_driver is 535 on a2.cluster.example, 550 on a1.cluster.example",
    )


def test_a_silent_node_is_named(tmp_path: Path) -> None:
    step = asked(tmp_path, facts("a1"))
    assert capture_nodes(step) == ""
    assert notes_of(step.folder) == ("nodes that did not say what they are: a2",)


def test_no_answer_at_all_does_not_end_the_attempt(tmp_path: Path) -> None:
    step = asked(tmp_path)
    assert capture_nodes(step) == ""
    assert notes_of(step.folder) == ("no node said what it is: the command ended with status 3; see capture.log",)


def test_groups_of_nodes_that_differ() -> None:
    nodes = [facts(f"n{number}", driver="550" if number == 3 else "535") for number in range(1, 8)]
    nodes[5] = facts("n6", devices=1)
    del nodes[6]["accelerators"]
    assert [sentence(difference) for difference in differing(nodes)] == [
        "accelerators_of_node is 2 × NVIDIA A100-PCIE-40GB, 40960 MiB on 5 nodes, NVIDIA A100-PCIE-40GB, 40960 MiB on n6, not stated on n7",
        "power_limit_w is 2 × 250 on 5 nodes, 250 on n6, not stated on n7",
        "vbios is 2 × 92 on 5 nodes, 92 on n6, not stated on n7",
        "accelerator_links is NV12 on 6 nodes, not stated on n7",
        "accelerator_driver is 535 on 5 nodes, 550 on n3, not stated on n7",
        "cuda_of_driver is 12.2 on 6 nodes, not stated on n7",
    ]


def test_settings_of_a_node_compare_without_its_place() -> None:
    one, other = settings_of_node(facts("a1")), settings_of_node(facts("a2"))
    assert one == other
    assert one["environment", "NCCL_DEBUG"] == "INFO"
    assert one["storage", "file_system"] == "lustre network"
    shared = settings_of_captured({"nodes": {"captured": [facts("a1")], "container": {"digest": "sha256:1"}}})
    assert shared == [one, {("container", "image_digest"): "sha256:1"}]
    assert settings_of_captured({}) == []


@pytest.mark.parametrize(
    ("mib", "gib"), [(515_582, 504), (515_000, 504), (24_105, 23.75), (527_000, 520), (0, None), (None, None)]
)
def test_memory_that_counts_as_equal(mib: int | None, gib: float | None) -> None:
    assert memory_class(mib) == gib


def test_the_subcommand_prints_one_line_of_software() -> None:
    done = subprocess.run(
        [sys.executable, str(TRAIN), "capture", "--only-software"], capture_output=True, text=True, timeout=60
    )
    (line,) = done.stdout.splitlines()
    assert json.loads(line).keys() == {"operating_system", "packages", "libraries", "environment"}
