"""Why an attempt failed, from what all ranks printed. One table; the first match wins."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlscaling import slurm

FAILURE_CLASSES = (
    "network",
    "out_of_memory",
    "data",
    "config",
    "node",
    "timeout",
    "preempted",
    "interrupted",
    "unknown",
)

# Order matters: when one rank dies, the others' collectives fail too and name the network. So causes that make a
# rank die come first, and the network last.
_SIGNS: tuple[tuple[str, str], ...] = (
    ("preempted", r"DUE TO PREEMPTION"),
    ("node", r"DUE TO NODE FAILURE|Node failure on|slurmstepd: error: .*node.* (down|not responding)"),
    ("timeout", r"DUE TO TIME LIMIT"),
    ("out_of_memory", r"out[ -]of[ -]memory|oom[-_ ]kill|MemoryError|Cannot allocate memory|OutOfMemoryError"
                      r"|slurmstepd.* error: .*exceeded .*memory limit"),
    ("data", r"mlscaling data error|No such file or directory: .*(hdf5|\.JPE?G|/train|/val)|UnidentifiedImageError"
             r"|Unable to (synchronously )?open (file|object)|checksum"),
    ("config", r"mlscaling config error|ModuleNotFoundError|run spec (is incomplete|has unknown fields)"),
    ("config", r"ch-run\[\d+\]: error|FATAL: +(While|Unable|could not|container)|pyxis: (couldn't|failed|unable)"
               r"|docker: Error response|Error: (short-name|initializing source|.*image not known)"
               r"|executable file not found"),
    ("node", r"ended by signal (SIGBUS|SIGILL)|Bus error|uncorrectable ECC|NVRM: Xid"),
    ("network", r"Watchdog caught collective operation timeout"),  # of NCCL, which then aborts its rank
    ("unknown", r"rank \d+ ended by signal|srun: error: \S+: task \d+: (Killed|Aborted|Segmentation fault|Illegal)"),
    ("network", r"Connection (refused|reset|closed|timed out)|connectFullMesh|Broken pipe|NCCL.*(unhandled|remote)"
                r"|Socket Timeout|no route to host|gloo.*(timeout|timed out)|DistNetworkError|Address already in use"),
)  # fmt: skip
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _SIGNS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Class of a failure and the line that shows it."""

    failure_class: str
    """One of `FAILURE_CLASSES`."""
    message: str
    """The line that decided, or what is known where no line did."""


def why_failed(
    ranks_log: Path,
    *,
    exit_status: int,
    ended_by: str,
    job_id: str = "",
    started: float = math.inf,
    nodes: Sequence[slurm.Node] = (),
) -> Failure:
    """Why an attempt failed: what Slurm did to its job, what ended it here, what its ranks printed, in this order.

    Args:
        ranks_log: labelled output of all ranks.
        exit_status: of the launch command.
        ended_by: `<class>: <message>` if the attempt was ended from here, else empty.
        job_id: its Slurm job, empty outside Slurm.
        started: when the attempt started, seconds since 1970.
        nodes: nodes of that job. Where ranks lost each other, a node that is silent is the cause.
    """
    failure_class, _, message = ended_by.partition(": ")
    if failure_class not in ("timeout", "config") and job_id and (known := slurm.why_ended(job_id, at=started)):
        return Failure(failure_class=known[0], message=known[1])
    lines = ranks_log.read_text(encoding="utf-8", errors="replace").splitlines()
    if failure_class == "interrupted" and (said := _first_sign([line for line in lines if _BY_SLURM.search(line)])):
        return said  # where Slurm's accounting is silent, its daemons have said why they ended the job
    if ended_by:
        return Failure(failure_class=failure_class, message=message)
    otherwise = f"the launch command ended with status {exit_status} and the log has no run_stop"
    failure = classify(lines, otherwise=otherwise)
    if failure.failure_class in ("network", "unknown") and (silent := slurm.silent_nodes(nodes)):
        return Failure(failure_class="node", message=f"no answer from {', '.join(silent)}; {failure.message}")
    return failure


def classify(lines: Iterable[str], *, otherwise: str) -> Failure:
    """Class of a failure from the labelled output of all ranks.

    The rank that ended first is believed first: the others only see their peer go and call it the network. Where its
    own lines tell nothing, all ranks are read, since the cause may stand in any rank's output.

    Args:
        lines: output of all ranks, each line behind `<rank>: ` as `srun --label` (which aligns ranks to the right) and
            `emulation` write it.
        otherwise: message where no line tells.
    """
    everything = [_ALIGNED.sub("", line.rstrip()) for line in lines]
    culprit = _first_to_end(everything)
    mine = [line for line in everything if culprit and line.startswith(f"{culprit}: ")]
    # Of the ends that srun reports, only the first is a cause: the launcher kills the others because of it.
    ends = [line for line in everything if _FIRST_TO_END.search(line)]
    everything = [line for line in everything if line not in ends[1:]]
    others = [line for line in everything if not _LABEL.match(line) or _BY_SLURM.search(line)]
    for candidates in (mine + others, everything):
        failure = _first_sign(candidates)
        if failure:
            return failure
        if candidates and _last_error(mine):
            return Failure(failure_class="unknown", message=_last_error(mine))
    return Failure(failure_class="unknown", message=otherwise)


_BY_SLURM = re.compile(r"slurmstepd\S*: error: ")
_ALIGNED = re.compile(r"^ +(?=\d+: )")
_LABEL = re.compile(r"\d+: ")
_ERROR = re.compile(r"\d+: \w[\w.]*(Error|Exception|Interrupt)\b")
_FIRST_TO_END = re.compile(r"emulate: rank (\d+) ended|srun: error: \S+: tasks? (\d+)")


def _first_to_end(lines: list[str]) -> str:
    for line in lines:
        match = _FIRST_TO_END.search(line)
        if match:
            return match.group(1) or match.group(2)
    return ""


def _first_sign(lines: list[str]) -> Failure | None:
    for name, pattern in _COMPILED:
        for line in lines:
            if pattern.search(line):
                return Failure(failure_class=name, message=line.strip()[:500])
    return None


def _last_error(lines: list[str]) -> str:
    """Last line of a Python traceback, empty if there is none."""
    if not any("Traceback (most recent call last)" in line for line in lines):
        return ""
    return next(
        (
            line.strip()[:500]
            for line in reversed(lines)
            if re.match(r"\d+: \w[\w.]*(Error|Exception|Interrupt)\b", line)
        ),
        "",
    )
