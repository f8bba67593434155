"""The preflight: what ranks report and how it is judged; real ranks on emulated nodes, and attempts that it ends."""

from __future__ import annotations

import dataclasses
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
from mlscaling import network, preflight, preflight_ranks, prepared_files
from mlscaling.attempt_folders import read_attempts
from mlscaling.attempts import Paths, run_training
from mlscaling.configuration import check_schema, load_schema
from mlscaling.jobs import Job
from mlscaling.preflight import Request, Settings
from mlscaling.slurm import Node
from mlscaling.systems import System

TRAIN = tiny_runs.SCRIPTS / "train.py"
SYSTEM = System(
    name="unit", title="unit", max_nodes=4, accelerators_per_node=1, cpus_per_accelerator=1, accelerator="CPU core",
    device="cpu", launcher="local", emulated=True, preflight={"when": "always"},
)  # fmt: skip
NODES = ["gpu1", "gpu2"]
REQUEST = Request(nodes=NODES, max_message_bytes=2**22, sweep_limit_s=5, rendezvous_limit_s=9)


def job(folder: Path, *, nodes: int, data_dir: Path, system: System = SYSTEM, job_id: str = "", **changes: Any) -> Job:
    spec = tiny_runs.run_spec("resnet", data_dir=data_dir, nodes=nodes, global_batch_size=64, **changes)
    folder.mkdir(exist_ok=True)
    (folder / "spec.json").write_text(spec.to_json())
    names = [Node(name=f"gpu{number}", address="127.0.0.1", port=1) for number in range(1, nodes + 1)] if job_id else []
    return Job(
        folder=folder, spec=spec, system=system, train_script=TRAIN, job_id=job_id, nodes=names, data_dir=data_dir
    )


def settings(**changes: Any) -> System:
    return dataclasses.replace(SYSTEM, preflight={"when": "always", **changes})


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "launcher", "wanted"),
    [("auto", "local", False), ("auto", "srun", True), ("auto", "mpirun", True), ("always", "local", True), ("never", "srun", False)],
)  # fmt: skip
def test_emulated_nodes_have_none_unless_asked_for(when: str, launcher: str, wanted: bool, tmp_path: Path) -> None:
    system = dataclasses.replace(SYSTEM, launcher=launcher, preflight={"when": when})
    assert preflight.is_wanted(system) == wanted
    if not wanted:
        assert preflight.preflight(job(tmp_path, nodes=2, data_dir=tmp_path, system=system)) == ""
        assert [path.name for path in tmp_path.iterdir()] == ["spec.json"]


def test_the_schemas_defaults_are_those_of_the_code_and_stay_so() -> None:
    minimal = {"title": "t", "accelerator": "a", "device": "cpu", "launcher": "srun", "max_nodes": 1, "accelerators_per_node": 1}  # fmt: skip
    data, problems = check_schema(minimal, schema="system", file="x.yaml")
    assert problems == []
    assert Settings(**data["preflight"]) == Settings()
    assert load_schema("system")["properties"]["preflight"]["default"] == {}
    _, (problem,) = check_schema({**minimal, "preflight": {"min_bus_bandwidth": 1}}, schema="system", file="x.yaml")
    assert "preflight.min_bus_bandwidth = 1: is not a known key; legal keys: max_latency_us," in str(problem)


@pytest.mark.parametrize(("device", "mib", "expected"), [("cpu", 0, 4), ("cuda", 0, 64), ("cuda", 16, 16)])
def test_request_names_slurms_nodes_and_sizes_messages_by_device(
    device: str, mib: int, expected: int, tmp_path: Path
) -> None:
    of_slurm = job(tmp_path, nodes=2, data_dir=tmp_path, job_id="7", device=device)
    request = preflight.request_of(of_slurm, Settings(max_message_mib=mib, sweep_limit_s=3))
    assert request == Request(nodes=NODES, max_message_bytes=expected * 2**20, sweep_limit_s=3, rendezvous_limit_s=120)


# --- what ranks report ------------------------------------------------------------------------------------------------


