"""Runs one official checker in a process of its own; started by `official.py`, never imported.

Reads a request from standard input, works in the current (scratch) folder, prints one JSON answer as the last line.
The checkers print, log, call sys.exit, keep state in module globals and raise what they like: all of it ends here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class _Records(logging.Handler):
    """Keeps the warnings and errors that a checker logs instead of returning."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage().strip())


def check_compliance(request: dict[str, Any], log: str) -> Answer:
    """One log by the compliance checker: a fresh checker and an empty queue of rules for each file."""
    from mlperf_logging.compliance_checker import mlp_compliance

    ruleset = request["ruleset"]
    # An exception leaves rules queued in a module global, and the next file would be checked with them.
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("training", ruleset, quiet=False, werror=False)
    config = request["config"] or f"training_{ruleset}/common.yaml"
    passed, *_ = mlp_compliance.main(log, config, checker)
    problems = [*checker.overwritable.values(), *checker.not_overwritable]
    return {"passed": passed, "messages": [*problems, *(f"warning: {text}" for text in checker.warnings.values())]}


def check_rcp(request: dict[str, Any], folder: str) -> Answer:
    """A folder of result files by the RCP checker."""
    from mlperf_logging.rcp_checker import rcp_checker

    # dlrm was removed from this table in 2023 and older rounds still need it; our own names are no MLPerf benchmarks.
    rcp_checker.submission_runs["training"].setdefault(request["benchmark"], request["required_runs"])
    with contextlib.ExitStack() as stack:
        rcps = request["rcps"] and stack.enter_context(open(request["rcps"], encoding="utf-8"))
        # set_scaling=True writes into the scratch copy; False would try to delete /scaling.json.
        passed, message, factor = rcp_checker.check_directory(
            folder,
            "training",
            request["ruleset"],
            False,
            request["bert_train_samples"],
            rcp_file=rcps or None,
            rcp_pass=request["records"],
            set_scaling=True,
        )
    return {"passed": bool(passed), "messages": [message, f"normalisation factor {float(factor)!r}"]}


def check_seeds(request: dict[str, Any], folder: str) -> Answer:
    """The seeds of a folder of result files; its messages are only logged."""
    from mlperf_logging.package_checker.seed_checker import SeedChecker

    files = sorted(str(path) for path in Path(folder).glob("result_*.txt"))
    return {"passed": SeedChecker(request["ruleset"]).check_seeds(files), "messages": []}


def check_system(request: dict[str, Any], path: str) -> Answer:
    """A system description; its reasons are only logged."""
    from mlperf_logging.system_desc_checker import system_desc_checker

    passed, *_ = system_desc_checker.check_system_desc(path, "training", request["ruleset"])
    return {"passed": bool(passed), "messages": []}


PACKAGE_FOLDER = "Running compliance checks in dir "
PACKAGE_VERDICTS = {"PACKAGE CHECKER FOUND NO ERRORS": True, "PACKAGE CHECKER FOUND ERRORS": False}


class _Package(logging.Handler):
    """Sorts what the package checker and the checkers that it calls log by the folder of results that it is about."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.folder = ""
        self.folders: dict[str, Answer] = {"": {"errors": [], "details": []}}
        self.passed: bool | None = None
        self.words = ""

    def emit(self, record: logging.LogRecord) -> None:
        text, own = record.getMessage().strip(), record.module == "package_checker"
        if own and text.startswith(PACKAGE_FOLDER):
            self.folder = text.removeprefix(PACKAGE_FOLDER)
            self.folders[self.folder] = {"errors": [], "details": []}
        for words, passed in PACKAGE_VERDICTS.items():
            if own and text.startswith(words):
                self.passed, self.words = passed, text
        if record.levelno >= logging.WARNING:
            # Its own errors decide about the folder; the rest says why.
            kind = "errors" if own and record.levelno >= logging.ERROR else "details"
            self.folders[self.folder][kind].append(text)


def check_package(request: dict[str, Any], folder: str) -> Answer:
    """A submitter's whole tree by the package checker, which returns nothing and always exits with 0."""
    from mlperf_logging.package_checker import package_checker
    from mlperf_logging.rcp_checker import rcp_checker

    # dlrm and minigo are missing from this table, and the checker would crash in the middle; see `check_rcp`.
    for benchmark, required in request["required_runs"].items():
        rcp_checker.submission_runs["training"].setdefault(benchmark, required)
    log = _Package()
    logging.getLogger().handlers = [log]
    logging.getLogger().setLevel(logging.INFO)
    messages = []
    options = {"quiet": False, "werror": False, "rcp_bypass": False, "seed_checker_bypass": False, "log_output": "-"}
    options["rcp_bert_train_samples"] = request["bert_train_samples"]
    try:
        package_checker.check_training_package(folder, "training", request["ruleset"], **options)
    except (Exception, SystemExit) as error:  # what it has said until then is worth keeping
        log.passed = None
        messages.append(f"crashed: {type(error).__name__}: {error}")
    return {"passed": log.passed, "messages": [*messages, *filter(None, [log.words])], "folders": log.folders}


CHECKS: dict[str, Callable[[dict[str, Any], str], Answer]] = {
    "compliance": check_compliance,
    "rcp": check_rcp,
    "seeds": check_seeds,
    "system": check_system,
    "package": check_package,
}


def guarded(check: Callable[[dict[str, Any], str], Answer], request: dict[str, Any], target: str) -> Answer:
    """One check; whatever it raises becomes an answer without a verdict."""
    records = _Records()
    logging.getLogger().handlers = [records]
    try:
        with warnings.catch_warnings(record=True) as caught:
            answer = check(request, target)
    except (Exception, SystemExit) as error:  # a crash of the official tool is its answer, not ours
        return {"passed": None, "messages": [f"crashed: {type(error).__name__}: {error}", *records.messages]}
    if request["keep_log"]:
        answer["messages"] += [*records.messages, *(f"warning: {item.message}" for item in caught)]
    return answer


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        check = CHECKS[request["tool"]]
        answers = [guarded(check, {**request, **target}, target["path"]) for target in request["targets"]]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
