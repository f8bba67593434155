"""Slurm without Slurm: geometry as the executor submits it, whole launch commands, answers of a stand-in for Slurm."""

from __future__ import annotations

import dataclasses
import runpy
import socket
import sys
from pathlib import Path

import pytest
from mlscaling import launchers, slurm
from mlscaling.failures import classify, why_failed
from mlscaling.whereabouts import line_of_rank, said_by_ranks
from slurm_requests import point, submission

SHAPES = [(nodes, accelerators) for nodes in (1, 2, 4, 8) for accelerators in (4, 8)]


# --- geometry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "accelerators"), SHAPES)
def test_submission_with_gpus_asks_for_them_on_each_node_and_for_no_tasks(nodes: int, accelerators: int) -> None:
    assert submission(point(nodes=nodes, accelerators=accelerators)) == (
        "sbatch --parsable --job-name run --output job.log --export=ALL --comment rule_train -A 'mlperf' -p 'main'"
        f" -t 275 --mem 9000 --nodes={nodes} --cpus-per-task=2 --ntasks-per-node={accelerators}"
        f" --gres=gpu:{accelerators}"
    )


@pytest.mark.parametrize(("nodes", "accelerators"), SHAPES)
def test_submission_without_gpus_asks_for_all_tasks(nodes: int, accelerators: int) -> None:
    assert submission(point(nodes=nodes, accelerators=accelerators, device="cpu")) == (
        "sbatch --parsable --job-name run --output job.log --export=ALL --comment rule_train -A 'mlperf' -p 'main'"
        f" -t 275 --mem 9000 --nodes={nodes} --ntasks={nodes * accelerators} --cpus-per-task=2"
        f" --ntasks-per-node={accelerators}"
    )


# --- launchers --------------------------------------------------------------------------------------------------------


def request(*, nodes: int, accelerators: int, job_id: str = "12345") -> launchers.LaunchRequest:
    return launchers.LaunchRequest(
        command=["python", "a b.py"],
        nodes=nodes,
        ranks_per_node=accelerators,
        cpus_per_rank=3,
        train_script="train.py",
        job_id=job_id,
        hosts=[f"gpu{node}" for node in range(nodes)],
        master_address="10.0.0.1",
        environment={"OMP_NUM_THREADS": "3"},
    )


@pytest.mark.parametrize(("nodes", "accelerators"), SHAPES)
def test_srun_starts_every_rank(nodes: int, accelerators: int) -> None:
    assert launchers.launch_command("srun", request(nodes=nodes, accelerators=accelerators)) == [
        "srun", "--jobid=12345", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes * accelerators}",
        f"--ntasks-per-node={accelerators}", "--cpus-per-task=3", "--kill-on-bad-exit=1", "--wait=60", "--label",
        "env", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=20345", "OMP_NUM_THREADS=3", "python", "a b.py",
    ]  # fmt: skip


@pytest.mark.parametrize(("nodes", "accelerators"), SHAPES)
def test_torchrun_starts_once_per_node_and_takes_the_nodes_number_in_the_task(nodes: int, accelerators: int) -> None:
    assert launchers.launch_command("torchrun", request(nodes=nodes, accelerators=accelerators)) == [
        "srun", "--jobid=12345", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        f"--cpus-per-task={3 * accelerators}", "--kill-on-bad-exit=1", "--wait=60", "--label",
        "sh", "-c", 'PET_NODE_RANK="$SLURM_PROCID" exec "$@"', "torchrun",
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={accelerators}",
        "--master-addr=10.0.0.1", "--master-port=20345", "--no-python", "--",
        "env", "OMP_NUM_THREADS=3", "python", "a b.py",
    ]  # fmt: skip


