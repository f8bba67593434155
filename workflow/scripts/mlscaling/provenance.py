"""What ran where, by an allow-list: nothing that is not named here is ever collected."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch",
    "torchvision",
    "torchaudio",
    "numpy",
    "mlperf-logging",
    "timm",
    "pytorch-optimizer",
    "h5py",
    "tokenizers",
    "pycocotools",
    "soundfile",
    "pillow",
)
"""Distributions whose versions can change a measurement."""

ENVIRONMENT = (
    # threads and memory
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_SCHEDULE", "GOMP_CPU_AFFINITY"),
    *("MKL_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME", "OPENBLAS_NUM_THREADS", "ONEDNN_MAX_CPU_ISA"),
    *("MALLOC_ARENA_MAX", "MALLOC_CONF"),
    # accelerators
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG"),
    *("NVIDIA_TF32_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "HSA_FORCE_FINE_GRAIN_PCIE", "RCCL_MSCCL_ENABLE"),
    # NCCL
    *("NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    *("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_CROSS_NIC", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_ENABLE"),
    *("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_PXN_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN"),
    *("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_DMABUF_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_LAUNCH_MODE"),
    *("NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_GID_INDEX", "NCCL_IB_SL"),
    *("NCCL_IB_TC", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_PCI_RELAXED_ORDERING"),
    *("NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_CUDA_SUPPORT", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"),
    *("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_TUNER_PLUGIN", "NCCL_MNNVL_ENABLE", "NCCL_DEBUG"),
    *("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_AVOID_RECORD_STREAMS"),
    *("SHARP_COLL_ENABLE_SAT", "SHARP_COLL_LOG_LEVEL"),
    # gloo, UCX, MPI, libfabric
    *("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH"),
    *("UCX_MEMTYPE_CACHE", "UCX_IB_GPU_DIRECT_RDMA", "UCX_IB_SL", "UCX_IB_TRAFFIC_CLASS", "UCX_IB_GID_INDEX"),
    *("OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"),
    *("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"),
    # Slurm
    "SLURM_JOB_ID",
)
"""Environment variables that may be recorded. Names, never prefixes: a prefix would let in what somebody adds to it."""
PLACES = ("SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Those of them that say where a run was, not how it ran; runs are not compared by them."""
WITHHELD = "(withheld)"
"""Stands for a value that looks like a secret, whatever its name."""
_SECRET_NAME = re.compile(
    r"TOKENS?(_|$)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|COOKIE|AUTH(?!OR)|API_?KEY|ACCESS_?KEY|(^|_)KEYS?$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"-----BEGIN |://[^/\s:@]+:[^/\s@]+@|\beyJ[\w-]{8,}\.|\bA(KI|SI)A[0-9A-Z]{12,}"
    r"|\b(gh[a-z]_|github_pat_|glpat-|hf_|sk-|xox[a-z]-|dckr_pat_|nvapi-)[\w-]{8,}"
    # A word that no setting is: 32 or more characters of all three kinds.
    r"|(?<![\w+/=-])(?=[\w+=-]*[a-z])(?=[\w+=-]*[A-Z])(?=[\w+=-]*[0-9])[\w+=-]{32,}(?![\w+/=-])"
)


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that matter; a package that is not installed is left out."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def commit(folder: Path) -> dict[str, str | bool | None]:
    """Commit of a working tree and whether it differs from it; `None` outside of git."""
    try:
        revision = _git(["rev-parse", "HEAD"], folder=folder)
        dirty = bool(_git(["status", "--porcelain", "--untracked-files=no"], folder=folder))
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": revision, "dirty": dirty}


def _git(arguments: list[str], *, folder: Path) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def origin_of_runs(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Who made these runs, when and where, in the words that MLPerf's RCP files use.

    Args:
        records: run records, `run_{run}.json`.
    """
    days = sorted(time.strftime("%Y-%m-%d", time.gmtime(a["started"])) for r in records for a in r["attempts"])
    revisions = sorted({str(record["code"]["commit"])[:12] for record in records})
    hosts = sorted({f"{record['host']['processor']}, {record['host']['cores']} cores" for record in records})
    versions = sorted({f"torch {record['packages'].get('torch', 'unknown')}" for record in records})
    return {
        "creator": f"this workflow's reference runs, commit {', '.join(revisions)}",
        "when": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        "platform": "; ".join([*hosts, *versions]),
    }


def environment(
    variables: Mapping[str, str] | None = None, *, names: Sequence[str] = ENVIRONMENT
) -> dict[str, str]:  # fmt: skip
    """Allowed variables that are set, without values that look like secrets.

    Args:
        variables: default, this process's.
        names: a part of the allow-list, or another one.
    """
    present = os.environ if variables is None else variables
    return without_secrets({name: present[name] for name in names if name in present})


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The same with the values withheld that are secrets by their name or their look.

    For what a person wrote into a configuration file: it is recorded by whatever name it has.
    """
    return {
        name: WITHHELD if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value) else value
        for name, value in settings.items()
    }


def command_without_secrets(command: Sequence[str]) -> list[str]:
    """A command as it may be kept: of words `NAME=value`, the values of secrets are withheld."""
    shown = []
    for word in command:
        name, equals, value = word.partition("=")
        shown.append(f"{name}={without_secrets({name: value})[name]}" if equals and name.isidentifier() else word)
    return shown


def host() -> dict[str, str | int | None]:
    """This host: name, kernel, processor, cores that may be used, memory (MiB)."""
    return {
        "hostname": platform.node(),
        "kernel": f"{platform.system()} {platform.release()}",
        "processor": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": _memory_mib(),
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_mib() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return None


def ancestors(count: int) -> list[tuple[int, str]]:
    """Processes above this one, nearest first, as (pid, start time); empty where there is no `/proc`."""
    found: list[tuple[int, str]] = []
    pid = os.getppid()
    while len(found) < count and pid > 1 and (stat := _stat(pid)):
        found.append((pid, stat[START_TIME]))
        pid = int(stat[PARENT])
    return found


def all_alive(processes: Sequence[tuple[int, str]]) -> bool:
    """Whether these very processes still run; a pid alone may have been given to another."""
    return all((stat := _stat(pid)) and stat[START_TIME] == start and stat[0] != "Z" for pid, start in processes)


PARENT, START_TIME = 1, 19
"""Positions in `/proc/<pid>/stat` behind the process's name (proc(5): fields 4 and 22)."""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
