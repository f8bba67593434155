"""The RCP verdict of a scale point: did it need at least as much training as the reference allows?

Ours by the closed form, against the pruned records (what the official check uses) and the full ones, with margin and
p-value; the official checker's answer beside it. Fewer runs than the round requires never pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mlscaling.mlperf import official, rounds
from mlscaling.mlperf.convergence import counts_train_samples
from mlscaling.mlperf.findings import Finding, FindingList, has_errors
from mlscaling.mlperf.official import OfficialVerdict, RcpQuestion
from mlscaling.mlperf.point import check_runs
from mlscaling.mlperf.rcp_records import OFFICIAL, RcpRecord, load_rcps, prune, write_rcps
from mlscaling.mlperf.rcp_statistics import Reference, compare, olympic_mean, reference_at
from mlscaling.mlperf.summary import RunSummary

__all__ = [
    "RcpRecord",
    "Reference",
    "check_point",
    "load_rcps",
    "official_question",
    "prune",
    "reference_at",
    "write_rcps",
]

SCHEMA_VERSION: Final = 1


def check_point(
    summaries: Sequence[RunSummary],
    *,
    benchmark: str,
    ruleset: str,
    global_batch_size: float,
    rcps: str | Path = OFFICIAL,
    num_runs: int | None = None,
    required_runs: int | None = None,
    logs: Sequence[Path] = (),
    answer: OfficialVerdict | None = None,
) -> dict[str, Any]:
    """The content of `rcp.json`.

    Args:
        summaries: of the logs that there are.
        benchmark: MLPerf's name.
        ruleset: round.
        global_batch_size: of the point; 0 where the benchmark has none (minigo).
        rcps: `official`, a file in MLPerf's format, or empty for none.
        num_runs: planned runs, of which those without a log count as infinite. None: the logs are all that was
            planned, and more of them than the round requires are an error.
        required_runs: by the round; mlperf_logging's where not given.
        logs: the files of the runs, for the official checker; without them it is not asked.
        answer: the official checker's, where it has been asked already, as for many points at once.

    Raises:
        ValueError: for an unknown benchmark or a broken RCP file.
    """
    required = required_runs or rounds.required_runs(benchmark)
    values = [run.convergence if run.converged else math.inf for run in summaries]
    values += [math.inf] * ((num_runs or 0) - len(values))
    records = load_rcps(rcps, benchmark=benchmark, ruleset=ruleset) if rcps else ()
    findings = [
        *check_runs(summaries),
        *_of_batch(summaries, global_batch_size),
        *_of_count(len(summaries), num_runs=num_runs, required=required),
        *_of_convergence(values, trimmed=rounds.trimmed_runs(benchmark)),
        *_of_records(records, global_batch_size, required=required),
    ]
    of_round = {"benchmark": benchmark, "ruleset": ruleset}
    if answer is None and logs and rcps:
        (answer,) = official.rcp([official_question(summaries, logs, **of_round, rcps=rcps, required_runs=required)])
    tests = _tests(values, records, **of_round, global_batch_size=global_batch_size, required=required)
    complete, failed = len(values) >= required, has_errors(findings)
    pruned, full = (_judged(test, words=words, complete=complete, failed=failed) for words, test in tests.items())
    return {
        "schema_version": SCHEMA_VERSION,
        **of_round,
        "global_batch_size": int(global_batch_size),
        **_counted(values, trimmed=rounds.trimmed_runs(benchmark)),
        "required_runs": required,
        "convergence_unit": summaries[0].convergence_unit if summaries else "epochs",
        "mlperf_logging": rounds.tool_version(),
        **pruned,
        "records": "pruned",
        "full": full,
        "official": _answer(answer),
        "findings": [finding.to_dict() for finding in findings],
    }


def _counted(values: Sequence[float], *, trimmed: int) -> dict[str, Any]:
    """What a point's runs come to; `values` are their epochs or samples, infinite where they did not converge."""
    return {
        "num_runs": len(values),
        "num_converged": sum(map(math.isfinite, values)),
        "value": _number(olympic_mean(values, trimmed)),
    }


def _tests(
    values: Sequence[float],
    records: Sequence[RcpRecord],
    *,
    benchmark: str,
    ruleset: str,
    global_batch_size: float,
    required: int,
) -> dict[str, dict[str, Any]]:
    """The test against each set of records."""
    trimmed = rounds.trimmed_runs(benchmark)
    # The official checker counts N - 2 runs of a submission, also for unet3d, which trims four at each end.
    num_scored = required - 2 if len(values) >= required else max(1, len(values) - 2 * trimmed)
    return {
        words: compare(
            olympic_mean(values, trimmed),
            chosen,
            benchmark=benchmark,
            ruleset=ruleset,
            global_batch_size=global_batch_size,
            required_runs=required,
            num_scored=num_scored,
        )
        for words, chosen in (("pruned records", prune(records)), ("full records", records))
    }


