"""A published MLPerf results tree: which logs and which description belong to which system and benchmark.

The layout is MLPerf's own: `<submitter>/{systems/<system>.json, results/<system>/<benchmark>/result_<run>.txt}`. The
tree is only read. What cannot be read becomes an entry with a reason, never an exception: one submitter's slip must not
hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlscaling.mlperf.system import plain_name, read_description

LAYOUT = "<submitter>/results/<system>/<benchmark>/result_<run>.txt"
LOG_NAME = re.compile(r"result_(\d+)\.txt")
"""The only names that MLPerf's own tools see."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """The logs of one system and benchmark."""

    submitter: str
    """Name of the submitter's folder."""
    system: str
    """Name of the system's folder."""
    benchmark: str
    """Name of the benchmark's folder, as published; empty where the system has none."""
    folder: Path
    """Folder of the logs."""
    logs: tuple[Path, ...] = ()
    """`result_{run}.txt` in the order of the runs."""
    description: Path | None = None
    """The system's description; None where there is none."""
    problem: str = ""
    """Why there is nothing to score, in words; empty where there are logs."""


def results_of(root: Path, *, submitters: Sequence[str] | None = None) -> list[Results]:
    """All systems and benchmarks of a checkout, or of one submitter's folder.

    Args:
        root: the tree.
        submitters: names of folders to read; all where not given.

    Raises:
        ValueError: root is no such tree, or a submitter is not in it; says what was expected and what there is.
    """
    folders = {folder.name: folder for folder in _submitter_folders(root)}
    if unknown := sorted(set(submitters or ()) - folders.keys()):
        raise ValueError(f"{root}: there is no submitter {', '.join(unknown)}; there are {', '.join(folders)}")
    chosen = [folder for name, folder in folders.items() if not submitters or name in submitters]
    return [results for folder in chosen for results in _results_of_submitter(folder)]


def _submitter_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise ValueError(f"{root}: there is no such folder; expected a results tree with {LAYOUT}")
    root = root.resolve()
    if (root / "results").is_dir():
        return [root]
    found = [folder for folder in _entries(root) if (folder / "results").is_dir()]
    if not found:
        held = ", ".join(entry.name for entry in _entries(root)[:5]) or "nothing"
        raise ValueError(f"{root}: is no results tree; expected {LAYOUT} below it, found {held}")
    return found


def _results_of_submitter(folder: Path) -> Iterator[Results]:
    descriptions = _descriptions(folder / "systems")
    for system in _entries(folder / "results"):
        if not system.is_dir():
            if system.is_symlink():
                yield _nothing(folder, system, problem="a link to a place that is not there")
            continue
        description = descriptions.get(system.name) or descriptions.get(plain_name(system.name))
        try:
            benchmarks = [entry for entry in _entries(system) if entry.is_dir() or entry.is_symlink()]
        except OSError as error:
            yield _nothing(folder, system, problem=f"cannot be read: {error.strerror}")
            continue
        if not benchmarks:
            yield _nothing(folder, system, problem="there is no benchmark's folder in it")
        for benchmark in benchmarks:
            yield _results(folder, benchmark, description=description)


def _results(folder: Path, benchmark: Path, *, description: Path | None) -> Results:
    problem, entries = "", []
    try:
        entries = _entries(benchmark)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    named = [(int(match[1]), entry) for entry in entries if (match := LOG_NAME.fullmatch(entry.name))]
    if not named and not problem:
        others = ", ".join(entry.name for entry in entries[:3])
        problem = f"there is no result_<run>.txt in it, only {others}" if others else "the folder is empty"
    return Results(
        submitter=folder.name,
        system=benchmark.parent.name,
        benchmark=benchmark.name,
        folder=benchmark,
        logs=tuple(entry for _, entry in sorted(named)),
        description=description,
        problem=problem,
    )


def _nothing(folder: Path, system: Path, *, problem: str) -> Results:
    return Results(submitter=folder.name, system=system.name, benchmark="", folder=system, problem=problem)


def _descriptions(folder: Path) -> dict[str, Path]:
    """Descriptions by file name; those that are named otherwise than their results also by their `system_name`."""
    files = [entry for entry in _entries(folder) if entry.suffix == ".json"] if folder.is_dir() else []
    found: dict[str, Path] = {}
    for file in files:
        try:
            name = read_description(file).name
        except OSError:
            continue
        if name:
            found.setdefault(plain_name(name), file)
    return found | {plain_name(file.stem): file for file in files} | {file.stem: file for file in files}


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, by name, without hidden entries."""
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
