"""What tools print and kernels show on nodes that tests do not have, in those tools' formats; and stand-ins for them."""

from __future__ import annotations

import stat
from pathlib import Path

LSCPU_EPYC = """\
Architecture:                    x86_64
CPU op-mode(s):                  32-bit, 64-bit
Byte Order:                      Little Endian
CPU(s):                          128
On-line CPU(s) list:             0-127
Vendor ID:                       AuthenticAMD
Model name:                      AMD EPYC 7543 32-Core Processor
Thread(s) per core:              2
Core(s) per socket:              32
Socket(s):                       2
Frequency boost:                 enabled
CPU max MHz:                     3737.8899
CPU min MHz:                     1500.0000
L1d cache:                       2 MiB (64 instances)
L1i cache:                       2 MiB (64 instances)
L2 cache:                        32 MiB (64 instances)
L3 cache:                        512 MiB (16 instances)
NUMA node(s):                    8
NUMA node0 CPU(s):               0-7,64-71
Vulnerability Spectre v1:        Mitigation; usercopy/swapgs barriers
"""
LSCPU_GRACE = """\
Architecture:           aarch64
CPU(s):                 72
Vendor ID:              ARM
  Model name:           Neoverse-V2
    Thread(s) per core: 1
    Core(s) per socket: 72
    Socket(s):          1
    CPU max MHz:        -
NUMA:
  NUMA node(s):         1
"""
CPUINFO = "".join(
    f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz\n"
    f"physical id\t: {cpu // 4}\nsiblings\t: 4\ncore id\t\t: {cpu % 2}\ncpu cores\t: 2\nflags\t\t: fpu vme\n\n"
    for cpu in range(8)
)
QUERY_GPU = """\
index, driver_version, name, memory.total [MiB], pcie.link.gen.max, pcie.link.width.max, clocks.max.sm [MHz], power.limit [W], ecc.mode.current, mig.mode.current, persistence_mode, compute_mode, vbios_version
0, 535.104.05, NVIDIA A100-PCIE-40GB, 40960 MiB, 4, 16, 1410 MHz, 250.00 W, Enabled, Disabled, Enabled, Default, 92.00.25.00.08
1, 535.104.05, NVIDIA A100-PCIE-40GB, 40960 MiB, 4, 16, 1410 MHz, 250.00 W, Enabled, Disabled, Enabled, Default, 92.00.25.00.08
"""
QUERY_GPU_NOTEBOOK = """\
index, driver_version, name, memory.total [MiB], pcie.link.gen.max, pcie.link.width.max, clocks.max.sm [MHz], power.limit [W], ecc.mode.current, mig.mode.current, persistence_mode, compute_mode, vbios_version
0, 550.54.15, NVIDIA GeForce RTX 4070 Laptop GPU, 8188 MiB, 4, 8, 3105 MHz, [N/A], [N/A], [N/A], Enabled, Default, 95.06.18.00.2D
"""
QUERY_GPU_SHORT = "index, name, memory.total [MiB], driver_version\n0, Tesla V100-SXM2-16GB, 16160 MiB, 418.87.01\n"
NVIDIA_SMI = """\
Tue Mar  5 10:11:12 2024
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
|   0  NVIDIA A100-PCIE-40GB          On  | 00000000:17:00.0 Off |                    0 |
+-----------------------------------------+----------------------+----------------------+
| Processes:                                                                            |
|    0   N/A  N/A      4242      C   /home/somebody/private/python               400MiB |
+---------------------------------------------------------------------------------------+
"""
TOPOLOGY_2021 = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\tSYS\tSYS\t0-31\t0\n"
    "GPU1\tNV12\t X \tSYS\tSYS\tSYS\t0-31\t0\n"
    "GPU2\tSYS\tSYS\t X \tNV12\tPXB\t32-63\t1\n"
    "GPU3\tSYS\tSYS\tNV12\t X \tPXB\t32-63\t1\n"
    "mlx5_0\tSYS\tSYS\tPXB\tPXB\t X \t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
)
TOPOLOGY_2024 = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\tSYS\t0-51\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tPIX\t52-103\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_1\n"
)
ROCM_SMI_5 = """\
{"card0": {"VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10960896", "Card series": "AMD INSTINCT MI250 (MCM) OAM AC MBA", "Card model": "0x0b0c", "Card vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "D65209"}, "card1": {"VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10960896", "Card series": "AMD INSTINCT MI250 (MCM) OAM AC MBA", "Card model": "0x0b0c", "Card vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "D65209"}, "system": {"Driver version": "6.3.6"}}
"""
ROCM_SMI_6 = """\
WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297811968", "Card Series": "AMD Instinct MI300X OAM", "Card Model": "0x74a1", "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "M3000100", "Subsystem ID": "0x74a1", "Device Rev": "0x00", "Node ID": "2", "GUID": "28851", "GFX Version": "gfx942"}, "system": {"Driver version": "6.12.12", "PID710898": "somebody's process, 1, 200145596416, 2735289460695, 88"}}
"""
ROCM_TOPOLOGY = """\
{"system": {"(Topology) Link type between DRM devices 0 and 1": "XGMI", "(Topology) Hops between DRM devices 0 and 1": "1"}}
"""
OPEN_MPI = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
INTEL_MPI = (
    "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)\nCopyright 2003-2023, Intel.\n"
)
MPICH = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu Apr  7\n"
UCX_NEW = "# Library version: 1.13.1\n# Library path: /usr/lib/libucs.so.0\n# API headers version: 1.13.1\n"
UCX_OLD = "# UCT version=1.10.0 revision a212a09\n# configured with: --prefix=/usr\n"
SHOW_JOB = (
    "JobId=77 JobName=5c1 UserId=somebody(1000) GroupId=g(1000) Account=secret_project QOS=normal JobState=RUNNING"
    " Partition=gpu AllocNode:Sid=login1:4242 NodeList=node[003-004] BatchHost=node003 NumNodes=2 Comment=x"
)
SHOW_TOPOLOGY = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[001-004]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node[005-008]
SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=node[001-008] Switches=leaf[1-2]
"""
MOUNTINFO = """\
21 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
22 21 0:20 / /proc rw - proc proc rw
40 21 0:40 / /scratch rw shared:9 - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/private rw,flock
41 21 0:41 / /home rw - nfs4 fileserver.example:/export/home rw,vers=4.2,addr=10.1.1.1
42 21 0:42 / /dev/shm rw - tmpfs tmpfs rw
43 21 253:1 / /mnt/with\\040blank rw - xfs /dev/mapper/vg-lv rw
44 21 8:1 / /old rw - ext4 /dev/sda1 rw
45 21 259:2 / /hidden rw - ext4 /dev/nvme0n1p2 rw
46 45 0:46 / /hidden rw - overlay overlay rw
"""
LDCONFIG = """\
1422 libs found in cache `/etc/ld.so.cache'
\tlibnccl.so.2 (libc6,x86-64) => {folder}/libnccl.so.2
\tlibncclx.so.1 (libc6,x86-64) => {folder}/libncclx.so.1
\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6
"""
TORCH_VERSION = """\
from typing import Optional
__version__ = '2.3.0a0+ebedce2'
debug = False
cuda: Optional[str] = '12.3'
git_version = 'ebedce2'
hip: Optional[str] = {hip}
"""


def write_files(root: Path, files: dict[str, str]) -> Path:
    """Write files by their paths below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def network_tree(root: Path) -> Path:
    """`/sys` of a node with a fabric, a slow port without link, a bridge, and two adapters."""
    net = "sys/class/net"
    write_files(
        root,
        {
            f"{net}/lo/ifindex": "1\n",
            f"{net}/ib0/ifindex": "2\n", f"{net}/ib0/speed": "200000\n", f"{net}/ib0/mtu": "2044\n", f"{net}/ib0/operstate": "up\n",
            f"{net}/eno1/ifindex": "3\n", f"{net}/eno1/speed": "-1\n", f"{net}/eno1/mtu": "1500\n", f"{net}/eno1/operstate": "down\n",
            f"{net}/eno1/address": "00:11:22:33:44:55\n",
            f"{net}/docker0/ifindex": "4\n", f"{net}/docker0/operstate": "up\n",
            "sys/class/infiniband/mlx5_0/hca_type": "MT4123\n", "sys/class/infiniband/mlx5_0/fw_ver": "20.31.1014\n",
            "sys/class/infiniband/mlx5_0/node_guid": "0c42:a103:0065:aaaa\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "sys/class/infiniband/mlx5_1/hca_type": "MT4119\n", "sys/class/infiniband/mlx5_1/fw_ver": "16.31.1014\n",
            "sys/class/infiniband/mlx5_1/ports/1/rate": "10 Gb/sec (1X QDR)\n",
            "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
            "sys/class/infiniband/mlx5_1/ports/1/link_layer": "Ethernet\n",
        },
    )  # fmt: skip
    for name, driver in (("ib0", "mlx5_core"), ("eno1", "igb")):
        (root / "sys/drivers" / driver).mkdir(parents=True)
        (root / net / name / "device").mkdir()
        (root / net / name / "device" / "driver").symlink_to(root / "sys/drivers" / driver)
    return root


def disk_tree(root: Path) -> Path:
    """`/sys` of block devices: a partition of an NVMe disk, one of a rotating disk, a logical volume."""
    block = root / "sys/devices/block"
    write_files(
        block,
        {
            "nvme0n1/queue/rotational": "0\n", "nvme0n1/nvme0n1p2/partition": "2\n",
            "sda/queue/rotational": "1\n", "sda/sda1/partition": "1\n",
            "sdb/queue/rotational": "0\n", "dm-1/queue/rotational": "0\n",
        },
    )  # fmt: skip
    links = root / "sys/dev/block"
    links.mkdir(parents=True)
    for number, device in (("259:2", "nvme0n1/nvme0n1p2"), ("8:1", "sda/sda1"), ("8:16", "sdb"), ("253:1", "dm-1")):
        (links / number).symlink_to(block / device)
    return root


def stand_in(folder: Path, name: str, script: str) -> Path:
    """An executable of that name; the script is a shell's."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def stand_in_nvidia_smi(folder: Path, *, driver: str = "535.104.05") -> Path:
    """An `nvidia-smi` of two GPUs that checks its arguments by the real one's grammar."""
    answers = folder / "answers"
    new = {"query": QUERY_GPU, "short": QUERY_GPU_SHORT, "frame": NVIDIA_SMI, "topo": TOPOLOGY_2024}
    write_files(answers, {name: text.replace("535.104.05", driver) for name, text in new.items()})
    return stand_in(
        folder,
        "nvidia-smi",
        f'case "$*" in\n  "--query-gpu=index,driver_version,name,"*" --format=csv") cat "{answers}/query" ;;\n'
        f'  "--query-gpu=index,name,memory.total,driver_version --format=csv") cat "{answers}/short" ;;\n  "topo -m") cat "{answers}/topo" ;;\n  "") cat "{answers}/frame" ;;\n'
        "  *) exit 6 ;;\nesac",
    )
