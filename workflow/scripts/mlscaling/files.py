"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Path to write to; it takes the place of `path` when the block ends, and is removed if the block fails."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(text: str, path: str | Path) -> None:
    """Write UTF-8 text."""
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(value: Any, path: str | Path) -> None:
    """Write JSON for machines and people; NaN and infinities, which other readers refuse, are an error."""
    write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", path)


def read_json(path: str | Path) -> Any:
    """Value of a JSON file.

    Raises:
        ValueError: it is no JSON; names the file.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
