"""MLPerf's submission tree, written by copying; nothing in it is changed.

Layout: MLPerf submission_rules, "Directory structure", Training. The code of an implementation is the submitter's to
bring: its place holds a README that says what belongs there.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlscaling.results_tree import Results
from mlscaling.submission.descriptions import Description
from mlscaling.submission.entries import Entry

NOT_SUBMITTABLE: Final = "NOT_SUBMITTABLE.txt"
"""Lies in a rehearsal's tree with the reasons."""
PARAMETERS: Final = "package_checker_params"
"""Flags for the package checker that a submitter has put beside published logs."""
OF_IMPLEMENTATION: Final = """The code of this implementation belongs here: all that is needed to verify the model, its
initialisation, the data and their order, the optimiser, hyper-parameters, evaluation and its frequency (MLPerf
submission_rules, "Source code requirements for training inspection").
"""
OF_SYSTEM: Final = """How to run it on this system belongs here (MLPerf submission_rules, "Directory structure"):

- `{system}_{implementation}.json`: which implementation runs on which system
- `setup.sh`: one-time configuration
- `init_datasets.sh`: one-time preparation of the data
- `run_and_time.sh`: one run with its result
"""


def write_tree(
    entries: Sequence[Entry],
    folder: Path,
    *,
    descriptions: Mapping[tuple[str, str], Description],
    published: Mapping[tuple[str, str, str], Results],
    reasons: Sequence[str],
) -> None:
    """Write one submitter's tree into a folder that does not exist yet.

    Args:
        entries: of this submitter.
        folder: becomes `<submitter>/`.
        descriptions: (submitter, system folder) → its description.
        published: (submitter, system, benchmark) → where it was published; for what lies beside the logs.
        reasons: against submitting it; they are written into the tree.
    """
    for entry in entries:
        results = folder / "results" / entry.folder
        results.mkdir(parents=True)
        logs = [one.log for one in entry.selection.chosen if one.log is not None]
        for number, log in enumerate(logs):
            shutil.copyfile(log, results / f"result_{number}.txt")
        point = entry.point
        source = published.get((entry.submitter, point.system_folder, point.benchmark_folder))
        if source is not None and (source.folder / PARAMETERS).is_file():
            shutil.copyfile(source.folder / PARAMETERS, results / PARAMETERS)
        _write(
            folder / "systems" / f"{point.system_folder}.json",
            descriptions[entry.submitter, point.system_folder].content,
        )
        _write_readmes(entry, folder / "benchmarks" / point.benchmark_folder)
    if reasons:
        text = "\n".join(["This tree is a rehearsal and cannot be submitted:", *(f"- {reason}" for reason in reasons)])
        _write(folder / NOT_SUBMITTABLE, f"{text}\n".encode())


def _write_readmes(entry: Entry, folder: Path) -> None:
    implementation, system = _implementation(entry), entry.point.system_folder
    text = f"# {entry.point.benchmark_folder}, {implementation}\n\n{OF_IMPLEMENTATION}{_origin(entry)}"
    _write(folder / "implementations" / implementation / "README.md", text.encode())
    stub = OF_SYSTEM.format(system=system, implementation=implementation)
    text = f"# {entry.point.benchmark_folder}, {implementation} on {system}\n\n{stub}"
    _write(folder / system / "README.md", text.encode())


def _implementation(entry: Entry) -> str:
    """Name of the implementation; arbitrary by the rules."""
    return "mlscaling" if entry.point.published is None else "published"


def _origin(entry: Entry) -> str:
    """Where the code is that made the logs."""
    if entry.point.published is not None:
        return "\nThe logs are copies of published ones; their code is in the submitter's published tree.\n"
    commits = sorted({_commit(record) for record in entry.records} - {""})
    return f"\nThe logs were made by commit {', '.join(commits)} of this workflow.\n" if commits else ""


def _commit(record: Mapping[str, Any]) -> str:
    code = record.get("code") or {}
    return f"{code['commit']}{' with changes' * bool(code.get('dirty'))}" if code.get("commit") else ""


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