def report(rank: int, *, host: str = "", accelerator: str = "", data: str = "d", problems: Any = ()) -> dict[str, Any]:
    """Of a rank on one of two nodes with two GPUs each."""
    host, local = host or NODES[rank // 2], rank % 2
    own = {"rank": rank, "local_rank": local, "host": host, "accelerator": accelerator or f"H200 GPU-{local}"}
    return own | {"data": "" if local else data, "problems": list(problems)}


GOOD = [report(rank) for rank in range(4)]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        (GOOD, []),
        ([*GOOD[:3], None], [("node", "gpu2: rank 3 did not answer in rendezvous_limit_s = 9")]),
        ([*GOOD[:2], report(2, data="e"), GOOD[3]], [("data", "gpu2: its prepared data are others than those of gpu1")]),
        ([*GOOD[:3], report(3, accelerator="H200 GPU-0")], [("node", "gpu2: ranks 2, 3 have the same GPU, H200 GPU-0")]),
        (
            [GOOD[0], report(1, problems=[["node", "rank 1: sees no GPU"]]), report(2, problems=[["data", "/d is not there"]]), None],
            [("node", "gpu2: rank 3 did not answer"), ("node", "gpu1: rank 1: sees no GPU"), ("data", "gpu2: /d is not there")],
        ),
        ([report(rank, accelerator="cores 0,1") for rank in range(4)], []),  # Slurm need not bind ranks to cores
    ],
)  # fmt: skip
def test_every_problem_names_its_node(reports: list, expected: list[tuple[str, str]]) -> None:
    found = preflight_ranks.problems_of(reports, request=REQUEST)
    assert [problem["failure_class"] for problem in found] == [failure_class for failure_class, _ in expected]
    for problem, (_, words) in zip(found, expected, strict=True):
        assert problem["message"].startswith(words)


@pytest.mark.parametrize(
    ("hosts", "layout"),
    [
        (["a", "a", "b", "b"], [0, 0, 1, 1]),
        (["a", "b", "a", "b"], [0, 1, 0, 1]),  # a cyclic distribution
        (["vm", "vm", "vm", "vm"], [0, 0, 1, 1]),  # emulated nodes
        (["c1", "c2", "c3", "c4"], [0, 0, 1, 1]),  # a container for each rank
    ],
)
def test_ranks_are_put_on_nodes_by_host_or_in_order(hosts: list[str], layout: list[int]) -> None:
    reports = [report(rank, host=host) for rank, host in enumerate(hosts)]
    assert preflight_ranks.nodes_of_ranks(reports, nodes=2) == layout


def test_a_rank_without_gpu_or_cores_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    spec = tiny_runs.run_spec("resnet", data_dir=tmp_path, device="cuda")
    found = preflight_ranks.look(spec, rank=3, local_rank=1)
    assert found["problems"] == [["node", "rank 3: device is cuda, but this rank sees no GPU"]]
    spec = dataclasses.replace(spec, device="cpu", cpus_per_accelerator=5000, emulated=False)
    ((failure_class, message),) = preflight_ranks.look(spec, rank=3, local_rank=1)["problems"]
    assert failure_class == "node"
    assert message.endswith("cores, cpus_per_accelerator is 5000")
    assert preflight_ranks.look(dataclasses.replace(spec, emulated=True), rank=3, local_rank=1)["problems"] == []


def test_roll_call_tells_who_is_missing_without_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlscaling import distributed

    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(tiny_runs.free_port()))
    first, second = (distributed.Ranks(rank=rank, local_rank=0, world_size=3) for rank in (0, 1))
    heard: list[str] = []

    def be_second() -> None:
        store = distributed.meeting_place(second, limit_s=20)
        distributed.call_roll(store, second, says="second", limit_s=20)
        heard.append(distributed.told_by_first(store, second, says="", limit_s=20))

    other = threading.Thread(target=be_second)
    other.start()
    store = distributed.meeting_place(first, limit_s=20)
    store.wait(["rank 1"], timedelta(seconds=20))
    assert distributed.call_roll(store, first, says="first", limit_s=0.3) == ["first", "second", None]
    assert distributed.told_by_first(store, first, says="go", limit_s=1) == "go"
    other.join(timeout=20)
    assert heard == ["go"]


# --- data -------------------------------------------------------------------------------------------------------------


def prepared(folder: Path, *, files: int = 3) -> Path:
    (folder / "train").mkdir(parents=True)
    for number in range(files):
        (folder / "train" / f"{number:04d}.bin").write_bytes(b"x" * (number + 1))
    prepared_files.write_list(folder)
    (folder / "prepared.json").write_text('{"files_digest": "abc"}')
    return folder


def shorten(folder: Path) -> None:
    (folder / "train/0002.bin").write_bytes(b"xx")


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (lambda folder: None, []),
        (lambda folder: (folder / "train/0001.bin").unlink(), ["train/0001.bin: No such file or directory"]),
        (shorten, ["train/0002.bin has 2 bytes, 3 were prepared"]),
        (lambda folder: (folder / "prepared.json").unlink(), ["prepared.json is not there or not readable"]),
        (lambda folder: (folder / "files.tsv").unlink(), []),  # prepared before there were lists
    ],
    ids=["whole", "missing", "truncated", "unfinished", "without list"],
)
def test_wrong_files_are_named(harm: Any, expected: list[str], tmp_path: Path) -> None:
    folder = prepared(tmp_path / "data")
    harm(folder)
    assert prepared_files.wrong_files(folder) == [f"{folder}/{sentence}" for sentence in expected]
    assert prepared_files.wrong_files(tmp_path / "no") == [f"{tmp_path / 'no'} is not there"]


