"""The step before a training that keeps it from wasting time: nodes, accelerators, data and network of its own job.

It runs on the ranks of the job, started as the training will be (`preflight_ranks.py`). What they found is
`preflight.json` in the attempt's folder, what they printed `preflight.log`; here it is judged by the system's
thresholds. A system without thresholds has its network measured, never judged.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mlscaling import jobs, network
from mlscaling.failures import why_failed
from mlscaling.files import read_json, write_json
from mlscaling.jobs import Job
from mlscaling.supervision import supervise
from mlscaling.systems import System
from mlscaling.whereabouts import said_by_ranks

REPORT, LOG, REQUEST = "preflight.json", "preflight.log", "preflight_request.json"
START_S = 60
"""Seconds beyond its own limits that a preflight may take, to start the ranks and to end them."""
DEFAULT_MESSAGE_MIB = {"cuda": 64, "cpu": 4}
"""Large enough to fill a link, small enough for a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """`preflight` of a system's file; the schema says what each is."""

    when: str = "auto"
    """`auto`, `always` or `never`."""
    min_bus_bandwidth_gb_per_s: float | None = None
    """None: never judged."""
    max_latency_us: float | None = None
    """None: never judged."""
    max_message_mib: int = 0
    """0: by the system's device."""
    sweep_limit_s: int = 5
    """Longest time of the sweep."""
    rendezvous_limit_s: int = 120
    """Longest time until all ranks have met."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the ranks need to know; every rank reads it from a file, as it does its run spec."""

    nodes: list[str]
    """Names of the nodes in the order of their ranks."""
    max_message_bytes: int
    """Largest message of the sweep."""
    sweep_limit_s: int
    """Longest time of the sweep."""
    rendezvous_limit_s: int
    """Longest time until all ranks have met."""

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read what `preflight` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def is_wanted(system: System, *, ours: bool = True) -> bool:
    """Whether trainings on this system have a preflight; beside a vendor's command only if that is said, since it needs
    this workflow's Python packages on the nodes."""
    when = Settings(**system.preflight).when  # type: ignore[arg-type]
    return when == "always" or (when == "auto" and ours and system.launcher != "local")


def preflight(job: Job) -> str:
    """Check the job's nodes; nothing, or `<failure class>: <message>` if the training must not begin."""
    if not is_wanted(job.system, ours=not job.spec.command):
        return ""
    settings = Settings(**job.system.preflight)  # type: ignore[arg-type]
    write_json(dataclasses.asdict(request_of(job, settings)), job.folder / REQUEST)
    files = [f"--request={(job.folder / REQUEST).resolve()}", f"--report={(job.folder / REPORT).resolve()}"]
    limit_min = math.ceil((settings.rendezvous_limit_s + settings.sweep_limit_s + START_S) / 60)
    status, ended_by = supervise(
        jobs.on_ranks(job, "preflight", f"--spec={job.spec_file.resolve()}", *files),
        output=job.folder / LOG,
        progress=job.folder / REPORT,
        system=dataclasses.replace(job.system, startup_limit_min=limit_min),
    )
    if ended_by and not ended_by.startswith("timeout"):
        return ended_by
    report = kept(job.folder)
    if report is None or not (report["problems"] or report["sweep"] or report["note"]):
        return _without_measurement(job, status=status, limit_min=limit_min if ended_by else 0)
    finding = _finding(report, settings, system=job.system.name)
    thresholds = {name: getattr(settings, name) for name in ("min_bus_bandwidth_gb_per_s", "max_latency_us")}
    write_json({**report, "thresholds": thresholds, "finding": finding}, job.folder / REPORT)
    return finding


def request_of(job: Job, settings: Settings) -> Request:
    """What the ranks are asked to do."""
    emulated = [f"emulated node {number}" for number in range(1, job.spec.nodes + 1)]
    mib = settings.max_message_mib or DEFAULT_MESSAGE_MIB[job.spec.device]
    return Request(
        nodes=[node.name for node in job.nodes] or emulated,
        max_message_bytes=mib * 2**20,
        sweep_limit_s=settings.sweep_limit_s,
        rendezvous_limit_s=settings.rendezvous_limit_s,
    )


