"""A step before the training: each node copies the prepared data to its own storage, and verifies what it has there.

The manifest holds one digest of all prepared files, which is that of their SHA256SUMS, so every file that is read or
copied is checked against the manifest. A copy that is there already is verified, and only what is missing or damaged is
copied. A lock keeps two jobs on a node from one copy; a new copy gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mlscaling import jobs
from mlscaling.failures import classify
from mlscaling.files import read_json, write_json, written_beside
from mlscaling.jobs import Job
from mlscaling.supervision import supervise

CHECKSUMS = "SHA256SUMS"
_CHUNK_BYTES = 1 << 22
_MARK = "mlscaling staging "
_SAID = re.compile(re.escape(_MARK) + r"(\{.*\})")


class StagingError(Exception):
    """A node has no whole copy; whose fault it is, `data` or `node`, and the file."""

    def __init__(self, failure_class: str, message: str) -> None:
        self.failure_class = failure_class
        super().__init__(message)


# --- the step ---------------------------------------------------------------------------------------------------------


def staged_folder(root: str, *, data_dir: Path, manifest: Path | None) -> Path:
    """Where ranks read: below `root`, under a name that other data do not have; without a root, the data themselves.

    Raises:
        ValueError: there is no manifest to verify a copy with.
    """
    if not root:
        return data_dir.resolve()
    if manifest is None:
        raise ValueError("stage_data_to needs the manifest of the data")
    return Path(root) / f"{data_dir.name}-{read_json(manifest)['files_digest'][:16]}"


def stage(job: Job) -> str:
    """Copy the data to every node, if the system asks for it; leaves `stage.log` and `stage.json` in the folder."""
    if not job.system.stage_data_to:
        return ""
    assert job.manifest is not None  # else the folder would have had no name
    output = job.folder / "stage.log"
    digest = read_json(job.manifest)["files_digest"]
    paths = [f"--source={job.data_dir.resolve()}", f"--target={job.spec.data_dir}", f"--files-digest={digest}"]
    started = time.monotonic()
    status, ended_by = supervise(
        jobs.on_nodes(job, "stage", *paths, inside=False), output=output, progress=output, system=job.system
    )  # fmt: skip
    text = output.read_text(encoding="utf-8", errors="replace")
    nodes = [json.loads(found) for found in _SAID.findall(text)]
    write_json({"seconds": time.monotonic() - started, "nodes": nodes}, job.folder / "stage.json")
    if ended_by:
        return f"{ended_by} (while the data were staged)"
    failed = [node for node in nodes if "failure_class" in node]
    if failed:
        # Damaged data fail on every node, a damaged disk on one.
        worst = next((node for node in failed if node["failure_class"] == "data"), failed[0])
        return f"{worst['failure_class']}: {'; '.join(node['message'] for node in failed)}"
    if status or len(nodes) < job.spec.nodes:
        failure = classify(text.splitlines(), otherwise=f"staging the data ended with status {status}")
        return f"{failure.failure_class}: {failure.message}"
    return ""


def seconds(folder: Path) -> float | None:
    """Seconds that staging took on all nodes together, from the attempt's folder; None where nothing was staged."""
    record = folder / "stage.json"
    return float(read_json(record)["seconds"]) if record.exists() else None


# --- on a node --------------------------------------------------------------------------------------------------------


def stage_here(source: Path, target: Path, *, files_digest: str) -> int:
    """Have a verified copy on this node; prints one line about it, and returns an exit status."""
    host, started = socket.gethostname(), time.monotonic()
    said: dict[str, Any] = {"host": host}
    try:
        said |= have_copy(source, target, files_digest=files_digest) | {"seconds": time.monotonic() - started}
    except StagingError as error:
        said |= {"failure_class": error.failure_class, "message": f"{host}: {error}"}
    print(f"{_MARK}{json.dumps(said)}", flush=True)
    return 1 if "failure_class" in said else 0


def have_copy(source: Path, target: Path, *, files_digest: str) -> dict[str, int]:
    """Make `target` a verified copy of `source`; returns how many files there are, and how many had to be copied.

    Raises:
        StagingError: a file cannot be read or written, or is not the one of the manifest; names it.
    """
    expected = _expected(source, files_digest=files_digest)
    with _blaming("node", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = (target.parent / f".{target.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = target if target.is_dir() else _continued(target.with_name(f"{target.name}.partial"))
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        with ThreadPoolExecutor(max_workers=workers) as pool:
            copied = sum(pool.map(lambda name: _have_file(name, expected[name], source, folder), expected))
        # Last, since the format's own lists stand for a folder that is whole.
        for name in sorted(path.name for path in source.iterdir() if path.is_file() and path.name not in expected):
            _copy(source / name, folder / name)
        with _blaming("node", target):
            if folder != target:
                folder.replace(target)
    return {"files": len(expected), "copied": copied}


def _continued(partial: Path) -> Path:
    """A copy that was interrupted, without the file that was being written then."""
    with _blaming("node", partial):
        for stray in partial.rglob(".*.tmp"):
            stray.unlink()
    return partial


def _expected(source: Path, *, files_digest: str) -> Mapping[str, str]:
    """Prepared file → its SHA-256, from the list that the manifest vouches for."""
    path = source / CHECKSUMS
    again = "prepare the dataset again: `snakemake data --forcerun prepare_dataset`"
    with _blaming("data", path):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != files_digest:
        raise StagingError("data", f"{path} is not the list of the manifest's files; {again}")
    lines = (line.partition("  ") for line in content.decode().splitlines())
    return {name: checksum for checksum, _, name in lines}


def _have_file(name: str, checksum: str, source: Path, folder: Path) -> bool:
    """Whether the file had to be copied."""
    if (folder / name).is_file() and _sha256(folder / name, blame="node") == checksum:
        return False
    _copy(source / name, folder / name)
    if _sha256(folder / name, blame="node") == checksum:
        return True
    if _sha256(source / name, blame="data") != checksum:
        raise StagingError("data", f"{source / name} has another checksum than in the manifest")
    raise StagingError("node", f"{folder / name} has another checksum than what was written there")


def _copy(source: Path, target: Path) -> None:
    with _blaming("data", source):
        reader = source.open("rb")
    with reader, _blaming("node", target), written_beside(target) as beside, beside.open("wb") as writer:
        while chunk := _read(reader, source):
            writer.write(chunk)
        writer.flush()
        os.fdatasync(writer.fileno())
        if hasattr(os, "posix_fadvise"):  # so that it is verified on the disk, not in memory
            os.posix_fadvise(writer.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _sha256(path: Path, *, blame: str) -> str:
    value = hashlib.sha256()
    with _blaming(blame, path), path.open("rb") as reader:
        while chunk := reader.read(_CHUNK_BYTES):
            value.update(chunk)
    return value.hexdigest()


def _read(reader: Any, path: Path) -> bytes:
    with _blaming("data", path):
        chunk: bytes = reader.read(_CHUNK_BYTES)
    return chunk


@contextlib.contextmanager
def _blaming(failure_class: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StagingError(failure_class, f"{path}: {error.strerror or error}") from error
