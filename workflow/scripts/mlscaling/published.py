"""Published results, scored and judged by the same rules as trained runs: one row for each system and benchmark.

Two processes read the logs of a whole submitter in seconds. What cannot be scored says why in its row.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlscaling.mlperf import rounds
from mlscaling.mlperf.checks import check_summary
from mlscaling.mlperf.findings import Finding
from mlscaling.mlperf.official import RcpQuestion
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.rcp import check_point, official_question
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import SystemDescription, check_description, read_description
from mlscaling.results_tree import Results, results_of

if TYPE_CHECKING:
    import pandas as pd

SEPARATOR: Final = " | "
"""Between the findings of a row; their sentences have semicolons."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """The logs of one system and benchmark as read and checked."""

    results: Results
    """Where they lie."""
    benchmark: str
    """MLPerf's name as the logs say it; the folder's where they do not."""
    description: SystemDescription
    """Of the system; empty where there is none."""
    runs: tuple[Mapping[str, Any], ...]
    """For each log the columns of the runs table that a score rests on."""
    rcp: Mapping[str, Any] | None
    """Content of `rcp.json`; None where the benchmark is unknown."""
    findings: tuple[Finding, ...]
    """About the description and the point, and one for each check that logs have errors or warnings of."""
    question: RcpQuestion | None
    """What to ask the official RCP checker; None where there is nothing to ask."""


def survey(
    root: Path,
    ruleset: str,
    *,
    submitters: Sequence[str] | None = None,
    jobs: int = 2,
    official: bool = False,
) -> pd.DataFrame:
    """Systems × benchmarks of a results tree with scores, RCP, compliance, verdicts and findings.

    Columns are those of `survey_rows.COLUMNS`.

    Args:
        root: a checkout of a results repository, or one submitter's folder; only read.
        ruleset: its round, e.g. `1.1.0`.
        submitters: names of folders; all where not given.
        jobs: processes.
        official: ask the official checkers, too; on copies, in parallel.

    Raises:
        ValueError: for an unknown round or submitter, or a folder that is no results tree.
    """
    if ruleset not in rounds.rulesets():
        raise ValueError(f"ruleset {ruleset!r} is unknown; legal: {', '.join(rounds.rulesets())}")
    examined = examine_all(results_of(root, submitters=submitters), ruleset=ruleset, jobs=jobs)
    # Not before: both modules build on this one, and pandas with its threads comes after the processes.
    from mlscaling.published_official import official_columns
    from mlscaling.survey_rows import frame

    answers = official_columns(examined, ruleset=ruleset, jobs=jobs) if official else [{}] * len(examined)
    return frame(examined, answers=answers, root=root.resolve())


def examine_all(found: Sequence[Results], *, ruleset: str, jobs: int) -> list[Examined]:
    """Examine in several processes, the largest first, in the order given."""
    order = sorted(range(len(found)), key=lambda index: -sum(map(_size, found[index].logs)))
    work = partial(examine, ruleset=ruleset)
    if jobs <= 1 or len(found) <= 1:
        return [work(results) for results in found]
    try:
        # Forked: a started interpreter would import the caller's main module, which may be a Snakemake script.
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            done = list(pool.map(work, [found[index] for index in order]))
    except BrokenProcessPool:
        raise ValueError("a process that read the logs was killed, perhaps for lack of memory; try one job") from None
    return [result for _, result in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])]


def examine(results: Results, *, ruleset: str) -> Examined:
    """Read and check the logs and the description of one system and benchmark."""
    description, problems = _description(results)
    summaries = [_summary(log) for log in results.logs]
    benchmark = _common([summary.benchmark for summary in summaries]) or results.benchmark
    expected = {"division": description.division or None, "accelerators": description.num_accelerators}
    checked = [check_summary(summary, ruleset=ruleset, expected=expected) for summary in summaries]
    sizes = [summary.global_batch_size for summary in summaries if math.isfinite(summary.global_batch_size)]
    rcp, question = None, None
    if benchmark in rounds.benchmarks(ruleset) and summaries:
        names: dict[str, Any] = {"benchmark": benchmark, "ruleset": ruleset}
        rcp = check_point(summaries, global_batch_size=sizes[0] if sizes else 0, **names)
        question = official_question(summaries, results.logs, **names) if rcp["status"] != "no_rcps" else None
    point = [Finding.from_dict(finding) for finding in rcp["findings"]] if rcp else []
    of_description = check_description(description, summaries, folder=results.system) if results.description else ()
    return Examined(
        results=results,
        benchmark=benchmark,
        description=description,
        runs=tuple(_run(run, summary, checked[run]) for run, summary in enumerate(summaries)),
        rcp=rcp,
        findings=(*problems, *of_description, *_folder_name(results, benchmark), *point, *_of_logs(checked)),
        question=question,
    )


def import_record(results: Results, log: Path, *, root: Path) -> dict[str, Any]:
    """The run record of a published run, in the place of the one that a training writes.

    Raises:
        OSError: the log or the description cannot be read.
    """
    description = read_description(results.description) if results.description else SystemDescription()
    sha256 = hashlib.sha256(log.read_bytes()).hexdigest()
    return {
        "schema_version": 1,
        "log_sha256": sha256,
        "source": {
            "log": _below(root, log),
            "sha256": sha256,
            "description": results.description.name if results.description else None,
        },
        "attempts": [],
        "description": dict(description.values),
    }


def _below(root: Path, path: Path) -> str:
    """Path relative to the tree, which may be reached through a link."""
    parent = path.parent if path.is_relative_to(root) else path.parent.resolve()
    base = root if path.is_relative_to(root) else root.resolve()
    return (parent / path.name).relative_to(base).as_posix()


def _description(results: Results) -> tuple[SystemDescription, list[Finding]]:
    if results.description is None:
        message = f"there is no systems/{results.system}.json"
        return SystemDescription(), [Finding(check="description_missing", severity="warning", message=message)]
    try:
        return read_description(results.description), []
    except OSError as error:
        message = f"{results.description.name} cannot be read: {error.strerror}"
        return SystemDescription(), [Finding(check="description_unreadable", severity="warning", message=message)]


def _summary(log: Path) -> RunSummary:
    """A log that cannot be read is a run without a result."""
    try:
        return summarize(log)
    except OSError as error:
        message = f"{log.name} cannot be read: {error.strerror}"
        return RunSummary(findings=(Finding(check="unreadable", severity="error", message=message),))


def _run(run: int, summary: RunSummary, findings: Sequence[Finding]) -> dict[str, Any]:
    """Columns as in the runs table; a log without an end is a failed run."""
    errors = [finding.message for finding in findings if finding.severity == "error"]
    return {
        "run": run,
        "status": summary.status if summary.status in ("success", "aborted") else "failed",
        "failure_class": "" if summary.status in ("success", "aborted") else "no run_stop",
        "time_to_train_min": summary.time_to_train_min,
        "convergence": summary.convergence,
        "convergence_unit": summary.convergence_unit,
        "samples_to_converge": summary.samples_to_converge,
        "global_batch_size": summary.global_batch_size,
        "division": summary.division,
        "compliance": "failed" if errors else "passed",
        "finding": errors[0] if errors else "",
    }


def _folder_name(results: Results, benchmark: str) -> Iterator[Finding]:
    if results.logs and benchmark != results.benchmark:
        message = f"the logs say submission_benchmark {benchmark!r}, the folder's name is {results.benchmark!r}"
        yield Finding(check="folder_differs", severity="note", message=message)


def _of_logs(checked: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Errors and warnings of all logs, one for each check with the number of runs that have it."""
    first: dict[str, Finding] = {}
    counts: Counter[str] = Counter()
    for findings in checked:
        serious = {finding.check: finding for finding in reversed(findings) if finding.severity != "note"}
        counts.update(serious.keys())
        first = {**serious, **first}
    for check, finding in first.items():
        num = "all" if counts[check] == len(checked) else f"{counts[check]} of {len(checked)}"
        message = f"{num} logs: {finding.message}"
        yield Finding(check=check, severity=finding.severity, message=message)


def _common(names: Sequence[str]) -> str:
    """The most frequent name that is not empty."""
    counts = Counter(name for name in names if name)
    return counts.most_common(1)[0][0] if counts else ""


def _size(log: Path) -> int:
    with contextlib.suppress(OSError):
        return log.stat().st_size
    return 0
