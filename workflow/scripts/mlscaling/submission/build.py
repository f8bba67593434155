"""The target `submission`: trees, the official package checker's verdict beside them, or one message why not."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mlscaling.files import write_json, write_text
from mlscaling.mlperf import rounds
from mlscaling.mlperf.convergence import counts_train_samples
from mlscaling.mlperf.official_package import TOOL, FolderVerdict, check_package
from mlscaling.mlperf.system import check_description, read_description
from mlscaling.submission.descriptions import Description, descriptions_of, published_results
from mlscaling.submission.entries import Entry, entries_of, reasons_of
from mlscaling.submission.plan import SubmissionPlan, reasons_against, refusal
from mlscaling.submission.tree import write_tree

SCHEMA_VERSION: Final = 1
CHECK_FILE: Final = "package_check.json"


class NotSubmittableError(ValueError):
    """The study must not be submitted; the message has every reason."""


def build_submission(plan: SubmissionPlan, *, results: Path, output: Path) -> dict[str, Any]:
    """Write `<output>/<submitter>/…` and `<output>/package_check.json`; returns the content of the latter.

    Nothing is left half-written: the trees take their places after the checker has seen copies of them, and what an
    earlier submission left there goes.

    Args:
        plan: what the study would submit.
        results: `results/<study>/`, with logs, records, verdicts and attempts; only read.
        output: folder of the submission, which holds nothing else.

    Raises:
        NotSubmittableError: something forbids it and the study does not ask for a rehearsal.
        ValueError: the results or the published tree are not as they should be; names the file.
    """
    entries = entries_of(plan, results)
    descriptions = descriptions_of(entries, plan, results)
    reasons = [*reasons_against(plan), *reasons_of(entries, plan), *_minimal_descriptions(entries, descriptions)]
    if reasons and not plan.rehearsal:
        raise NotSubmittableError(refusal(reasons, study=plan.study))
    published = published_results(plan)
    submitters: dict[str, Any] = {}
    with _scratch(output) as scratch:
        for submitter in dict.fromkeys(entry.submitter for entry in entries):
            mine = [entry for entry in entries if entry.submitter == submitter]
            against = reasons if any(entry.point.published is None for entry in mine) else []
            write_tree(
                mine, scratch / submitter, descriptions=descriptions, published=published, reasons=against
            )  # fmt: skip
            submitters[submitter] = _checked(mine, scratch / submitter, descriptions=descriptions, ruleset=plan.ruleset)
        for former in [path for path in output.iterdir() if path != scratch]:
            shutil.rmtree(former) if former.is_dir() else former.unlink()
        for submitter in submitters:
            (scratch / submitter).rename(output / submitter)
    content = {
        "schema_version": SCHEMA_VERSION,
        "study": plan.study,
        "tool": TOOL,
        "version": rounds.tool_version(),
        "ruleset": plan.ruleset,
        "submittable": not reasons,
        "reasons": reasons,
        "submitters": submitters,
    }
    write_json(content, output / CHECK_FILE)
    return content


def summary(content: Mapping[str, Any], *, where: Path) -> str:
    """What was built and what the checker says of it, for the terminal."""
    lines = [f"submission of study {content['study']}: {where}"]
    if not content["submittable"]:
        lines.append(f"a rehearsal, NOT submittable: {'; '.join(content['reasons'])}")
    for submitter, said in content["submitters"].items():
        folders = said["results"]
        accepted = sum(folder["passed"] is True for folder in folders)
        words = {True: "passes", False: "finds errors", None: "gives no verdict"}[said["passed"]]
        lines.append(
            f"{submitter}: {TOOL} {content['version']} {words}; it accepts {accepted} of {len(folders)} folders"
        )
        lines += [
            f"  {folder['system']}/{folder['benchmark']}: {'; '.join(folder['errors']) or 'not judged'}"
            + (f" ({'; '.join(folder['later_rules'])})" if folder["later_rules"] else "")
            for folder in folders
            if folder["passed"] is not True
        ]
    return "\n".join(lines)


def _minimal_descriptions(entries: Sequence[Entry], descriptions: Mapping[tuple[str, str], Description]) -> list[str]:
    systems = dict.fromkeys((entry.submitter, entry.point.system_folder) for entry in entries)
    return [
        f"there is no description of the system {system}; its hardware has not been captured"
        for submitter, system in systems
        if not descriptions[submitter, system].complete
    ]


def _checked(
    entries: Sequence[Entry], tree: Path, *, descriptions: Mapping[tuple[str, str], Description], ruleset: str
) -> dict[str, Any]:
    """Ask the checker about a tree, and take what it wrote where the round's policy asks for it."""
    in_samples = any(counts_train_samples(one) for entry in entries for one in entry.summaries)
    verdict = check_package(tree, ruleset=ruleset, bert_train_samples=in_samples)
    said = {(one.system, one.benchmark): one for one in verdict.folders}
    folders = []
    for entry in entries:
        key = (entry.point.system_folder, entry.point.benchmark_folder)
        one = said.get(key)
        if one is not None and one.scaling and rounds.normalizes(ruleset):
            write_text(one.scaling, tree / "results" / entry.folder / "scaling.json")
        description = descriptions[entry.submitter, entry.point.system_folder]
        described = read_description(tree / "systems" / f"{entry.point.system_folder}.json")
        findings = check_description(described, entry.summaries, folder=entry.point.system_folder)
        source = {"source": description.source, "findings": [found.to_dict() for found in findings]}
        folders.append(_folder(entry, one, ruleset=ruleset) | {"description": source})
    return {
        "passed": verdict.passed,
        "messages": list(verdict.messages),
        "results": folders,
        "files": _hashes(tree),
    }


def _hashes(tree: Path) -> dict[str, str]:
    """Path → SHA-256 of every file that the verdict is about."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    return {path.relative_to(tree).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _folder(entry: Entry, said: FolderVerdict | None, *, ruleset: str) -> dict[str, Any]:
    errors, details = (list(said.errors), list(said.details)) if said else ([], [])
    reasons = {reason for text in [*errors, *details] for reason in rounds.later_rules(text, ruleset)}
    return {
        "system": entry.point.system_folder,
        "benchmark": entry.point.benchmark_folder,
        "point": entry.point.path,
        # No verdict on what it did not reach before it crashed, or does not know as a benchmark of the round.
        "passed": not errors if said is not None and said.finished else None,
        "errors": errors,
        "details": details,
        "later_rules": sorted(reasons) if errors else [],
        "scaling": _scaling(said, ruleset=ruleset),
        "selection": entry.selection.to_dict(),
    }


def _scaling(said: FolderVerdict | None, *, ruleset: str) -> dict[str, Any] | None:
    """The factor that the checker wrote, and whether `scaling.json` is in the tree."""
    if said is None or said.scaling_factor is None:
        return None
    kept = rounds.normalizes(ruleset)
    words = "" if kept else "not kept: scores are scaled since round 2.1 (mlcommons/training_policies #503)"
    return {"factor": said.scaling_factor, "kept": kept, "reason": words}


@contextmanager
def _scratch(output: Path) -> Iterator[Path]:
    """A folder beside the final places that is gone afterwards."""
    output.mkdir(parents=True, exist_ok=True)
    scratch = output / f".building.{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
