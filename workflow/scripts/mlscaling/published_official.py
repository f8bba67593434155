"""The official checkers beside our verdicts on published results: each in a process of its own, several at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mlscaling.mlperf import official, rounds
from mlscaling.mlperf.official import OfficialVerdict
from mlscaling.published import SEPARATOR, Examined

LOGS_PER_PROCESS: Final = 24
"""A process starts in 0.2 s and checks a log in 0.06 s; small enough to share out evenly."""
POINTS_PER_PROCESS: Final = 8
"""The RCP checker's process takes a second to import scipy."""


def official_columns(examined: Sequence[Examined], *, ruleset: str, jobs: int) -> list[dict[str, Any]]:
    """The `official_…` columns of each entry, from copies of its logs."""
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        compliance = _ask_compliance(pool, examined, ruleset=ruleset)
        rcp = _ask_rcp(pool, examined)
        seeds = {one.results.folder: pool.submit(_seeds, one, ruleset=ruleset) for one in examined}
        files = {one.results.description for one in examined if one.results.description}
        systems = {
            file: pool.submit(official.system_description, file, ruleset=ruleset) for file in files if file.is_file()
        }
        logs = _collected(compliance)
        points = _collected(rcp)
        return [
            _columns(
                logs=[logs[log] for log in one.results.logs if log in logs],
                rcp=points.get(one.results.folder),
                seeds=seeds[one.results.folder].result(),
                system=systems[one.results.description].result() if one.results.description in systems else None,
                ruleset=ruleset,
            )
            for one in examined
        ]


Asked = list[tuple[Future[tuple[OfficialVerdict, ...]], Sequence[Path]]]
"""A pending answer, and the paths that its verdicts belong to."""


def _ask_compliance(pool: Executor, examined: Sequence[Examined], *, ruleset: str) -> Asked:
    logs = sorted(_readable(log for one in examined for log in one.results.logs), key=lambda log: log.stat().st_size)
    num_chunks = -(-len(logs) // LOGS_PER_PROCESS)
    chunks = [logs[start::num_chunks] for start in range(num_chunks)]
    return [(pool.submit(official.compliance, chunk, ruleset=ruleset), chunk) for chunk in chunks]


def _ask_rcp(pool: Executor, examined: Sequence[Examined]) -> Asked:
    questions = {
        one.results.folder: one.question
        for one in examined
        if one.question and len(_readable(one.results.logs)) == len(one.results.logs)
    }
    folders = list(questions)
    chunks = [folders[start : start + POINTS_PER_PROCESS] for start in range(0, len(folders), POINTS_PER_PROCESS)]
    return [(pool.submit(official.rcp, [questions[folder] for folder in chunk]), chunk) for chunk in chunks]


def _seeds(one: Examined, *, ruleset: str) -> OfficialVerdict | None:
    logs = _readable(one.results.logs)
    return official.seeds(logs, ruleset=ruleset) if logs else None


def _readable(logs: Any) -> list[Path]:
    return [log for log in logs if log.is_file()]


def _collected(asked: Asked) -> dict[Path, OfficialVerdict]:
    return {path: answer for future, paths in asked for path, answer in zip(paths, future.result(), strict=True)}


def _columns(
    *,
    logs: Sequence[OfficialVerdict],
    rcp: OfficialVerdict | None,
    seeds: OfficialVerdict | None,
    system: OfficialVerdict | None,
    ruleset: str,
) -> dict[str, Any]:
    of_logs = Counter(text for answer in logs if (text := _complaint(answer, ruleset=ruleset)))
    others = [_complaint(answer, ruleset=ruleset) for answer in (rcp, seeds, system) if answer]
    shown = [f"{_share(count, len(logs))} logs: {text}" for text, count in of_logs.items()]
    return {
        "official_num_compliant": sum(answer.passed is True for answer in logs),
        "official_rcp_passed": rcp.passed if rcp else None,
        "official_seeds_passed": seeds.passed if seeds else None,
        "official_description_passed": system.passed if system else None,
        "official_findings": SEPARATOR.join([*shown, *filter(None, others)]),
    }


def _share(count: int, total: int) -> str:
    return "all" if count == total else f"{count} of {total}"


def _complaint(answer: OfficialVerdict, *, ruleset: str) -> str:
    """Why a checker does not pass, and whether its rule was one of the round; empty where it passes."""
    if answer.passed:
        return ""
    tool = answer.tool.removeprefix("mlperf_logging ")
    problems = [text for text in answer.messages if not text.startswith("warning: ")] or ["it gives no reason"]
    reasons = {reason: None for text in problems for reason in rounds.later_rules(text, ruleset)}
    if reasons:
        return f"published; fails the current {tool} because {' and '.join(reasons)}"
    words = "gives no verdict" if answer.passed is None else "fails"
    return f"{tool} {words}: {problems[0][:160]}"
