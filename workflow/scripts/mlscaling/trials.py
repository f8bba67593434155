"""Several runs by one launch: a vendor's command that makes `NEXP` trials, each of them a run of its own.

The launch is the attempt of the first run that is asked for; the attempts of the others take their part of its log.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from mlscaling import vendor
from mlscaling.files import read_json, write_text

SHARED = ("nodes.json", "container.json", "preflight.json", "stage.json", "page_cache.json")
"""Evidence of the launch that holds for all of its runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The part of an attempt in a launch."""

    trials: int = 1
    """Runs that the launch makes."""
    number: int = 0
    """Which of them this is."""
    folder: Path | None = None
    """Folder of the attempt that launched, where that is another one."""


def keep_trials(folder: Path, *, trials: int) -> None:
    """Give each run of a launch its own log beside `mlperf.log`, which becomes that of the first."""
    log = folder / "mlperf.log"
    for number, text in enumerate(vendor.trials_of(log)[:trials]):
        _log_of(folder, number).write_text(text, encoding="latin-1")
    shutil.copyfile(_log_of(folder, 0), log)


def take_part(folder: Path, launch: Launch) -> tuple[int, str]:
    """Take this run's log from its launch; exit status of the launch, and why there is no log, if there is none."""
    assert launch.folder is not None
    made = f"made by the launch in {launch.folder.parent.name}/{launch.folder.name}"
    write_text(f"{made}; ranks.log there has the output\n", folder / "ranks.log")
    for name in SHARED:
        if (launch.folder / name).exists():
            shutil.copyfile(launch.folder / name, folder / name)
    first = read_json(launch.folder / "attempt.json")
    status = 1 if first["exit_status"] is None else int(first["exit_status"])
    log = _log_of(launch.folder, launch.number)
    if log.exists():
        shutil.copyfile(log, folder / "mlperf.log")
        return status, ""
    if first["status"] == "failed":
        return status, f"{first['failure_class']}: {made}, which failed: {first['message']}"
    found = len(list(launch.folder.glob("trial_*.log")))
    return status, f"unknown: {made}, which made {found} of {launch.trials} runs"


def _log_of(folder: Path, number: int) -> Path:
    return folder / f"trial_{number}.log"