@pytest.mark.parametrize(("nodes", "hosts", "slots"), [(1, "gpu0", "4"), (2, "gpu0,gpu1", "4(x2)")])
def test_mpirun_gets_back_what_the_executor_stripped(nodes: int, hosts: str, slots: str) -> None:
    assert launchers.launch_command("mpirun", request(nodes=nodes, accelerators=4)) == [
        "env", "SLURM_JOBID=12345", f"SLURM_JOB_NODELIST={hosts}", f"SLURM_JOB_NUM_NODES={nodes}", f"SLURM_NNODES={nodes}",
        f"SLURM_NODELIST={hosts}",
        f"SLURM_TASKS_PER_NODE={slots}",
        "mpirun", "--np", str(4 * nodes), "--map-by", "ppr:4:node", "--bind-to", "none",
        "sh", "-c",
        'RANK="$OMPI_COMM_WORLD_RANK" LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"'
        ' exec "$@"',
        "mpirun",
        "env", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=20345", "OMP_NUM_THREADS=3", "python", "a b.py",
    ]  # fmt: skip


def test_mpirun_is_told_another_order_rank_by_rank() -> None:
    """By nodes, ranks would begin where mpirun itself runs, and rank 0 would not be where the others look for it."""
    ordered = dataclasses.replace(request(nodes=2, accelerators=2), hosts=("gpu1", "gpu0"), hosts_are_ordered=True)
    command = launchers.launch_command("mpirun", ordered)
    assert command[command.index("--np") :][:8] == [
        "--np", "4", "--map-by", "seq", "--host", "gpu1,gpu1,gpu0,gpu0", "--bind-to", "none",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["srun", "torchrun", "mpirun"])
def test_outside_of_a_job_the_error_says_what_is_legal(name: str) -> None:
    with pytest.raises(ValueError, match="this is none; legal outside: local"):
        launchers.launch_command(name, request(nodes=1, accelerators=1, job_id=""))


def test_jobs_that_share_a_node_meet_at_different_ports_outside_the_kernels_own_range() -> None:
    ports = [slurm.rendezvous_port(str(job)) for job in range(500_000, 512_000)]
    assert len(set(ports)) == len(ports)
    assert (min(ports), max(ports)) == (20000, 31999)
    with pytest.raises(ValueError, match="'12_3' is not a number"):
        slurm.rendezvous_port("12_3")


# --- a stand-in for Slurm ---------------------------------------------------------------------------------------------

