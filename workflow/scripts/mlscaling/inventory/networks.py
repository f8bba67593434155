"""Network interfaces and InfiniBand adapters, as `/sys` shows them."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def networks(root: Path = Path("/")) -> dict[str, Any]:
    """Interfaces and adapters of this node; virtual interfaces such as bridges only where there is no other."""
    return {"interfaces": interfaces(_indices(), root=root), "infiniband": infiniband(root)}


def _indices() -> dict[str, int]:
    try:
        return {name: index for index, name in socket.if_nameindex()}
    except OSError:
        return {}


def interfaces(indices: Mapping[str, int], *, root: Path = Path("/")) -> list[dict[str, Any]]:
    """Name, driver, speed (Mb/s), MTU and state of every interface but the loopback's.

    Args:
        indices: names of this network namespace's interfaces and the kernel's numbers of them. `/sys` may show another
            namespace, as in a container; an interface of the same name with another number is not ours, so nothing but
            its name is known then.
        root: where `sys` is.
    """
    found = []
    for name, index in sorted(indices.items()):
        folder = root / "sys/class/net" / name
        if name == "lo":
            continue
        ours = _read(folder / "ifindex") == str(index)
        found.append({"name": name, **(_interface(folder) if ours else {})})
    physical = [interface for interface in found if "driver" in interface]
    return physical or found


def _interface(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    driver = folder / "device" / "driver"
    if driver.exists():
        values["driver"] = driver.resolve().name
    elif (folder / "bonding").is_dir():
        values["driver"] = "bonding"
    speed, mtu = _read(folder / "speed"), _read(folder / "mtu")
    if speed.isdigit() and int(speed) > 0:  # -1 or unreadable where there is no link
        values["speed_mbit_per_s"] = int(speed)
    if mtu.isdigit():
        values["mtu"] = int(mtu)
    if state := _read(folder / "operstate"):
        values["state"] = state
    return values


def infiniband(root: Path = Path("/")) -> list[dict[str, Any]]:
    """Host channel adapters with their ports: `4X HDR` and `InfiniBand` or `Ethernet` (RoCE)."""
    return [
        {
            "name": folder.name,
            "type": _read(folder / "hca_type"),
            "firmware": _read(folder / "fw_ver"),
            "ports": [_port(port) for port in _entries(folder / "ports")],
        }
        for folder in _entries(root / "sys/class/infiniband")
    ]


def _port(folder: Path) -> dict[str, str]:
    return {
        "rate": _read(folder / "rate"),
        "state": re.sub(r"^\d+: ", "", _read(folder / "state")),
        "link_layer": _read(folder / "link_layer"),
    }


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""
