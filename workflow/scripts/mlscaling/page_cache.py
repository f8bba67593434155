"""A step before the training: each node drops its page cache, where it may, so that data come from where they lie.

MLPerf's logs say so in `cache_clear`. It is true only if every node did; a node that may not is a note, no failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from mlscaling import jobs
from mlscaling.files import read_json, write_json
from mlscaling.jobs import Job
from mlscaling.supervision import supervise

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
"""Writing 3 to it drops clean pages, directory entries and inodes (kernel, admin-guide/sysctl/vm)."""
_MARK = "mlscaling page cache "
_SAID = re.compile(re.escape(_MARK) + r"(\{.*\})")


def drop(job: Job) -> str:
    """Have every node drop its page cache, if the system asks for it; leaves `page_cache.json` in the folder."""
    if not job.system.drop_page_cache:
        return ""
    output = job.folder / "page_cache.log"
    _, ended_by = supervise(
        jobs.on_nodes(job, "drop-page-cache", inside=False), output=output, progress=output, system=job.system
    )
    text = output.read_text(encoding="utf-8", errors="replace")
    nodes = [json.loads(found) for found in _SAID.findall(text)]
    dropped = len(nodes) == job.spec.nodes and not any(node["not_dropped"] for node in nodes)
    write_json({"dropped": dropped, "nodes": nodes}, job.folder / "page_cache.json")
    return ended_by


def dropped(folder: Path) -> bool:
    """Whether every node of an attempt dropped its page cache."""
    record = folder / "page_cache.json"
    return record.exists() and bool(read_json(record)["dropped"])


def notes(folder: Path) -> tuple[str, ...]:
    """A sentence where nodes of an attempt should have dropped their page cache and did not."""
    record = folder / "page_cache.json"
    if not record.exists() or dropped(folder):
        return ()
    reasons = [f"{node['host']}: {node['not_dropped']}" for node in read_json(record)["nodes"] if node["not_dropped"]]
    return (f"the page cache was not dropped ({'; '.join(reasons) or 'not all nodes answered'})",)


def drop_here(path: Path = DROP_CACHES) -> int:
    """Drop this node's page cache and print one line about it; returns an exit status, 0 in any case."""
    print(f"{_MARK}{json.dumps({'host': socket.gethostname(), 'not_dropped': _why_not(path)})}", flush=True)
    return 0


def _why_not(path: Path) -> str:
    """Why the page cache could not be dropped; empty if it was."""
    os.sync()  # dirty pages are not dropped
    try:
        path.write_text("3\n", encoding="ascii")
    except OSError as error:
        reason = f"{path}: {error.strerror}"
    else:
        return ""
    if shutil.which("sudo") is None:
        return reason
    sudo = ["sudo", "--non-interactive", "sysctl", "--quiet", "--write", "vm.drop_caches=3"]
    try:
        done = subprocess.run(sudo, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return f"{reason}; {' '.join(sudo)} did not end"
    return "" if done.returncode == 0 else f"{reason}; sudo: {done.stderr.strip() or f'status {done.returncode}'}"