NODE = "NodeName={name} Arch=x86_64 NodeAddr={address} NodeHostName={name}-ib0 State=MIXED Port={port}"


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of answers: `scontrol show job --oneliner 7` prints the file `show_job`, and so on; no file, a failure."""
    script = f'#!/bin/sh\ncat "{tmp_path}/answers/$1_$2" 2> /dev/null\n'
    for name in ("scontrol", "sacct"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script if name == "scontrol" else f'#!/bin/sh\ncat "{tmp_path}/answers/sacct"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "answers").mkdir()
    return tmp_path / "answers"


def test_an_allocation_with_a_compressed_list_keeps_slurms_order_addresses_and_ports(answers: Path) -> None:
    (answers / "show_job").write_text("JobId=7 JobState=RUNNING Reason=None NodeList=gpu[8-10]-ib BatchHost=gpu8-ib\n")
    (answers / "show_hostnames").write_text("gpu8-ib\ngpu9-ib\ngpu10-ib\n")
    records = [
        NODE.format(name=f"gpu{node}-ib", address=f"10.0.0.{node}", port=6820).replace("Port=6820", "" if node > 8 else "Port=6820")
        for node in (10, 8, 9)
    ]  # fmt: skip
    (answers / "show_node").write_text("\n".join(records))
    (answers / "show_config").write_text("SlurmdParameters = (null)\nSlurmdPort              = 7000\n")
    found = slurm.allocation("7")
    assert [(node.name, node.address, node.port) for node in found] == [
        ("gpu8-ib", "10.0.0.8", 6820),
        ("gpu9-ib", "10.0.0.9", 7000),
        ("gpu10-ib", "10.0.0.10", 7000),
    ]
    assert slurm.first_address(found) == "10.0.0.8"


def test_silence_of_slurm_is_an_error_that_names_the_job(answers: Path) -> None:
    with pytest.raises(ValueError, match="does not tell the nodes of job 7"):
        slurm.allocation("7", patience_s=0.0)
    assert slurm.why_ended("7") is None


def test_a_first_node_that_knows_itself_by_loopback_only_is_found_by_the_others() -> None:
    nodes = [slurm.Node(name="a", address="127.0.1.1", port=1), slurm.Node(name="b", address="127.0.0.2", port=1)]
    assert slurm.first_address(nodes[:1]) == "127.0.1.1"
    assert slurm.first_address(nodes) == "127.0.0.1", "the kernel's own choice of an address towards the second node"


NOW = "StartTime=1000"
"""When the job started for the last time; the attempt started 5 s later."""


@pytest.mark.parametrize(
    ("job", "accounted", "expected"),
    [
        (f"JobState=RUNNING Reason=None {NOW}", "1000|CANCELLED by 0", None),
        (f"JobState=COMPLETING Reason=TimeLimit {NOW}", "", "timeout"),
        (f"JobState=TIMEOUT Reason=TimeLimit {NOW}", "", "timeout"),
        (f"JobState=COMPLETING Reason=None {NOW}", "1000|CANCELLED by 0\n", "interrupted"),
        (f"JobState=CANCELLED Reason=None {NOW}", "", "interrupted"),
        (f"JobState=NODE_FAIL Reason=NodeDown {NOW}", "", "node"),
        (f"JobState=OUT_OF_MEMORY Reason=OutOfMemory {NOW}", "", "out_of_memory"),
        ("", "1000|NODE_FAIL\n", "node"),
        ("", "1000|PREEMPTED\n", "preempted"),
        ("", "1000|FAILED\n", None),
        ("", "", None),
        # Requeued under the same number: what ended this attempt is neither what the job does now nor what it did before.
        ("JobState=PENDING Reason=BeginTime StartTime=1200", "1000|PREEMPTED\nUnknown|PENDING\n", "preempted"),
        ("JobState=COMPLETING Reason=None StartTime=1010", "1000|PREEMPTED\n", "preempted"),
        ("JobState=RUNNING Reason=None StartTime=1200", "900|PREEMPTED\n1000|NODE_FAIL\n1200|RUNNING\n", "node"),
        ("JobState=TIMEOUT Reason=TimeLimit StartTime=1200", "1000|NODE_FAIL\n1200|TIMEOUT\n", "node"),
        ("JobState=RUNNING Reason=None StartTime=1200", "", None),
    ],
)
def test_what_ended_a_job(answers: Path, job: str, accounted: str, expected: str | None) -> None:
    if job:
        (answers / "show_job").write_text(f"JobId=7 {job} NodeList=gpu1\n")
    (answers / "sacct").write_text(accounted)
    found = slurm.why_ended("7", at=1005.0)
    assert (found and found[0]) == expected
    assert found is None or "job 7 was ended by" in found[1]


def test_a_node_that_does_not_answer_is_the_cause_when_ranks_lose_each_other(answers: Path, tmp_path: Path) -> None:
    log = tmp_path / "ranks.log"
    log.write_text("0: RuntimeError: Connection closed by peer [10.0.0.2]:1\n")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        there = slurm.Node(name="here", address="127.0.0.1", port=server.getsockname()[1])
        lost = slurm.Node(name="lost", address="127.0.0.1", port=unused.getsockname()[1])
        whole = why_failed(log, exit_status=1, ended_by="", job_id="7", nodes=[there])
        broken = why_failed(log, exit_status=1, ended_by="", job_id="7", nodes=[there, lost])
    assert whole.failure_class == "network"
    assert (broken.failure_class, broken.message.partition(";")[0]) == ("node", "no answer from lost")


# --- what ranks and srun print ----------------------------------------------------------------------------------------

KILLED = [
    "0: RuntimeError: Connection closed by peer [10.0.0.2]:1",
    "srun: error: node2: task 1: Killed",
    "srun: error: node1: task 0: Exited with exit code 1",
]
EXITED = [
    "1: Traceback (most recent call last):",
    "1: torch.OutOfMemoryError: CUDA out of memory.",
    "srun: error: node2: task 1: Exited with exit code 1",
    "srun: error: node1: tasks 0,2-3: Killed",
]
ALIGNED = [
    " 0: RuntimeError: Connection closed by peer",
    " 9: Traceback (most recent call last):",
    " 9: ValueError: mlscaling data error: shard 3",
    "srun: error: node2: task 9: Exited with exit code 1",
]
TOO_MUCH = [
    "0: slurmstepd-node1: error: *** STEP 37.0 ON node1 CANCELLED AT 2026-12-01T05:34:36 ***",
    "srun: error: node1: task 0: Killed",
    "1: slurmstepd-node2: error: StepId=37.0 exceeded memory limit (963760128 > 838860800), being killed",
    "srun: error: node2: task 1: Killed",
]
PEER_LOST = ["0: RuntimeError: Connection closed by peer", "srun: error: node1: task 0: Exited with exit code 1"]


@pytest.mark.parametrize(
    ("lines", "failure_class", "part"),
    [
        (KILLED, "unknown", "task 1: Killed"),
        (EXITED, "out_of_memory", "CUDA out of memory"),
        (ALIGNED, "data", "shard 3"),
        ([*ALIGNED[:2], " 9: KeyError: 'x'", ALIGNED[3]], "unknown", "KeyError"),
        ([*PEER_LOST, "srun: error: node2: task 1: Killed"], "network", "Connection closed"),
        ([*PEER_LOST, "slurmstepd: error: *** STEP 7.0 ON a CANCELLED AT T DUE TO TIME LIMIT ***"], "timeout", "TIME"),
        ([*PEER_LOST, "srun: error: Node failure on node2"], "node", "Node failure on node2"),
        (["srun: error: node2: task 1: Bus error", *PEER_LOST], "node", "Bus error"),
        (TOO_MUCH, "out_of_memory", "exceeded memory limit"),
    ],
)
def test_the_first_end_that_srun_reports_is_the_cause(lines: list[str], failure_class: str, part: str) -> None:
    failure = classify(lines, otherwise="?")
    assert failure.failure_class == failure_class, failure
    assert part in failure.message


@pytest.mark.parametrize(
    ("why", "failure_class"),
    [(" DUE TO PREEMPTION", "preempted"), (" DUE TO TIME LIMIT", "timeout"), ("", "interrupted")],
)
def test_where_the_accounting_is_silent_slurms_daemons_say_why(
    answers: Path, tmp_path: Path, why: str, failure_class: str
) -> None:
    log = tmp_path / "ranks.log"
    log.write_text(f"0: slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-12-01T05:33:36{why} ***\n")
    failure = why_failed(log, exit_status=-15, ended_by="interrupted: by SIGTERM", job_id="7", started=1.0)
    assert failure.failure_class == failure_class


def test_ranks_say_where_they_are() -> None:
    line = line_of_rank(11, world_size=16)
    assert socket.gethostname() in line
    ranks = said_by_ranks([f"11: {line}\n", "noise", "2: mlscaling rank 2 of 16 is on gpu1 10.0.0.2\n"])
    assert [rank["rank"] for rank in ranks] == [2, 11]
    assert ranks[0] == {"rank": 2, "host": "gpu1", "address": "10.0.0.2"}


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        ("results/s/runs/sys/resnet/n2/result_1.txt", "results/s/validation/sys/resnet/n2/compliance_1.json"),
        ("elsewhere/result_1.txt", None),
    ],
)
def test_the_verdict_of_a_log_is_where_the_rules_put_it(log: str, verdict: str | None) -> None:
    script = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "train.py"
    found = runpy.run_path(str(script))["_verdict_of"](Path(log))
    assert found == (Path(verdict) if verdict else None)
