"""GPUs and what connects them: NVIDIA's by `nvidia-smi`, AMD's by `rocm-smi`.

Fields of `nvidia-smi` are those of `nvidia-smi --help-query-gpu` since driver 450; an older driver refuses the whole
question for one field that it does not know, so a short one is asked beside it.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from mlscaling.inventory.commands import Answer

_SHORT: Final = "index,name,memory.total,driver_version"
_FIELDS: Final = {
    "name": "name",
    "memory.total": "memory_mib",
    "pcie.link.gen.max": "pcie_generation",
    "pcie.link.width.max": "pcie_width",
    "clocks.max.sm": "max_clock_mhz",
    "power.limit": "power_limit_w",
    "ecc.mode.current": "ecc",
    "mig.mode.current": "mig",
    "persistence_mode": "persistence",
    "compute_mode": "compute_mode",
    "vbios_version": "vbios",
}
"""Field of `nvidia-smi` → ours."""
_NUMBERS: Final = frozenset({"memory_mib", "pcie_generation", "pcie_width", "max_clock_mhz", "power_limit_w"})
_NOTHING: Final = ("", "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]")
COMMANDS: Final = {
    "nvidia-smi": ("nvidia-smi", f"--query-gpu=index,driver_version,{','.join(_FIELDS)}", "--format=csv"),
    "nvidia-smi short": ("nvidia-smi", f"--query-gpu={_SHORT}", "--format=csv"),
    "nvidia-smi header": ("nvidia-smi",),
    "nvidia-smi topo": ("nvidia-smi", "topo", "-m"),
    "rocm-smi": ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json"),
    "rocm-smi topo": ("rocm-smi", "--showtopotype", "--json"),
}
"""What to ask."""


def accelerators(replies: Mapping[str, Answer]) -> dict[str, Any]:
    """Vendor, driver, devices and the links between them; empty where there are none.

    Args:
        replies: to `COMMANDS`.
    """
    driver, devices = parse_nvidia_smi(replies["nvidia-smi"].text)
    if not devices:
        driver, devices = parse_nvidia_smi(replies["nvidia-smi short"].text)
    if devices:
        return {
            "vendor": "NVIDIA",
            "driver": driver,
            "cuda": parse_cuda_version(replies["nvidia-smi header"].text),
            "devices": devices,
            "links": parse_topology(replies["nvidia-smi topo"].text),
        }
    driver, devices = parse_rocm_smi(replies["rocm-smi"].text)
    if devices:
        links = parse_rocm_topology(replies["rocm-smi topo"].text)
        return {"vendor": "AMD", "driver": driver, "devices": devices, "links": links}
    return {}


def parse_nvidia_smi(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Driver and devices from `nvidia-smi --query-gpu=… --format=csv`, whose header has units: `memory.total [MiB]`.

    What a device does not support is left out.
    """
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    if len(rows) < 2 or "name" not in rows[0]:
        return "", []
    header = [name.partition(" ")[0] for name in rows[0]]
    records = [dict(zip(header, row, strict=False)) for row in rows[1:] if len(row) == len(header)]
    devices = [
        {ours: _value(ours, record[name]) for name, ours in _FIELDS.items() if record.get(name, "") not in _NOTHING}
        for record in records
    ]
    return (records[0].get("driver_version", "") if records else ""), devices


def _value(name: str, text: str) -> str | float | int:
    """`81920 MiB` → 81920, `300.00 W` → 300; other texts as they are."""
    match = re.match(r"\d+(\.\d+)?", text) if name in _NUMBERS else None
    if not match:
        return text
    number = float(match[0])
    return int(number) if number.is_integer() else number


def parse_cuda_version(text: str) -> str:
    """Newest CUDA that the driver serves, from the frame that `nvidia-smi` prints; empty where it does not say."""
    match = re.search(r"CUDA Version\s*:\s*([\d.]+)", text)
    return match[1] if match else ""


def parse_topology(text: str) -> dict[str, str]:
    """`GPU0-GPU1` → `NV12` (12 NVLinks), `PIX`, `PXB`, `PHB`, `NODE` or `SYS`, from `nvidia-smi topo -m`.

    Network adapters are in the matrix as `mlx5_0`, or as `NIC0` with a legend behind it, which is resolved.
    """
    lines = [[cell.strip() for cell in line.split("\t")] for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()]
    start = next((number for number, cells in enumerate(lines) if cells[1:2] == ["GPU0"]), None)
    if start is None:
        return {}
    devices = list(itertools.takewhile(lambda cell: cell and "Affinity" not in cell, lines[start][1:]))
    names = dict(re.findall(r"^\s*(NIC\d+): (\S+)\s*$", text, re.MULTILINE))
    links: dict[str, str] = {}
    for row, *cells in lines[start + 1 :]:
        if row not in devices:
            break
        for column, link in zip(devices, cells, strict=False):
            if devices.index(row) < devices.index(column) and link:
                links[f"{names.get(row, row)}-{names.get(column, column)}"] = link
    return links


def parse_rocm_smi(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Driver and devices from `rocm-smi … --json`; its keys changed their case in ROCm 6."""
    content = _json_of(text)
    devices = []
    for name, card in sorted(content.items(), key=lambda item: (len(item[0]), item[0])):
        if not name.startswith("card") or not isinstance(card, dict):
            continue
        lowered = {str(key).lower(): str(value) for key, value in card.items()}
        device: dict[str, Any] = {"name": lowered.get("card series") or lowered.get("card model", "")}
        if (memory := lowered.get("vram total memory (b)", "")).isdigit():
            device["memory_mib"] = int(memory) // 2**20
        devices.append(device)
    return str(_system_of(content).get("Driver version", "")), devices


def parse_rocm_topology(text: str) -> dict[str, str]:
    """`GPU0-GPU1` → `XGMI` or `PCIE`, from `rocm-smi --showtopotype --json`."""
    pattern = re.compile(r"\(Topology\) Link type between DRM devices (\d+) and (\d+)")
    found = ((pattern.fullmatch(key), value) for key, value in _system_of(_json_of(text)).items())
    return {f"GPU{match[1]}-GPU{match[2]}": str(value) for match, value in found if match}


def _system_of(content: dict[str, Any]) -> dict[str, Any]:
    system = content.get("system")
    return system if isinstance(system, dict) else {}


def _json_of(text: str) -> dict[str, Any]:
    """The JSON object in a text that may have warnings before it."""
    try:
        content = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
