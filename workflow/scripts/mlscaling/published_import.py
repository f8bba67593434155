"""One published run in the place of a trained one: its log, copied, and a record of where it comes from."""

from __future__ import annotations

import shutil
from pathlib import Path

from mlscaling.files import write_json, written_beside
from mlscaling.published import import_record
from mlscaling.results_tree import results_of


def import_run(
    log: Path, *, root: Path, submitter: str, system: str, benchmark: str, log_output: Path, record_output: Path
) -> None:
    """Write the log and its record, each beside its place first; the tree is only read.

    Args:
        log: the published `result_{run}.txt`.
        root: checkout of a results repository, or a submitter's folder.
        submitter, system, benchmark: folders in it.

    Raises:
        ValueError: the tree has no such results; says what there is.
    """
    found = [r for r in results_of(root, submitters=[submitter]) if (r.system, r.benchmark) == (system, benchmark)]
    if not found:
        raise ValueError(f"{root}: submitter {submitter} has no results/{system}/{benchmark}")
    with written_beside(log_output) as beside:
        shutil.copyfile(log, beside)
    write_json(import_record(found[0], log, root=root), record_output)
