"""The file system that the data lie on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

_NETWORK: Final = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|wekafs|panfs|orangefs|glusterfs|afs|9p|virtiofs")
_MEMORY: Final = ("tmpfs", "ramfs")


def storage(folder: Path, *, root: Path = Path("/")) -> dict[str, Any]:
    """Type, medium and size (GiB) of the file system that a folder lies on; servers and paths are not taken."""
    try:
        mounts = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        size = os.statvfs(folder)
    except OSError:
        return {}
    kind, device = parse_mountinfo(mounts, folder=folder.resolve())
    found: dict[str, Any] = {"file_system": kind, "capacity_gib": round(size.f_frsize * size.f_blocks / 2**30, 1)}
    if medium := medium_of(kind, device, root=root):
        found["medium"] = medium
    return found


def parse_mountinfo(text: str, *, folder: Path) -> tuple[str, str]:
    """Type of the file system and `major:minor` of the device that hold a folder, by `/proc/self/mountinfo` (proc(5)).

    Of several mounts on one place the last counts, which hides the others.
    """
    best, found = -1, ("unknown", "")
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not behind:
            continue
        place = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        if (folder == place or place in folder.parents) and len(place.parts) >= best:
            best, found = len(place.parts), (behind.split()[0], fields[2])
    return found


def medium_of(kind: str, device: str, *, root: Path = Path("/")) -> str:
    """`network`, `memory`, `NVMe`, `SSD` or `disk`; empty where it is not known, as for virtual disks."""
    if _NETWORK.search(kind):
        return "network"
    if kind in _MEMORY:
        return "memory"
    block = (root / "sys/dev/block" / device).resolve() if device else None
    if block is None or not block.exists():
        return ""
    disk = block.parent if (block / "partition").exists() else block
    if disk.name.startswith("nvme"):
        return "NVMe"
    if disk.name.startswith(("vd", "xvd", "dm-", "md", "loop")):
        return ""
    try:
        rotational = (disk / "queue/rotational").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return {"0": "SSD", "1": "disk"}.get(rotational, "")
