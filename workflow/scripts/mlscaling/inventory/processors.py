"""Processors, memory and what the kernel does with them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlscaling.inventory.commands import Answer

COMMANDS: Final = {"lscpu": ("lscpu",)}
"""What to ask."""
_COUNTS: Final = {
    "Socket(s)": "sockets",
    "Core(s) per socket": "cores_per_socket",
    "Thread(s) per core": "threads_per_core",
    "CPU(s)": "cpus",
    "NUMA node(s)": "numa_nodes",
}
_TEXTS: Final = {
    "Model name": "model",
    "Architecture": "architecture",
    "Hypervisor vendor": "hypervisor",
    "CPU max MHz": "max_mhz",
}
_CACHES: Final = ("L1d", "L1i", "L2", "L3")
SETTINGS: Final = {
    "governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "smt_active": "sys/devices/system/cpu/smt/active",
    "no_turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "transparent_hugepages": "sys/kernel/mm/transparent_hugepage/enabled",
    "hugepages": "proc/sys/vm/nr_hugepages",
    "numa_balancing": "proc/sys/kernel/numa_balancing",
    "swappiness": "proc/sys/vm/swappiness",
    "dirty_ratio": "proc/sys/vm/dirty_ratio",
    "dirty_background_ratio": "proc/sys/vm/dirty_background_ratio",
    "zone_reclaim_mode": "proc/sys/vm/zone_reclaim_mode",
}
"""Settings of the kernel that move times: clocks, hyper-threads, pages and the page cache."""


def processors(replies: Mapping[str, Answer], *, root: Path = Path("/")) -> dict[str, Any]:
    """Model, counts, caches, settings, and the cores that this process may use.

    Args:
        replies: to `COMMANDS`.
        root: where `proc` and `sys` are.
    """
    found = parse_lscpu(replies["lscpu"].text) or parse_cpuinfo(_text(root / "proc/cpuinfo"))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**found, "usable_cores": usable, "settings": settings(root)}


def parse_lscpu(text: str) -> dict[str, Any]:
    """What `lscpu` (util-linux 2.23 and newer) says in the C locale; `cores_per_socket` and so on are whole numbers."""
    found: dict[str, Any] = {}
    caches: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key in _COUNTS and value.isdigit():
            found[_COUNTS[key]] = int(value)
        elif key in _TEXTS and value not in ("", "-"):
            found[_TEXTS[key]] = value
        elif (level := key.removesuffix(" cache")) in _CACHES and value:
            caches[level] = value
    return found | ({"caches": caches} if caches else {})


def parse_cpuinfo(text: str) -> dict[str, Any]:
    """The same as far as `/proc/cpuinfo` of an x86 kernel has it, for images without `lscpu`."""
    blocks = [dict(re.findall(r"^([^\t:]+)\s*: ?(.*)$", block, re.MULTILINE)) for block in text.strip().split("\n\n")]
    first = blocks[0]
    if "model name" not in first:
        return {}
    found: dict[str, Any] = {"model": first["model name"], "cpus": len(blocks)}
    sockets = {block["physical id"] for block in blocks if "physical id" in block}
    if sockets and first.get("cpu cores", "").isdigit() and first.get("siblings", "").isdigit():
        cores = int(first["cpu cores"])
        found |= {
            "sockets": len(sockets), "cores_per_socket": cores, "threads_per_core": int(first["siblings"]) // cores
        }  # fmt: skip
    return found


def memory_mib(root: Path = Path("/")) -> int | None:
    """Memory that the kernel has, MiB; a little less than what is built in."""
    match = re.search(r"^MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) // 1024 if match else None


def settings(root: Path = Path("/")) -> dict[str, str]:
    """Those of `SETTINGS` that can be read; of a choice in brackets, what is chosen."""
    found = {name: _text(root / path).strip() for name, path in SETTINGS.items()}
    return {name: _chosen(text) for name, text in found.items() if text}


def _chosen(text: str) -> str:
    match = re.search(r"\[(\S+)\]", text)
    return match[1] if match else text


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
