"""A command under supervision: its output in a file, its limits kept, its end when this process is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from mlscaling.emulation import die_with_parent
from mlscaling.spec import System


def supervise(command: Sequence[str], *, output: Path, progress: Path, system: System) -> tuple[int, str]:
    """Run the command with its limits; returns its status and what ended it, empty if it ended by itself.

    Args:
        output: where all that it prints goes.
        progress: another file that it writes to; it is silent while neither grows.

    What ended it is `<failure class>: <message>`.
    """
    signals: list[int] = []
    previous = {
        number: signal.signal(number, lambda received, _frame: signals.append(received))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
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
            ended_by = _watch(child, files=(output, progress), system=system, signals=signals)
            if ended_by:
                _end_group(child)
            return child.wait(), ended_by
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _watch(child: subprocess.Popen[bytes], *, files: tuple[Path, ...], system: System, signals: list[int]) -> str:
    started = time.monotonic()
    silence_s, limit_s = 60.0 * system.silence_limit_min, 60.0 * system.time_limit_min
    last_size, last_change = -1, started
    while child.poll() is None:
        now = time.monotonic()
        size = sum(file.stat().st_size for file in files if file.exists())
        if size != last_size:
            last_size, last_change = size, now
        if signals:
            return f"interrupted: by {signal.Signals(signals[0]).name}"
        if now - started > limit_s:
            return f"timeout: longer than the system's time_limit_min = {system.time_limit_min}"
        if now - last_change > silence_s:
            return f"timeout: no output for the system's silence_limit_min = {system.silence_limit_min}"
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
