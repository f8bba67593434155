"""The official checkers of mlperf_logging, each behind one function, in its own process and on copies.

They print, exit, write `scaling.json` beside the logs, keep global state and crash on damaged logs; none of this
reaches the caller or the tree that is read. An exit code is never trusted: the verdict is what the API returns, and a
crash is a verdict `None` with the reason.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from mlscaling.mlperf import rounds

TIMEOUT_S: Final = 120
"""Longest time for one call; the slowest measured, a compliance check of 440 logs, takes 25 s."""
_LONGEST_MESSAGE: Final = 300
_DRIVER: Final = Path(__file__).with_name("official_driver.py")
Records = Literal["pruned", "full"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OfficialVerdict:
    """What an official checker said."""

    tool: str
    """Name, e.g. `mlperf_logging compliance_checker`."""
    version: str
    """Version of mlperf_logging."""
    ruleset: str
    """Round whose rules it applied."""
    passed: bool | None
    """Its verdict; None where it crashed or did not answer."""
    messages: tuple[str, ...]
    """Its words, shortened to one line each."""

    def to_dict(self) -> dict[str, Any]:
        """As in the verdict files."""
        return {
            "tool": self.tool,
            "version": self.version,
            "ruleset": self.ruleset,
            "passed": self.passed,
            "messages": list(self.messages),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class RcpQuestion:
    """One point for the RCP checker."""

    logs: Sequence[Path]
    """Its runs."""
    ruleset: str
    """Round."""
    benchmark: str
    """MLPerf's name; the checker itself reads it from the logs."""
    required_runs: int
    """For benchmarks that the checker's own table lacks (dlrm, and names of our own)."""
    rcps: Path | None = None
    """Records in MLPerf's format; None for its own."""
    bert_train_samples: bool = False
    """BERT's samples stand in `train_samples`; see `convergence.counts_train_samples`."""
    records: Records = "pruned"
    """Record set; the checker's own default is `pruned`."""


def compliance(logs: Sequence[Path], *, ruleset: str, config: Path | None = None) -> tuple[OfficialVerdict, ...]:
    """The compliance checker on each log; one process for all, a fresh checker for each.

    `config` is a rules file of our own instead of the round's. Its text is executed: never take it from user data.
    """
    with tempfile.TemporaryDirectory() as scratch:
        names = [_copy(log, Path(scratch) / f"{index}" / log.name) for index, log in enumerate(logs)]
        rules = str(config.resolve()) if config else ""
        targets = [{"path": name, "ruleset": ruleset, "config": rules} for name in names]
        return _ask("compliance", targets, scratch=scratch)


def rcp(questions: Sequence[RcpQuestion]) -> tuple[OfficialVerdict, ...]:
    """The RCP checker on each point; one process for all, of which importing scipy takes most."""
    with tempfile.TemporaryDirectory() as scratch:
        targets = [
            {
                "path": _folder_of_results(question.logs, Path(scratch) / f"{index}"),
                "ruleset": question.ruleset,
                "benchmark": question.benchmark,
                "required_runs": question.required_runs,
                "rcps": str(question.rcps.resolve()) if question.rcps else "",
                "bert_train_samples": question.bert_train_samples,
                "records": f"{question.records}_rcps",
            }
            for index, question in enumerate(questions)
        ]
        return _ask("rcp", targets, scratch=scratch)


def seeds(logs: Sequence[Path], *, ruleset: str) -> OfficialVerdict:
    """The seed checker on the runs of one point."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = _folder_of_results(logs, Path(scratch))
        return _ask("seeds", [{"path": folder, "ruleset": ruleset}], scratch=scratch)[0]


def system_description(path: Path, *, ruleset: str) -> OfficialVerdict:
    """The system description checker on one JSON file."""
    with tempfile.TemporaryDirectory() as scratch:
        name = _copy(path, Path(scratch) / path.name)
        return _ask("system", [{"path": name, "ruleset": ruleset}], scratch=scratch)[0]


def _copy(source: Path, target: Path) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return str(target)


def _folder_of_results(logs: Sequence[Path], scratch: Path) -> str:
    """Copies under the only names that the checkers see: `result_*.txt`."""
    for index, log in enumerate(logs):
        _copy(log, scratch / "results" / f"result_{index}.txt")
    (scratch / "results").mkdir(parents=True, exist_ok=True)
    return str(scratch / "results")


def _ask(tool: str, targets: Sequence[Mapping[str, Any]], *, scratch: str) -> tuple[OfficialVerdict, ...]:
    """What the driver answers, as verdicts."""
    return tuple(
        OfficialVerdict(
            tool=f"mlperf_logging {_TOOLS[tool]}",
            version=rounds.tool_version(),
            ruleset=target["ruleset"],
            passed=answer["passed"],
            messages=tuple(one_line(message, scratch) for message in answer["messages"]),
        )
        for target, answer in zip(targets, run_driver(tool, targets, scratch=scratch), strict=True)
    )


def run_driver(
    tool: str, targets: Sequence[Mapping[str, Any]], *, scratch: str, timeout_s: float | None = None
) -> list[dict[str, Any]]:
    """Start the driver in the scratch folder and hand it the request; one answer for each target.

    A driver that dies or does not answer in time (default `TIMEOUT_S`) is an answer without a verdict.
    """
    # -P keeps the driver's own folder off sys.path: its neighbours must not shadow a module of the checkers.
    command = [sys.executable, "-P", str(_DRIVER)]
    # The logs of the compliance and RCP checkers repeat what they return; the other two return only yes or no.
    request = json.dumps({"tool": tool, "keep_log": tool in ("seeds", "system"), "targets": list(targets)})
    limit_s = TIMEOUT_S if timeout_s is None else timeout_s
    try:
        process = subprocess.run(
            command, input=request, cwd=scratch, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return _no_verdict(f"no answer within {limit_s} s", len(targets))
    return _answers(process, len(targets))


_TOOLS: Final = {
    "compliance": "compliance_checker",
    "rcp": "rcp_checker",
    "seeds": "seed_checker",
    "system": "system_desc_checker",
}


def _answers(process: subprocess.CompletedProcess[str], count: int) -> list[dict[str, Any]]:
    """The driver's last line; a driver that died says so in every verdict."""
    lines = process.stdout.splitlines()
    if process.returncode == 0 and lines:
        answers: list[dict[str, Any]] = json.loads(lines[-1])
        return answers
    last = (process.stderr.strip().splitlines() or ["no output"])[-1]
    return _no_verdict(f"ended with status {process.returncode}: {last}", count)


def _no_verdict(reason: str, count: int) -> list[dict[str, Any]]:
    return [{"passed": None, "messages": [reason]}] * count


def one_line(message: str, scratch: str, *, longest: int = _LONGEST_MESSAGE) -> str:
    """A message without scratch paths and line breaks, shortened: some print all tensor names of a model."""
    text = re.sub(rf"{re.escape(scratch)}/(?:\d+/)?(?:results/)?", "", message)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"
