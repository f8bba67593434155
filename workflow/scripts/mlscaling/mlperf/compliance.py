"""Our verdict on one log, and the official checker's beside it, with the reason where they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlscaling.mlperf import official, rounds
from mlscaling.mlperf.checks import EXPECTABLE, check_summary
from mlscaling.mlperf.findings import Finding, has_errors
from mlscaling.mlperf.official import OfficialVerdict
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.point import check_identical, check_runs, check_seeds
from mlscaling.mlperf.rounds import Target
from mlscaling.mlperf.summary import RunSummary

__all__ = [
    "EXPECTABLE",
    "Target",
    "check_compliance",
    "check_compliances",
    "check_identical",
    "check_runs",
    "check_seeds",
    "check_summary",
    "verdict",
]

SCHEMA_VERSION: Final = 1


def check_compliance(
    log: Path,
    *,
    ruleset: str,
    expected: Mapping[str, Any] | None = None,
    target: Target | None = None,
    config: Path | None = None,
    with_official: bool = True,
    published_sha256: str | None = None,
) -> dict[str, Any]:
    """The content of `compliance_{run}.json`: our verdict, the official one, and why they differ.

    `config` is a rules file for the official checker instead of the round's own; `published_sha256` is what the run's
    record says of the log, None where there is no record.
    """
    answer = official.compliance([log], ruleset=ruleset, config=config)[0] if with_official else None
    return verdict(
        log, ruleset=ruleset, expected=expected, target=target, answer=answer, published_sha256=published_sha256
    )


def check_compliances(logs: Sequence[Path], *, ruleset: str, with_official: bool = True) -> list[dict[str, Any]]:
    """The same for many published logs at once, with one process for the official checker."""
    answers = official.compliance(logs, ruleset=ruleset) if with_official else [None] * len(logs)
    return [verdict(log, ruleset=ruleset, answer=answer) for log, answer in zip(logs, answers, strict=True)]


def verdict(
    log: Path,
    *,
    ruleset: str,
    answer: OfficialVerdict | None,
    expected: Mapping[str, Any] | None = None,
    target: Target | None = None,
    published_sha256: str | None = None,
) -> dict[str, Any]:
    """Join our verdict on a log with the official `answer`, None where it was not asked."""
    summary = summarize(log)
    findings = check_summary(summary, ruleset=ruleset, expected=expected, target=target)
    if published_sha256 is not None and published_sha256 != summary.sha256:
        message = f"the log was changed: its sha256 is {summary.sha256[:12]}…, its record says {published_sha256[:12]}…"
        findings = (*findings, Finding(check="log_changed", severity="error", message=message))
    return {
        "schema_version": SCHEMA_VERSION,
        "log": log.name,
        "sha256": summary.sha256,
        "benchmark": summary.benchmark,
        "ruleset": ruleset,
        "division": summary.division,
        "passed": not has_errors(findings),
        "findings": [finding.to_dict() for finding in findings],
        "official": answer.to_dict() if answer else None,
        "agreement": _agreement(findings, answer, summary=summary, ruleset=ruleset),
        "summary": summary.to_dict(),
    }


def _agreement(
    findings: Sequence[Finding], answer: OfficialVerdict | None, *, summary: RunSummary, ruleset: str
) -> str:
    """`agree`, or why our verdict and the official one differ."""
    passed = not has_errors(findings)
    if answer is None:
        return "the official checker was not asked"
    if answer.passed == passed:
        return "agree"
    errors = [finding for finding in findings if finding.severity == "error"]
    if answer.passed is None:
        return (
            f"differ: the official checker gives no verdict, it {answer.messages[0] if answer.messages else 'crashed'}"
        )
    if answer.passed:
        checks = ", ".join(dict.fromkeys(finding.check for finding in errors))
        return f"differ: the official checker passes; it does not look at {checks}"
    problems = [message for message in answer.messages if not message.startswith("warning: ")]
    reasons = dict.fromkeys(reason for message in problems for reason in _reasons(message, summary, ruleset))
    return f"differ: published; fails the current checker because {'; '.join(reasons)}"


def _reasons(message: str, summary: RunSummary, ruleset: str) -> list[str]:
    """Why an official complaint is none of ours."""
    later = rounds.later_rules(message, ruleset)
    if later:
        return later
    if summary.status == "aborted" and re.search("eval_(accuracy|error)", message):
        return ["no evaluation reaches the target; the log says so (aborted) and scoring counts it as infinite"]
    return [message[:120]]
