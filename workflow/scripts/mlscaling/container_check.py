"""Step before a training in a container: every node has the image that was prepared, and what it mounts."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlscaling import images, jobs
from mlscaling.files import write_json
from mlscaling.jobs import Job

EVIDENCE = "container.json"
LIMIT_S = 3600
"""Longest time the check may take, seconds; an image of tens of GB is read whole on every node."""
_SAYS = "mlscaling container: "


def run(job: Job) -> str:
    """Ask every node; returns nothing where all is well, else the failure's class and what is wrong on which node."""
    if job.system.container == "none" or job.spec.command.get("start") == "once":
        return ""
    expected = str(job.image.get("digest", ""))
    request = {
        "runtime": job.system.container,
        "image": job.image_name,
        "executable": list(job.system.container_command),
        "mounts": [f"{mount.source}:{mount.target}" for mount in jobs.mounts_of(job)],
    }
    command = jobs.on_nodes(job, "look", f"--container={json.dumps(request)}", inside=False)
    with (job.folder / "container.log").open("w", encoding="utf-8") as output:
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"timeout: the container's image was not checked on every node within {LIMIT_S} s"
    with (job.folder / "container.log").open(encoding="utf-8", errors="replace") as lines:
        found = found_by_nodes(lines)
    if len(found) < (1 if job.system.launcher == "local" else job.spec.nodes):
        return f"node: the container was checked on {len(found)} of {job.spec.nodes} nodes; see {output.name}"
    write_json({**request, "expected": expected, "nodes": found}, job.folder / EVIDENCE)
    problems = images.problems_of_nodes(found, image=job.image_name, expected=expected)
    return f"config: {'; '.join(problems)}" if problems else ""


def look(request: dict[str, Any]) -> int:
    """Say what this node has; the counterpart of `run`, one process on each node."""
    found = images.found_on_node(
        request["runtime"], request["image"], executable=request["executable"], mounts=request["mounts"]
    )
    print(_SAYS + json.dumps({"node": socket.gethostname(), **found}), flush=True)
    return 0


def found_by_nodes(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Node → what it has, from the labelled output of all nodes."""
    said = (json.loads(line.partition(_SAYS)[2]) for line in lines if _SAYS in line)
    return {has.pop("node"): has for has in said}


def evidence(folder: Path) -> dict[str, Any]:
    """What an attempt's nodes had, for the run record; empty without a container."""
    path = folder / EVIDENCE
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found