def test_of_many_files_some_are_looked_at_from_first_to_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_files, "MOST_LOOKS", 10)
    folder = prepared(tmp_path / "data", files=95)
    for path in (folder / "train").iterdir():
        path.unlink()
    wrong = prepared_files.wrong_files(folder)
    assert [Path(sentence.partition(":")[0]).stem for sentence in wrong] == [f"{n:04d}" for n in range(0, 95, 10)]


def test_preparation_lists_its_files(digits: Path) -> None:
    lines = (digits / "files.tsv").read_text().splitlines()
    beside = {"prepared.json", "files.tsv", "SHA256SUMS", "request.json"}
    assert len(lines) == sum(path.is_file() and path.name not in beside for path in digits.rglob("*"))
    assert prepared_files.wrong_files(digits) == []


# --- judging ----------------------------------------------------------------------------------------------------------


def measured(*, nodes: int, slow: int | None = None, ranks: int = 0) -> dict[str, Any]:
    """A report of nodes with one rank each, links of 10 GB/s and 20 µs, one of them a tenth of that."""
    names = [f"gpu{number}" for number in range(1, nodes + 1)]
    links = []
    for one, other in (link for phase in network.ring_phases(nodes) for link in phase):
        factor = 10 if slow in (one + 1, other + 1) else 1
        pair = [names[one], names[other]]
        links.append({"nodes": pair, "latency_us": 20.0 * factor, "bandwidth_gb_per_s": 10.0 / factor})
    ranks = ranks or nodes
    seconds = {4096: 20e-6 if slow is None else 200e-6, 2**20: 2**20 / 1e10 if slow is None else 2**20 / 1e9}
    sweep = [network.sweep_row(size, seconds=time, ranks=ranks, repetitions=5) for size, time in seconds.items()]
    return {"nodes": names, "ranks": [{}] * ranks, "links": links, "sweep": sweep if ranks > 1 else []}


@pytest.mark.parametrize(
    ("given", "limits", "expected"),
    [
        ({"nodes": 4, "slow": 3}, {}, ""),
        ({"nodes": 4}, {"min_bus_bandwidth_gb_per_s": 12, "max_latency_us": 30}, ""),
        ({"nodes": 1}, {"min_bus_bandwidth_gb_per_s": 12}, ""),
        (
            {"nodes": 4, "slow": 3}, {"min_bus_bandwidth_gb_per_s": 12},
            "network: bus bandwidth 1.5 GB/s of 4 ranks on 4 nodes is below min_bus_bandwidth_gb_per_s = 12 of system s; "
            "the slow node is gpu3 (1 GB/s to its better neighbour, 10 in the median of the nodes)",
        ),
        (
            {"nodes": 3, "slow": 1}, {"max_latency_us": 100},
            "network: latency 200 µs of 3 ranks on 3 nodes is above max_latency_us = 100 of system s; "
            "the slow node is gpu1 (200 µs to its better neighbour, 20 in the median of the nodes)",
        ),
        (
            {"nodes": 3}, {"min_bus_bandwidth_gb_per_s": 100},
            "network: bus bandwidth 13.3 GB/s of 3 ranks on 3 nodes is below min_bus_bandwidth_gb_per_s = 100 of system s; "
            "no node stands out, the slowest is gpu1 (10 GB/s to its better neighbour, 10 in the median of the nodes)",
        ),
        (
            {"nodes": 2, "slow": 1}, {"min_bus_bandwidth_gb_per_s": 12},
            "network: bus bandwidth 1 GB/s of 2 ranks on 2 nodes is below min_bus_bandwidth_gb_per_s = 12 of system s; "
            "the link between gpu1 and gpu2 has 1 GB/s",
        ),
        (
            {"nodes": 1, "ranks": 4}, {"min_bus_bandwidth_gb_per_s": 100},
            "network: bus bandwidth 15 GB/s of 4 ranks on 1 node is below min_bus_bandwidth_gb_per_s = 100 of system s; "
            "all ranks are on gpu1",
        ),
    ],
)  # fmt: skip
def test_a_finding_has_value_threshold_and_node(given: dict, limits: dict, expected: str) -> None:
    assert preflight.judge(measured(**given), Settings(**limits), system="s") == expected


# --- real ranks -------------------------------------------------------------------------------------------------------