def judge(report: Mapping[str, Any], settings: Settings, *, system: str) -> str:
    """What the thresholds say of a sweep, with value, threshold and the slow node; nothing if it is good enough."""
    sweep = report["sweep"]
    if not sweep:
        return ""
    where = f"{len(report['ranks'])} ranks on {len(report['nodes'])} node{'s' * (len(report['nodes']) > 1)}"
    bandwidth, least = network.bus_bandwidth(sweep), settings.min_bus_bandwidth_gb_per_s
    if least is not None and bandwidth < least:
        return (
            f"network: bus bandwidth {_short(bandwidth)} GB/s of {where} is below min_bus_bandwidth_gb_per_s = "
            f"{least:g} of system {system}; {blame(report)}"
        )
    latency, most = network.latency_us(sweep), settings.max_latency_us
    if most is not None and latency > most:
        return (
            f"network: latency {_short(latency)} µs of {where} is above max_latency_us = {most:g} of system "
            f"{system}; {blame(report, by='latency_us')}"
        )
    return ""


def blame(report: Mapping[str, Any], *, by: str = "bandwidth_gb_per_s") -> str:
    """Which node or link the ring of nodes shows as the slowest, in words."""
    unit = "GB/s" if by == "bandwidth_gb_per_s" else "µs"
    links = report["links"]
    if not links:
        return f"all ranks are on {report['nodes'][0]}"
    slowest = network.slowest_node(links, by=by)
    if slowest is None:
        one, other = links[0]["nodes"]
        return f"the link between {one} and {other} has {_short(links[0][by])} {unit}"
    words = "the slow node is" if slowest["slow"] else "no node stands out, the slowest is"
    values = f"{_short(slowest['value'])} {unit} to its better neighbour, {_short(slowest['median'])} in the median"
    return f"{words} {slowest['node']} ({values} of the nodes)"


def remarks(folder: Path) -> tuple[str, ...]:
    """What a reader of an attempt should know of its preflight, although the training began."""
    report = kept(folder)
    slowest = network.slowest_node(report["links"]) if report else None
    return (f"preflight: {blame(report)}",) if report and slowest and slowest["slow"] else ()


def kept(folder: Path) -> dict[str, Any] | None:
    """The report of an attempt's preflight; None if it had none."""
    path = folder / REPORT
    return read_json(path) if path.exists() else None


def _finding(report: Mapping[str, Any], settings: Settings, *, system: str) -> str:
    problems = [f"{problem['failure_class']}: {problem['message']}" for problem in report["problems"]]
    if not problems:
        return judge(report, settings, system=system)
    return problems[0] + (f"; and {len(problems) - 1} more in {REPORT}" if problems[1:] else "")


def _without_measurement(job: Job, *, status: int, limit_min: int) -> str:
    """Why the ranks came to nothing: by what they printed or, where they hang, by who never printed anything."""
    if not limit_min:
        failure = why_failed(job.folder / LOG, exit_status=status, ended_by="", job_id=job.job_id, nodes=job.nodes)
        return f"{failure.failure_class}: preflight: {failure.message} ({job.folder / LOG})"
    with (job.folder / LOG).open(encoding="utf-8", errors="replace") as lines:
        spoke = {int(place["rank"]) for place in said_by_ranks(lines)}
    names = request_of(job, Settings()).nodes
    silent = [rank for rank in range(job.spec.world_size) if rank not in spoke]
    nodes = dict.fromkeys(names[rank // job.spec.accelerators_per_node] for rank in silent)
    who = f"no sign of {', '.join(nodes)}" if nodes else "all ranks had started"
    return f"{'node' if nodes else 'network'}: the preflight did not end in {limit_min} min; {who}"


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
