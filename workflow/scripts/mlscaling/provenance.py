"""What ran where, by an allow-list: nothing that is not named here is ever collected."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "mlperf-logging",
    "timm",
    "pytorch-optimizer",
    "h5py",
    "tokenizers",
    "pillow",
)
"""Distributions whose versions can change a measurement."""

ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "SLURM_JOB_ID",
)
"""Environment variables that may be recorded. None of them can hold a secret."""


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


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Allowed variables that are set."""
    present = os.environ if variables is None else variables
    return {name: present[name] for name in ENVIRONMENT if name in present}


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