@pytest.mark.training
def test_ranks_measure_their_network_and_a_high_threshold_stops_them(tmp_path: Path, digits: Path) -> None:
    system = settings(min_bus_bandwidth_gb_per_s=1e6, sweep_limit_s=2, max_message_mib=1)
    finding = preflight.preflight(job(tmp_path / "a", nodes=3, data_dir=digits, system=system))
    assert finding.startswith("network: bus bandwidth ")
    assert " of 3 ranks on 3 nodes is below min_bus_bandwidth_gb_per_s = 1e+06 of system unit; " in finding
    assert "emulated node " in finding
    found = json.loads((tmp_path / "a" / "preflight.json").read_text())
    assert (found["problems"], found["backend"], found["finding"]) == ([], "gloo", finding)
    assert found["thresholds"] == {"min_bus_bandwidth_gb_per_s": 1e6, "max_latency_us": None}
    assert [rank["node"] for rank in found["ranks"]] == [f"emulated node {number}" for number in (1, 2, 3)]
    sizes = [row["bytes"] for row in found["sweep"]]
    assert sizes == [4096, 16384, 65536, 262144, 1048576][: len(sizes)]
    for row in found["sweep"]:
        assert row["latency_us"] > 0
        assert row["bus_bandwidth_gb_per_s"] == pytest.approx(row["bytes"] / row["latency_us"] / 1e3 * 4 / 3)
    assert [link["nodes"] for link in found["links"]] == [
        [f"emulated node {one}", f"emulated node {other}"] for one, other in ((1, 2), (2, 3), (3, 1))
    ]
    assert all(link["bandwidth_gb_per_s"] > 0 for link in found["links"])


HANGING = """
import os, sys, time
sys.path.insert(0, {scripts!r})
import train
if sys.argv[1] == "preflight" and os.environ["RANK"] == "1":
    time.sleep(300)
sys.exit(train.main(sys.argv[1:]))
"""


@pytest.mark.training
def test_a_rank_that_does_not_answer_in_time_is_named_and_ended(tmp_path: Path, digits: Path) -> None:
    script = tmp_path / "hanging.py"
    script.write_text(HANGING.format(scripts=str(tiny_runs.SCRIPTS)))
    given = job(tmp_path, nodes=2, data_dir=digits, system=settings(rendezvous_limit_s=1))
    finding = preflight.preflight(dataclasses.replace(given, train_script=script))
    assert finding == "node: emulated node 2: rank 1 did not answer in rendezvous_limit_s = 1"


def test_one_rank_has_no_network_and_the_report_says_so(tmp_path: Path, digits: Path) -> None:
    assert preflight.preflight(job(tmp_path, nodes=1, data_dir=digits)) == ""
    found = json.loads((tmp_path / "preflight.json").read_text())
    assert (found["sweep"], found["note"]) == ([], preflight_ranks.ALONE)
    assert found["ranks"][0]["accelerator"].startswith("cores ")


def test_an_attempt_ends_before_its_training_where_a_file_is_wrong(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "data")
    shorten(folder)
    paths = Paths(
        attempts_dir=tmp_path / "attempts", log=tmp_path / "result_0.txt", record=tmp_path / "run_0.json",
        train_script=TRAIN, data_dir=folder,
    )  # fmt: skip
    assert run_training(tiny_runs.run_spec("resnet"), SYSTEM, paths) == 1
    (record,) = read_attempts(paths.attempts_dir)
    assert (record["status"], record["failure_class"]) == ("failed", "data")
    assert record["message"] == f"emulated node 1: {folder}/train/0002.bin has 2 bytes, 3 were prepared"
    assert not (paths.attempts_dir / "attempt_0" / "command.json").exists()
    assert not paths.log.exists()


@pytest.mark.parametrize(
    ("printed", "ended", "expected"),
    [
        ("0: mlscaling rank 0 of 2 is on gpu1 10.0.0.1\n", (143, "timeout: limit"), "node: the preflight did not end in 4 min; no sign of gpu2"),
        ("0: mlscaling rank 0 of 2 is on a b\n1: mlscaling rank 1 of 2 is on c d\n", (143, "timeout: limit"), "network: the preflight did not end in 4 min; all ranks had started"),
        ("", (130, "interrupted: by SIGTERM"), "interrupted: by SIGTERM"),
        ("1: ModuleNotFoundError: No module named 'torch'\n", (1, ""), "config: preflight: 1: ModuleNotFoundError: No module named 'torch' ("),
        ("1: DistNetworkError: The client socket has timed out\n", (1, ""), "node: preflight: no answer from gpu1, gpu2; 1: DistNetworkError"),
    ],
    ids=["node hangs", "network hangs", "interrupted", "module", "no connection"],
)  # fmt: skip
def test_ranks_that_come_to_nothing_are_explained(
    printed: str, ended: tuple[int, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supervised(command: list[str], *, output: Path, **_: Any) -> tuple[int, str]:
        output.write_text(printed)
        return ended

    monkeypatch.setattr(preflight, "supervise", supervised)
    monkeypatch.setenv("PATH", "/nowhere")  # no Slurm that could know the job
    system = dataclasses.replace(settings(), launcher="srun")
    found = preflight.preflight(job(tmp_path, nodes=2, data_dir=tmp_path, system=system, job_id="7"))
    assert found.startswith(expected)
