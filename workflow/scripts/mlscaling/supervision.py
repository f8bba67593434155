"""A command under supervision: its output in a file, its limits kept, its end when this process is told to end.

Progress is what stands in the MLPerf log. A rank that prints for ever and logs nothing hangs all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlscaling.emulation import die_with_parent
from mlscaling.systems import System

_KEY = re.compile(rb':::MLLOG .*?"key": *"([^"]+)"')


def supervise(
    command: Sequence[str], *, output: Path, progress: Path, system: System, started: float | None = None
) -> tuple[int, str]:
    """Run the command with its limits; returns its status and what ended it, empty if it ended by itself.

    Args:
        output: where all that it prints goes.
        progress: MLPerf log that it writes to. Before `run_start`, and so for a command that logs none, only the limit
            of the start-up counts.
        started: when the start-up began, `time.monotonic()`; None, now.

    What ended it is `<failure class>: <message>`.
    """
    signals: list[int] = []
    previous = {
        number: signal.signal(number, lambda received, _frame: signals.append(received))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    limits = _Limits(system, progress=progress, started=time.monotonic() if started is None else started)
    try:
        with output.open("wb") as stream:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
            ended_by = _watch(child, limits=limits, signals=signals)
            if ended_by:
                _end_group(child)
            return child.wait(), ended_by
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _watch(child: subprocess.Popen[bytes], *, limits: _Limits, signals: list[int]) -> str:
    while child.poll() is None:
        if signals:
            break
        if exceeded := limits.exceeded():
            return f"timeout: {exceeded}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.2)
    return f"interrupted: by {signal.Signals(signals[0]).name}" if signals else ""


def _end_group(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=15.0)
            return


# --- limits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """An MLLOG event, when it was seen."""

    key: str
    at: float


class _Limits:
    """The three limits of an attempt: start-up, timed region, and silence of the log in between."""

    def __init__(self, system: System, *, progress: Path, started: float) -> None:
        self._system = system
        self._progress = progress
        self._started = started
        self._position = 0
        self._run_start = self._run_stop = self._last = _Seen(key="", at=0.0)

    def exceeded(self) -> str:
        """Which limit is exceeded, in a sentence; empty if none is."""
        self._read()
        now, system = time.monotonic(), self._system
        if not self._run_start.key:
            if now - self._started > 60.0 * system.startup_limit_min:
                return f"no run_start within the system's startup_limit_min = {system.startup_limit_min}"
            return ""
        if not self._run_stop.key and now - self._run_start.at > 60.0 * system.time_limit_min:
            return f"longer than the system's time_limit_min = {system.time_limit_min} since run_start"
        if now - self._last.at > 60.0 * system.silence_limit_min:
            limit = f"silence_limit_min = {system.silence_limit_min}"
            return f"no MLLOG event for the system's {limit}; the last one was {self._last.key}"
        return ""

    def _read(self) -> None:
        """Take note of the events that were written since the last call; half a line waits for its end."""
        try:
            with self._progress.open("rb") as stream:
                stream.seek(self._position)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._position += len(whole) + len(newline)
        for match in _KEY.finditer(whole):
            self._last = _Seen(key=match.group(1).decode(), at=time.monotonic())
            if self._last.key == "run_start":
                self._run_start, self._run_stop = self._last, _Seen(key="", at=0.0)  # a launch may make several runs
            elif self._last.key == "run_stop":
                self._run_stop = self._last
