"""How ranks start: whole commands, places of ranks, Slurm geometry, and real processes on emulated nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mlscaling import containers, launchers
from mlscaling.emulation import rank_places
from mlscaling.slurm import geometry
from mlscaling.study import load_study

ROOT = Path(__file__).resolve().parents[2]
TRAIN = str(ROOT / "workflow" / "scripts" / "train.py")


def request(**changes: object) -> launchers.LaunchRequest:
    values = {
        "command": ["python", "a b.py"],
        "nodes": 2,
        "ranks_per_node": 4,
        "cpus_per_rank": 3,
        "train_script": "train.py",
        "job_id": "7",
        "environment": {"OMP_NUM_THREADS": "3"},
    }
    return launchers.LaunchRequest(**{**values, **changes})


def test_srun_command() -> None:
    assert launchers.launch_command("srun", request()) == [
        "srun", "--jobid=7", "--overlap", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3",
        "--kill-on-bad-exit=1", "--wait=60", "--label", "env", "OMP_NUM_THREADS=3", "python", "a b.py",
    ]  # fmt: skip


def test_local_command() -> None:
    assert launchers.launch_command("local", request(nodes=1, ranks_per_node=1, environment={})) == [
        sys.executable, "train.py", "emulate", "--nodes=1", "--ranks-per-node=1", "--cpus-per-rank=3", "--",
        "python", "a b.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lookup", "legal"),
    [
        (lambda: launchers.launch_command("slurm", request()), "local, mpirun, srun, torchrun"),
        (lambda: containers.wrap("lxc", containers.ContainerRequest(command=["x"])), "none"),
    ],
)
def test_unknown_name_lists_what_exists(lookup: object, legal: str) -> None:
    with pytest.raises(ValueError, match=f"legal values: .*{legal}"):
        lookup()


def test_registering_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        launchers.register("local")(launchers.local)
    with pytest.raises(ValueError, match="registered twice"):
        containers.register("none")(containers.none)


@pytest.mark.parametrize(
    ("nodes", "ranks_per_node", "cpus", "cores", "expected"),
    [
        (2, 1, 1, [0, 1], [(0, 0, 0, (0,)), (1, 1, 0, (1,))]),
        (1, 2, 2, [4, 5, 6, 7], [(0, 0, 0, (4, 5)), (1, 0, 1, (6, 7))]),
        (4, 1, 1, [0, 1], [(0, 0, 0, (0,)), (1, 1, 0, (1,)), (2, 2, 0, (0,)), (3, 3, 0, (1,))]),
    ],
)
def test_rank_places(nodes: int, ranks_per_node: int, cpus: int, cores: list[int], expected: list[tuple]) -> None:
    places = rank_places(nodes=nodes, ranks_per_node=ranks_per_node, cpus_per_rank=cpus, cores=cores)
    assert [(place.rank, place.node, place.local_rank, place.cores) for place in places] == expected


def emulate(code: str, *, nodes: int = 2) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, TRAIN, "emulate", f"--nodes={nodes}", "--ranks-per-node=1", "--cpus-per-rank=1", "--"]
    return subprocess.run([*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_emulated_ranks_get_their_environment_and_label_their_output() -> None:
    code = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'])"
    done = emulate(code)
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if not line.startswith("emulate:")) == [
        "0: 0 2 0",
        "1: 1 2 0",
    ]


@pytest.mark.parametrize(
    ("fate", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 137), ("raise OSError('x')", 1)]
)
def test_one_failing_rank_ends_the_others_at_once(fate: str, status: int) -> None:
    code = f"import os, signal, sys, time\nif os.environ['RANK'] == '1': {fate}\ntime.sleep(300)"
    done = emulate(code)
    assert done.returncode == status
    assert "emulate: rank 1 ended" in done.stdout


def test_slurm_geometry_has_the_same_shape_at_every_node_count() -> None:
    curve = {
        "workload": "resnet",
        "system": "emulated_cpu",
        "nodes": [1, 2, 4],
        "weak": {"local_batch_size": 64},
        "runs": 1,
    }
    study = load_study(
        {"study": "g", "round": "1.1.0", "scale": "tiny", "curves": [curve]}, config_dir=ROOT / "config"
    )  # fmt: skip
    shapes = [geometry(point) for point in study.points]
    assert [(s.nodes, s.ntasks_per_node, s.cpus_per_task, s.gres, s.slurm_extra) for s in shapes] == [
        (nodes, 1, 1, "", "--ntasks-per-node=1") for nodes in (1, 2, 4)
    ]
