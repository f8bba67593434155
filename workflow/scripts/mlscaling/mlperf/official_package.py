"""The official package checker on a submitter's whole tree: its verdict, what it says of each folder, scaling factors.

It runs unmodified in a process of its own and on a copy, since it writes `scaling.json` beside the logs. Its exit code
is always 0; the verdict is the sentence with which it ends, and none where it does not come that far.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling.mlperf import official, rounds

TOOL: Final = "mlperf_logging package_checker"
SECONDS_PER_LOG: Final = 2.0
"""Ten times what it needs for a log on an idle core."""
MOST_DETAILS: Final = 12
"""Details kept of one folder: a log that does not comply has hundreds, and the first say what it is about."""
LONGEST_MESSAGE: Final = 2000
"""Of a message about the whole tree; one lists all fields that a system description lacks."""
_RULE: Final = re.compile(r"\n-{20,}\n")
"""Between the messages of the compliance checker on one log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderVerdict:
    """What it says of the results of one system and benchmark."""

    system: str
    """Folder of the system."""
    benchmark: str
    """Folder of the benchmark."""
    errors: tuple[str, ...]
    """Its own errors; none: it accepts the folder."""
    details: tuple[str, ...]
    """Why, as the checkers say that it calls: distinct messages with the number of times, the most frequent first."""
    finished: bool
    """It came to the end of this folder; False where it crashed in it."""
    scaling: str = ""
    """Text of the `scaling.json` that it wrote; empty where it wrote none."""

    @property
    def scaling_factor(self) -> float | None:
        """Factor in `scaling.json`."""
        return float(json.loads(self.scaling)["scaling_factor"]) if self.scaling else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageVerdict:
    """What it says of a tree."""

    version: str
    """Version of mlperf_logging."""
    ruleset: str
    """Round whose rules it applied."""
    passed: bool | None
    """Its verdict; None where it crashed or did not answer."""
    messages: tuple[str, ...]
    """How it ended, and its errors about the tree as a whole, e.g. a system description that lacks a field."""
    folders: tuple[FolderVerdict, ...]
    """By system and benchmark."""


def check_package(tree: Path, *, ruleset: str, bert_train_samples: bool) -> PackageVerdict:
    """Ask it about a copy of the tree, which is only read.

    Args:
        tree: a submitter's folder with `systems/` and `results/`.
        ruleset: round.
        bert_train_samples: BERT's samples stand in `train_samples`; see `convergence.counts_train_samples`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / tree.name
        shutil.copytree(tree, copy)
        num_logs = sum(1 for _ in copy.glob("results/*/*/result_*.txt"))
        required = {name: rounds.required_runs(name) for name in rounds.benchmarks(ruleset)}
        target = {"path": tree.name, "ruleset": ruleset, "required_runs": required}
        timeout_s = official.TIMEOUT_S + SECONDS_PER_LOG * num_logs
        targets = [{**target, "bert_train_samples": bert_train_samples}]
        (answer,) = official.run_driver("package", targets, scratch=scratch, timeout_s=timeout_s)
        said: dict[str, Any] = answer.get("folders", {})
        whole = said.pop("", {"errors": [], "details": []})
        crashed_in = [*said][-1:] if answer["passed"] is None else []
        folders = [
            _folder_verdict(folder, said[folder], scratch=scratch, finished=folder not in crashed_in)
            for folder in sorted(said)
        ]
    return PackageVerdict(
        version=rounds.tool_version(),
        ruleset=ruleset,
        passed=answer["passed"],
        messages=tuple(
            official.one_line(text, scratch, longest=LONGEST_MESSAGE)
            for text in (*answer["messages"], *whole["details"], *whole["errors"])
        ),
        folders=tuple(folders),
    )


def _folder_verdict(
    folder: str, said: Mapping[str, Sequence[str]], *, scratch: str, finished: bool
) -> FolderVerdict:  # fmt: skip
    system, benchmark = Path(folder).parts[-2:]
    details = Counter(
        official.one_line(_without_runs(part, folder), scratch)
        for text in said["details"]
        for part in _RULE.split(text)
        if part.strip()
    )
    shown = [f"{count} × {text}" if count > 1 else text for text, count in details.most_common(MOST_DETAILS)]
    if len(details) > MOST_DETAILS:
        shown.append(f"and {len(details) - MOST_DETAILS} more")
    scaling = Path(scratch) / folder / "scaling.json"
    return FolderVerdict(
        system=system,
        benchmark=benchmark,
        errors=tuple(official.one_line(_without_runs(text, folder), scratch) for text in said["errors"]),
        details=tuple(shown),
        finished=finished,
        scaling=scaling.read_text(encoding="utf-8") if scaling.is_file() else "",
    )


def _without_runs(text: str, folder: str) -> str:
    """A message without the folder and the number of the run, so that equal ones of several runs are counted."""
    return re.sub(r"result_\d+\.txt", "result_#.txt", text.replace(f"{folder}/", ""))
