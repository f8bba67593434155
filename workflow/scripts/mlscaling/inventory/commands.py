"""Several commands at once, each with a limit: what they print, or why they do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final

LIMIT_S: Final = 10.0
"""`nvidia-smi` takes seconds where the driver is loaded for it; a broken driver hangs it for ever."""
_LONGEST_ANSWER: Final = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a command said."""

    text: str = ""
    """Its standard output; empty unless it ended with status 0."""
    status: str = "ok"
    """`ok`, `absent`, or how it failed."""


def answers(commands: Mapping[str, Sequence[str]], *, limit_s: float = LIMIT_S) -> dict[str, Answer]:
    """Answers by the commands' names; all commands start at once.

    Standard output goes to files, and a command that cannot be killed, since the kernel holds it, is left behind: a
    pipe or a wait would hang with it.
    """
    started = {name: _start(command) for name, command in commands.items()}
    deadline = time.monotonic() + limit_s
    return {name: _answer(*process, deadline=deadline, limit_s=limit_s) for name, process in started.items()}


def _start(command: Sequence[str]) -> tuple[subprocess.Popen[bytes] | None, IO[bytes] | None]:
    if shutil.which(command[0]) is None:
        return None, None
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when it was read)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError:
        output.close()
        return None, None
    return process, output


def _answer(
    process: subprocess.Popen[bytes] | None, output: IO[bytes] | None, *, deadline: float, limit_s: float
) -> Answer:  # fmt: skip
    if process is None or output is None:
        return Answer(status="absent")
    with output:
        try:
            status = process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return Answer(status=f"no answer within {limit_s:g} s")
        output.seek(0)
        text = output.read(_LONGEST_ANSWER).decode(errors="replace")
    if status:
        return Answer(status=f"ended with status {status}")
    return Answer(text=text)
