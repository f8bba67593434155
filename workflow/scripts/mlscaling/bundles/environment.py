"""With what a bundle was made: exact package versions, the lock file, the code's commit and its uncommitted changes."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from mlscaling import provenance

MAKERS: Final = ("python", "numpy", "pandas", "scipy", "matplotlib", "seaborn", "mlperf-logging", "rocrate")
"""Packages whose versions may change a table, a figure, an official answer or the metadata."""
_LOCKS: Final = ("constraints.txt", "workflow.txt", "train.txt")


@cache
def packages() -> dict[str, str]:
    """Every installed distribution and Python itself, by normalised name."""
    found = {}
    for distribution in importlib.metadata.distributions():
        about = distribution.metadata
        if about["Name"]:
            found[re.sub(r"[-_.]+", "-", about["Name"]).lower()] = str(about["Version"])
    return {"python": platform.python_version(), **dict(sorted(found.items()))}


def machine() -> str:
    """Architecture and system: floating point may differ in the last digit between them."""
    return f"{platform.system()} {platform.machine()}"


def makers(versions: Mapping[str, Any]) -> dict[str, str]:
    """Of all packages, those that make what a bundle holds."""
    return {name: str(versions[name]) for name in MAKERS if name in versions}


def makers_here() -> dict[str, str]:
    """The same of this process, and the machine."""
    found = {"python": platform.python_version(), "machine": machine()}
    for name in MAKERS[1:]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def files_of(checkout: Path) -> dict[str, bytes]:
    """The files below `environment/` by their names in a bundle."""
    code = {**provenance.commit(checkout), "machine": machine()}
    files = {
        "environment/packages.json": _json(packages()),
        "environment/code.json": _json(code),
        "environment/changes.diff": changes(checkout) if code["dirty"] else b"",
    }
    files |= {f"environment/{name}": (checkout / "envs" / name).read_bytes() for name in _LOCKS}
    return {name: content for name, content in files.items() if content}


def changes(checkout: Path) -> bytes:
    """Uncommitted changes of files that git knows, as `git apply` takes them; empty outside of git."""
    command = ["git", "-C", str(checkout), "-c", "core.quotepath=on", "diff", "--no-color", "--no-ext-diff", "HEAD"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return done.stdout if done.returncode == 0 else b""


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
