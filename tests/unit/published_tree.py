"""A small published results tree of our own (tests only)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mllog_samples import edited, log_bytes, log_lines, with_key

DESCRIPTION: dict[str, Any] = {
    "submitter": "someone",
    "division": "open",
    "status": "available",
    "system_name": "box",
    "number_of_nodes": "1",
    "accelerators_per_node": "2",
    "accelerator_model_name": "GPU9-80GB",
    "accelerator_memory_capacity": "80 GB",
    "framework": "PyTorch",
    "other_software_stack": [{"nccl": "2.1"}],
}


def sampled(parts: Sequence[Any], *, start: int = 0, every: int) -> Sequence[Any]:
    """Parts of a published tree for a slow comparison: all, or a sample with SAMPLE_OF_TREE=1 in the environment."""
    return parts[start::every] if os.environ.get("SAMPLE_OF_TREE") == "1" else parts


def content(*, seed: int = 1, status: str = "success", batch: int = 64, **values: Any) -> bytes:
    return log_bytes(log_lines(seed=seed, status=status, global_batch_size=batch, **values))


def add_results(
    root: Path, logs: Sequence[bytes], *, system: str = "box", benchmark: str = "resnet", submitter: str = "someone"
) -> Path:
    """`result_0.txt`, … with this content; returns their folder."""
    folder = root / submitter / "results" / system / benchmark
    folder.mkdir(parents=True)
    for run, text in enumerate(logs):
        (folder / f"result_{run}.txt").write_bytes(text)
    return folder


def add_description(root: Path, *, system: str = "box", submitter: str = "someone", **changes: Any) -> Path:
    path = root / submitter / "systems" / f"{system}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(DESCRIPTION | {"system_name": system} | changes))
    return path


def runs(count: int, **values: Any) -> list[bytes]:
    """Logs that differ in their seed and by a second per run."""
    return [content(seed=run + 1, minutes=10 + run / 60, **values) for run in range(count)]


def with_batch(text: bytes, size: int) -> bytes:
    lines = text.decode().splitlines()
    return log_bytes(with_key(lines, "global_batch_size", lambda line: [edited(line, value=size)]))


def state(folder: Path) -> dict[str, str]:
    """Every file's hash: what must be the same afterwards."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
