"""The two systems of the v1.1 multi-node study start a vendor's container as its published logs show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from mlscaling.commands import commands_of_study
from mlscaling.study import Study, load_study

CONFIG = Path(__file__).resolve().parents[2] / "config"
RESULTS = "training_results_v1.1/Dell/results"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / RESULTS


@pytest.fixture(scope="module")
def study() -> Study:
    r750xa = {"system": "r750xa_a100_pcie_80gb", "nodes": [8], "strong": {"global_batch_size": 13056}}
    xe8545 = {"system": "xe8545_a100_sxm_80gb", "nodes": [2], "strong": {"global_batch_size": 3264}}
    curves = [{"workload": "resnet_mxnet", "runs": 5, **curve} for curve in (r750xa, xe8545)]
    config = {"study": "s", "round": "1.1.0", "scale": "full", "data_root": "/lustre/my data", "curves": curves}
    return load_study(config, config_dir=CONFIG)


def started(study: Study, number: int) -> tuple[list[str], dict[str, str]]:
    """Words of the command that trains, without the variables among them, and those."""
    paragraph = commands_of_study(study, attempts=Path("/a")).split("\n\n")[number]
    words = shlex.split(paragraph.strip().splitlines()[-1])
    variables = [word for word in words if re.match(r"[A-Z][A-Za-z0-9_]*=", word) and not word.startswith("RANK=")]
    return [word for word in words if word not in variables], dict(word.split("=", 1) for word in variables)


def test_eight_nodes_by_mpirun_and_singularity(study: Study) -> None:
    words, variables = started(study, 0)
    places = 'RANK="$OMPI_COMM_WORLD_RANK" LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"'
    output = "/a/r750xa_a100_pcie_80gb/resnet_mxnet/n8/run_0/attempt_0/output"
    assert words == [
        "env", "mpirun", "--np", "32", "--map-by", "ppr:4:node", "--bind-to", "none", "--allow-run-as-root",
        "sh", "-c", f'{places} exec "$@"', "mpirun", "env", "singularity", "exec", "--nv",
        "--bind=/lustre/my data/imagenet_recordio:/data:ro", f"--bind={output}:/results",
        "--pwd=/workspace/image_classification", "/images/mlperf-training.sif", "bash", "./run_and_time_multi.sh",
    ]  # fmt: skip
    expected = {
        "DGXNNODES": "8",
        "DGXNGPU": "4",
        "BATCHSIZE": "408",
        "LR": "17",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "NEXP": "1",
    }
    assert expected.items() <= variables.items()
    assert variables["SLURM_TASKS_PER_NODE"] == "4(x8)"


def test_two_nodes_by_srun_and_pyxis(study: Study) -> None:
    words, variables = started(study, 1)
    output = "/a/xe8545_a100_sxm_80gb/resnet_mxnet/n2/run_0/attempt_0/output"
    assert words == [
        "srun", "--jobid=1", "--overlap", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=16",
        "--kill-on-bad-exit=1", "--wait=60", "--label", "--mpi=pmix", "--container-image=/images/mlperf-training.sqsh",
        f"--container-mounts=/lustre/my data/imagenet_recordio:/data:ro,{output}:/results",
        "--container-workdir=/workspace/image_classification", "--no-container-mount-home",
        "env", "bash", "./run_and_time_multi.sh",
    ]  # fmt: skip
    assert {"DGXNNODES": "2", "DGXNGPU": "4", "BATCHSIZE": "408", "LR": "10.5"}.items() <= variables.items()


@pytest.mark.parametrize(
    ("number", "log", "shape"),
    [
        (0, "8xR750xax4A100-PCIE-80GB/resnet/result_0.txt",
         r"mpirun .*--bind-to none .*-np 32 singularity exec --nv -B \S+:/data .*--pwd (\S+) \S+\.sif bash \./run_and_time_multi\.sh"),
        (1, "2xXE8545x4A100-SXM-80GB/resnet/result_0.txt",
         r"srun .*--mpi=pmi\S* --ntasks=8 --ntasks-per-node=4 .*--container-mounts=\S+:/data,\S+:/results"),
    ],
)  # fmt: skip
def test_the_published_logs_show_the_same_shape(study: Study, number: int, log: str, shape: str) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"the published logs are not in {SHARED}")
    launch = re.search(shape, (SHARED / log).read_text(errors="replace"))
    assert launch
    words, _ = started(study, number)
    if number == 0:
        assert words[words.index("--np") + 1] == "32"
        assert f"--pwd={launch.group(1)}" in words
    else:
        assert {"--ntasks=8", "--ntasks-per-node=4"} <= {*words}
