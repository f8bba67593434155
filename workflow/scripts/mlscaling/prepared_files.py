"""Which files a prepared dataset has: listed when it is prepared, looked for on every node before a training.

A look costs one `stat` for each file, and of many files only some are looked at. It finds a folder that a node does not
mount, a copy that was not finished or is another one; bytes that differ at the same size it does not find.
"""

from __future__ import annotations

import json
from pathlib import Path

RECORD = "prepared.json"
"""In the data's folder; what the manifest says."""
LIST = "files.tsv"
"""In the data's folder; a line for each file: its size in bytes, a tab, its path in the folder."""
NOT_DATA = (RECORD, LIST, "SHA256SUMS", "request.json")
MOST_LOOKS = 1000


def data_files(folder: Path) -> list[str]:
    """Paths of all prepared files in a folder, sorted."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in names if name not in NOT_DATA]


def write_list(folder: Path) -> None:
    """Write the list; a file without a size, or of another one, is then found."""
    lines = (f"{(folder / name).stat().st_size}\t{name}\n" for name in data_files(folder))
    partial = folder / f"{LIST}.partial"
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(folder / LIST)


def digest_of(folder: Path) -> str:
    """Digest of the files' contents when they were prepared; empty where the folder does not say."""
    try:
        return str(json.loads((folder / RECORD).read_text(encoding="utf-8"))["files_digest"])
    except (OSError, ValueError, KeyError):
        return ""


def wrong_files(folder: Path) -> list[str]:
    """What is wrong in a folder of prepared data, a sentence each; empty if nothing was found.

    Of more than `MOST_LOOKS` files it looks at that many, evenly spread over the list.
    """
    if not folder.is_dir():
        return [f"{folder} is not there"]
    if not digest_of(folder):
        return [f"{folder / RECORD} is not there or not readable"]
    if not (folder / LIST).is_file():
        return []  # prepared before there were lists
    lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
    step = -(-len(lines) // MOST_LOOKS) or 1
    return [wrong for line in lines[::step] if (wrong := _wrong(folder, line))]


def _wrong(folder: Path, line: str) -> str:
    size, _, name = line.partition("\t")
    try:
        found = (folder / name).stat().st_size
    except OSError as error:
        return f"{folder / name}: {error.strerror}"
    return "" if found == int(size) else f"{folder / name} has {found} bytes, {size} were prepared"
