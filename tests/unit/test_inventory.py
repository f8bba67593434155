"""What a node is, from samples of the tools' output and trees of files as kernels show them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import node_samples as samples
import pytest
from mlscaling import provenance
from mlscaling.inventory import accelerators, networks, node, processors, slurm_job, software, storage
from mlscaling.inventory.commands import Answer, answers

A100 = {
    "name": "NVIDIA A100-PCIE-40GB", "memory_mib": 40960, "pcie_generation": 4, "pcie_width": 16, "max_clock_mhz": 1410,
    "power_limit_w": 250, "ecc": "Enabled", "mig": "Disabled", "persistence": "Enabled", "compute_mode": "Default",
    "vbios": "92.00.25.00.08",
}  # fmt: skip
NOTEBOOK = {
    "name": "NVIDIA GeForce RTX 4070 Laptop GPU", "memory_mib": 8188, "pcie_generation": 4, "pcie_width": 8,
    "max_clock_mhz": 3105, "persistence": "Enabled", "compute_mode": "Default", "vbios": "95.06.18.00.2D",
}  # fmt: skip
MI250 = {"name": "AMD INSTINCT MI250 (MCM) OAM AC MBA", "memory_mib": 65520}


# --- processors, memory, settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (processors.parse_lscpu, samples.LSCPU_EPYC, {
            "architecture": "x86_64", "cpus": 128, "model": "AMD EPYC 7543 32-Core Processor", "threads_per_core": 2,
            "cores_per_socket": 32, "sockets": 2, "max_mhz": "3737.8899", "numa_nodes": 8,
            "caches": {"L1d": "2 MiB (64 instances)", "L1i": "2 MiB (64 instances)", "L2": "32 MiB (64 instances)", "L3": "512 MiB (16 instances)"}}),
        (processors.parse_lscpu, samples.LSCPU_GRACE, {
            "architecture": "aarch64", "cpus": 72, "model": "Neoverse-V2", "threads_per_core": 1, "cores_per_socket": 72, "sockets": 1, "numa_nodes": 1}),
        (processors.parse_lscpu, "", {}),
        (processors.parse_cpuinfo, samples.CPUINFO, {
            "model": "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", "cpus": 8, "sockets": 2, "cores_per_socket": 2, "threads_per_core": 2}),
        (processors.parse_cpuinfo, "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n", {}),
        (processors.parse_cpuinfo, "", {}),
    ],
)  # fmt: skip
def test_processors(parse: Any, text: str, expected: dict[str, Any]) -> None:
    assert parse(text) == expected


def test_a_node_without_lscpu_is_read_from_the_kernel(tmp_path: Path) -> None:
    samples.write_files(
        tmp_path,
        {
            "proc/cpuinfo": samples.CPUINFO, "proc/meminfo": "MemTotal:       527955968 kB\nMemFree: 1 kB\n",
            "proc/sys/vm/swappiness": "10\n", "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n", "sys/devices/system/cpu/smt/active": "1\n",
        },
    )  # fmt: skip
    found = processors.processors({"lscpu": Answer(status="absent")}, root=tmp_path)
    assert (found["sockets"], found["usable_cores"] > 0) == (2, True)
    assert found["settings"] == {"governor": "performance", "smt_active": "1", "transparent_hugepages": "madvise", "swappiness": "10"}  # fmt: skip
    assert processors.memory_mib(tmp_path) == 515_582
    assert processors.memory_mib(tmp_path / "nowhere") is None


# --- accelerators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (samples.QUERY_GPU, ("535.104.05", [A100, A100])),
        (samples.QUERY_GPU_NOTEBOOK, ("550.54.15", [NOTEBOOK])),
        (samples.QUERY_GPU_SHORT, ("418.87.01", [{"name": "Tesla V100-SXM2-16GB", "memory_mib": 16160}])),
        ("No devices were found\n", ("", [])),
        ('Field "mig.mode.current" is not a valid field to query.\n', ("", [])),
        ("", ("", [])),
    ],
)
def test_devices_of_nvidia_smi(text: str, expected: tuple[str, list[dict[str, Any]]]) -> None:
    assert accelerators.parse_nvidia_smi(text) == expected


def test_links_of_nvidia_smi() -> None:
    assert accelerators.parse_topology(samples.TOPOLOGY_2021) == {
        "GPU0-GPU1": "NV12", "GPU0-GPU2": "SYS", "GPU0-GPU3": "SYS", "GPU0-mlx5_0": "SYS", "GPU1-GPU2": "SYS", "GPU1-GPU3": "SYS",
        "GPU1-mlx5_0": "SYS", "GPU2-GPU3": "NV12", "GPU2-mlx5_0": "PXB", "GPU3-mlx5_0": "PXB",
    }  # fmt: skip
    assert accelerators.parse_topology(samples.TOPOLOGY_2024) == {
        "GPU0-GPU1": "NV18", "GPU0-mlx5_0": "PIX", "GPU0-mlx5_bond_1": "SYS", "GPU1-mlx5_0": "SYS", "GPU1-mlx5_bond_1": "PIX",
        "mlx5_0-mlx5_bond_1": "SYS",
    }  # fmt: skip
    assert accelerators.parse_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n") == {}
    assert accelerators.parse_topology("") == {}


def test_cuda_version_of_nvidia_smi() -> None:
    assert accelerators.parse_cuda_version(samples.NVIDIA_SMI) == "12.2"
    assert accelerators.parse_cuda_version("| NVIDIA-SMI 390.48  Driver Version: 390.48 |") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (samples.ROCM_SMI_5, ("6.3.6", [MI250, MI250])),
        (samples.ROCM_SMI_6, ("6.12.12", [{"name": "AMD Instinct MI300X OAM", "memory_mib": 196_592}])),
        ("ERROR: No AMD GPUs detected\n", ("", [])),
        ("{broken", ("", [])),
        ("", ("", [])),
    ],
)
def test_devices_of_rocm_smi(text: str, expected: tuple[str, list[dict[str, Any]]]) -> None:
    assert accelerators.parse_rocm_smi(text) == expected


def replies(**texts: str) -> dict[str, Answer]:
    return {
        name: Answer(text=texts.get(name.replace(" ", "_").replace("-", "_"), "")) for name in accelerators.COMMANDS
    }


def test_accelerators_of_either_vendor_and_of_an_old_driver() -> None:
    new = accelerators.accelerators(
        replies(
            nvidia_smi=samples.QUERY_GPU, nvidia_smi_header=samples.NVIDIA_SMI, nvidia_smi_topo=samples.TOPOLOGY_2024
        )
    )
    assert (new["vendor"], new["driver"], new["cuda"], len(new["devices"])) == ("NVIDIA", "535.104.05", "12.2", 2)
    assert new["links"]["GPU0-GPU1"] == "NV18"
    old = accelerators.accelerators(replies(nvidia_smi_short=samples.QUERY_GPU_SHORT))
    assert (old["driver"], old["cuda"], old["links"]) == ("418.87.01", "", {})
    amd = accelerators.accelerators(replies(rocm_smi=samples.ROCM_SMI_5, rocm_smi_topo=samples.ROCM_TOPOLOGY))
    assert (amd["vendor"], amd["driver"], amd["links"]) == ("AMD", "6.3.6", {"GPU0-GPU1": "XGMI"})
    assert accelerators.accelerators(replies()) == {}


# --- network and storage ------------------------------------------------------------------------------------------------


def test_interfaces_and_adapters(tmp_path: Path) -> None:
    root = samples.network_tree(tmp_path)
    indices = {"lo": 1, "ib0": 2, "eno1": 3, "docker0": 4}
    assert networks.interfaces(indices, root=root) == [
        {"name": "eno1", "driver": "igb", "mtu": 1500, "state": "down"},
        {"name": "ib0", "driver": "mlx5_core", "speed_mbit_per_s": 200_000, "mtu": 2044, "state": "up"},
    ]
    found = networks.infiniband(root)
    assert [(adapter["name"], adapter["type"], adapter["firmware"]) for adapter in found] == [
        ("mlx5_0", "MT4123", "20.31.1014"),
        ("mlx5_1", "MT4119", "16.31.1014"),
    ]
    assert found[0]["ports"] == [{"rate": "200 Gb/sec (4X HDR)", "state": "ACTIVE", "link_layer": "InfiniBand"}]
    assert found[1]["ports"][0]["state"] == "DOWN"


def test_another_namespaces_files_are_not_taken_for_ours(tmp_path: Path) -> None:
    root = samples.network_tree(tmp_path)
    assert networks.interfaces({"lo": 1, "ib0": 77}, root=root) == [{"name": "ib0"}]
    assert networks.interfaces({"eth9": 2}, root=root) == [{"name": "eth9"}]
    assert networks.infiniband(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("folder", "kind", "device", "medium"),
    [
        ("/srv/data", "ext4", "259:2", "NVMe"),
        ("/scratch/me/data", "lustre", "0:40", "network"),
        ("/scratches", "ext4", "259:2", "NVMe"),
        ("/home/me", "nfs4", "0:41", "network"),
        ("/dev/shm/data", "tmpfs", "0:42", "memory"),
        ("/mnt/with blank/data", "xfs", "253:1", ""),
        ("/old/data", "ext4", "8:1", "disk"),
        ("/hidden/data", "overlay", "0:46", ""),
    ],
)
def test_file_system_of_the_data(folder: str, kind: str, device: str, medium: str, tmp_path: Path) -> None:
    root = samples.disk_tree(tmp_path)
    assert storage.parse_mountinfo(samples.MOUNTINFO, folder=Path(folder)) == (kind, device)
    assert storage.medium_of(kind, device, root=root) == medium


def test_file_system_without_its_source(tmp_path: Path) -> None:
    found = storage.storage(tmp_path)
    assert {"file_system", "capacity_gib"} <= found.keys() <= {"file_system", "capacity_gib", "medium"}
    assert found["capacity_gib"] > 0
    assert storage.storage(tmp_path / "nowhere") == {}
    assert storage.medium_of("xfs", "8:16", root=samples.disk_tree(tmp_path)) == "SSD"


# --- software -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (software.parse_mpi, samples.OPEN_MPI, "Open MPI 4.1.4"),
        (software.parse_mpi, samples.INTEL_MPI, "Intel MPI 2021.9 Build 20230307"),
        (software.parse_mpi, samples.MPICH, "MPICH 4.0.2"),
        (software.parse_mpi, "command not found", ""),
        (software.parse_ucx, samples.UCX_NEW, "1.13.1"),
        (software.parse_ucx, samples.UCX_OLD, "1.10.0"),
        (software.parse_os_release, 'NAME="Rocky Linux"\nPRETTY_NAME="Rocky Linux 8.9 (Green Obsidian)"\n', "Rocky Linux 8.9 (Green Obsidian)"),
        (software.parse_os_release, "NAME=x\n", ""),
        (software.parse_torch_version, samples.TORCH_VERSION.format(hip="None"), {"cuda": "12.3"}),
        (software.parse_torch_version, "cuda = None\nhip = '6.0.32830'\n", {"rocm": "6.0.32830"}),
        (slurm_job.parse_job, samples.SHOW_JOB, {"partition": "gpu", "node_list": "node[003-004]"}),
        (slurm_job.parse_job, "JobId=7 Partition=gpu NodeList=(null)", {"partition": "gpu"}),
        (slurm_job.parse_job, "", {}),
        (slurm_job.parse_topology, samples.SHOW_TOPOLOGY, [
            {"name": "leaf1", "level": 0, "nodes": "node[001-004]"}, {"name": "leaf2", "level": 0, "nodes": "node[005-008]"},
            {"name": "spine1", "level": 1, "nodes": "node[001-008]", "switches": "leaf[1-2]"}]),
        (slurm_job.parse_topology, "No topology information available\n", []),
        (slurm_job.names_of_switches, slurm_job.parse_topology(samples.SHOW_TOPOLOGY), "2 levels: leaf1, leaf2 below spine1"),
        (slurm_job.names_of_switches, [], ""),
    ],
)  # fmt: skip
def test_software_and_slurm(parse: Any, text: Any, expected: Any) -> None:
    assert parse(text) == expected


def test_libraries_come_from_the_loader_the_image_the_tools_and_the_wheels(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2.19.3").touch()
    (tmp_path / "libnccl.so.2").symlink_to("libnccl.so.2.19.3")
    loader = samples.LDCONFIG.format(folder=tmp_path)
    assert software.parse_ldconfig(loader) == {"nccl": "2.19.3"}
    given = {name: Answer() for name in software.COMMANDS} | {"ldconfig": Answer(text=loader)}
    variables = {"OPENMPI_VERSION": "4.1.1rc1", "MOFED_VERSION": "5.4-1.0.3.0", "OPENMPI_PASSWORD": "x"}
    found = software.software(given, variables=variables, root=tmp_path)["libraries"]
    assert (found["mpi"], found["ofed"]) == ("Open MPI 4.1.1rc1", "5.4-1.0.3.0")
    asked = given | {
        "mpirun": Answer(text=samples.OPEN_MPI),
        "ofed_info": Answer(text="MLNX_OFED_LINUX-5.8-3.0.7.0:\n"),
    }
    found = software.software(asked, variables=variables, root=tmp_path)["libraries"]
    assert (found["mpi"], found["ofed"]) == ("Open MPI 4.1.4", "MLNX_OFED_LINUX-5.8-3.0.7.0")


# --- commands -----------------------------------------------------------------------------------------------------------


def test_commands_that_hang_fail_or_are_absent_cost_their_answer_only(tmp_path: Path) -> None:
    started = time.monotonic()
    found = answers(
        {
            "hangs": ("sh", "-c", "trap '' TERM; sleep 60"), "fails": ("sh", "-c", "echo half; exit 9"),
            "absent": ("no-such-tool", "-x"), "answers": ("sh", "-c", "echo $LC_ALL"), "loud": ("sh", "-c", "yes | head -c 5000000"),
        },
        limit_s=1.0,
    )  # fmt: skip
    assert time.monotonic() - started < 5
    assert found["hangs"] == Answer(status="no answer within 1 s")
    assert found["fails"] == Answer(status="ended with status 9")
    assert found["absent"] == Answer(status="absent")
    assert found["answers"] == Answer(text="C\n")
    assert len(found["loud"].text) == 2**20


def test_a_container_that_talks_before_its_facts_or_gives_none() -> None:
    said = node.facts_of_node(
        data_dir=Path(), inside=["sh", "-c", 'echo INFO: starting; echo \'{"packages": {"torch": "2"}}\'']
    )
    assert said["software"] == {"packages": {"torch": "2"}}
    for command, problem in (
        (["sh", "-c", "echo pulled; exit 125"], "the container gave no facts (status 125)"),
        (["sh", "-c", "echo '{broken'"], "the container gave no facts (status 0)"),
        (["no-such-runtime"], "the container did not start: FileNotFoundError"),
    ):
        assert node.facts_of_node(data_dir=Path(), inside=command)["software"] == {"problem": problem}


# --- the allow-list -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("OMP_NUM_THREADS", "8", "8"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1,mlx5_4,mlx5_5,mlx5_8,mlx5_9", "mlx5_0,mlx5_1,mlx5_4,mlx5_5,mlx5_8,mlx5_9"),
        ("UCX_NET_DEVICES", "mlx5_0:1", "mlx5_0:1"),
        ("NCCL_NET_PLUGIN", "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so", "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512", "expandable_segments:True,max_split_size_mb:512"),
        ("NCCL_SOCKET_IFNAME", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "(withheld)"),
        ("NCCL_IB_HCA", "AKIAIOSFODNN7EXAMPLE", "(withheld)"),
        ("UCX_TLS", "https://me:hunter2@registry.example/x", "(withheld)"),
        ("NCCL_ALGO", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", "(withheld)"),
        ("NCCL_PROTO", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "(withheld)"),
        ("NCCL_API_KEY", "a", None), ("NCCL_IB_HCA_TOKEN", "a", None), ("OMP_SECRET", "a", None), ("UCX_PASSWORD", "a", None),
        ("SLURM_JWT", "a", None), ("HF_TOKEN", "a", None), ("AWS_SECRET_ACCESS_KEY", "a", None), ("PATH", "/bin", None),
    ],
)  # fmt: skip
def test_environment_by_names_and_without_secrets(name: str, value: str, kept: str | None) -> None:
    assert provenance.environment({name: value}) == ({name: kept} if kept else {})


def test_what_a_person_configured_is_recorded_but_for_secrets() -> None:
    given = {
        "DGXNNODES": "8", "TOKENIZERS_PARALLELISM": "false", "AUTHOR": "me", "WANDB_API_KEY": "1", "HF_TOKEN": "2",
        "HF_TOKEN_PATH": "/x", "MY_PASSWORD": "3", "SSH_AUTH": "4", "DATADIR": "/data/imagenet",
    }  # fmt: skip
    shown = provenance.without_secrets(given)
    assert {name for name, value in shown.items() if value == "(withheld)"} == {"WANDB_API_KEY", "HF_TOKEN", "HF_TOKEN_PATH", "MY_PASSWORD", "SSH_AUTH"}  # fmt: skip
    assert shown["DATADIR"] == "/data/imagenet"
    command = [
        "srun",
        "--jobid=7",
        "env",
        "MASTER_ADDR=10.0.0.1",
        "HF_TOKEN=abc",
        "sh",
        "-c",
        'RANK="$X" exec "$@"',
        "a=b=c",
    ]
    assert provenance.command_without_secrets(command) == [
        *command[:4], "HF_TOKEN=(withheld)", *command[5:]
    ]  # fmt: skip