def _judged(test: dict[str, Any], *, words: str, complete: bool, failed: bool) -> dict[str, Any]:
    """The keys of `rcp.json` that differ between record sets, with the verdict that counts."""
    passed = test["passed"]
    if failed:
        passed = False
    elif not complete and passed:
        passed = None
    numbers = ("mean", "standard_deviation", "limit", "margin", "margin_percent", "p_value")
    return {
        "method": f"{words}: {_method(test, complete=complete)}",
        "status": test["status"],
        "passed": passed,
        **{name: _number(test[name]) for name in numbers},
        "normalization": _number(test["normalization"]) if passed else None,
    }


def _method(test: dict[str, Any], *, complete: bool) -> str:
    """How the limit was found, so that a reader can do it again."""
    if not test["n1"]:
        return str(test["source"])
    scored = f"n2 = {test['n2']}" if complete else f"n2 = {test['n2']} runs scored, fewer than the round requires"
    return (
        f"{test['source']}; one-sided two-sample t-test at 5 % with the reference's standard deviation: limit = mean - "
        f"t(0.95, n1 + n2 - 2) * standard deviation * sqrt(1/n1 + 1/n2), n1 = {test['n1']}, {scored}"
    )


def _of_batch(summaries: Sequence[RunSummary], global_batch_size: float) -> list[Finding]:
    findings = FindingList()
    for run, summary in enumerate(summaries):
        if math.isfinite(summary.global_batch_size) and summary.global_batch_size != global_batch_size:
            message = (
                f"run {run} logs global_batch_size {summary.global_batch_size:g}, the point has {global_batch_size:g}"
            )
            findings.add("global_batch_size_differs", "error", message)
    return list(findings.result())


def _of_count(num_logs: int, *, num_runs: int | None, required: int) -> list[Finding]:
    """MLPerf scores exactly the required runs: fewer are incomplete, more could be a choice of the best."""
    findings = FindingList()
    planned = num_logs if num_runs is None else num_runs
    if planned < required:
        findings.add("incomplete", "warning", f"incomplete, {planned} of {required} runs; it cannot pass")
    if num_runs is not None and num_logs > num_runs:
        findings.add("run_count", "error", f"{num_logs} logs where {num_runs} runs are planned")
    elif planned > required:
        severity = "error" if num_runs is None else "note"
        findings.add("run_count", severity, f"{planned} runs; a submission has exactly {required}")  # type: ignore[arg-type]
    if num_runs is not None and num_logs < num_runs:
        findings.add("runs_missing", "warning", f"{num_runs - num_logs} planned runs have no log and count as infinite")
    return list(findings.result())


def _of_convergence(values: Sequence[float], *, trimmed: int) -> list[Finding]:
    infinite = sum(not math.isfinite(value) for value in values)
    findings = FindingList()
    if infinite > trimmed:
        message = (
            f"{infinite} of {len(values)} runs did not converge or are missing; {trimmed} may be dropped: no score"
        )
        findings.add("insufficient_convergence", "error", message)
    elif infinite:
        message = f"{infinite} of {len(values)} runs did not converge or are missing, dropped as the slowest"
        findings.add("dropped_as_slowest", "note", message)
    return list(findings.result())


def _of_records(records: Sequence[RcpRecord], global_batch_size: float, *, required: int) -> list[Finding]:
    """Records that make the test say less than it seems to; MLPerf publishes some (4.1.0 gpt3 at 3072)."""
    findings = FindingList()
    for record in records:
        if len(record.convergence) < 2 * required:
            message = f"record {record.name} has {len(record.convergence)} runs; a reference needs {2 * required}"
            findings.add("rcp_too_few_runs", "warning", message)
        if record.global_batch_size == global_batch_size and record.standard_deviation > record.mean:
            message = f"record {record.name} varies by more than its mean; any run would pass"
            findings.add("rcp_outlier", "warning", message)
    return list(findings.result())


def official_question(
    summaries: Sequence[RunSummary],
    logs: Sequence[Path],
    *,
    benchmark: str,
    ruleset: str,
    rcps: str | Path = OFFICIAL,
    required_runs: int | None = None,
) -> RcpQuestion:
    """What to ask the official checker about a point."""
    return RcpQuestion(
        logs=logs,
        ruleset=ruleset,
        benchmark=benchmark,
        required_runs=required_runs or rounds.required_runs(benchmark),
        rcps=None if rcps == OFFICIAL else Path(rcps),
        bert_train_samples=any(counts_train_samples(summary) for summary in summaries),
    )


def _answer(answer: OfficialVerdict | None) -> dict[str, Any]:
    if answer is None:
        return {"passed": None, "messages": ["not asked"]}
    return {"passed": answer.passed, "messages": list(answer.messages)}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
