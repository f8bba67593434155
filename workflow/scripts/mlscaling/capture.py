"""The first step of an attempt: every node says what it is, and the attempt keeps it in `nodes.json`.

It takes nothing that is not on the allow-lists of `provenance.py` and `inventory/`, and never ends an attempt: a node
that does not answer is named. What is not the same on all nodes of a run is a note of the attempt.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlscaling import containers, jobs, provenance
from mlscaling.files import read_json, write_json
from mlscaling.inventory import node, slurm_job
from mlscaling.jobs import Job
from mlscaling.settings_of_nodes import differing, sentence
from mlscaling.supervision import supervise

SCHEMA_VERSION: Final = 1
NAME: Final = "nodes.json"
LIMIT_MIN: Final = 2
"""Longest time for all nodes; it takes seconds."""


def capture_nodes(job: Job) -> str:
    """Write `nodes.json`; returns what interrupted it, else nothing.

    Emulated nodes of one host are asked once, since they are one.
    """
    started = time.monotonic()
    folder = (job.folder / "nodes").resolve()
    folder.mkdir()
    status, ended_by = _ask(job, folder)
    captured = _captured(job.folder / "capture.log", folder, job=job)
    shutil.rmtree(folder)
    silent = [place.name for place in job.nodes if not any(_is(place.name, facts["hostname"]) for facts in captured)]
    nodes = {
        "schema_version": SCHEMA_VERSION,
        "emulated": job.spec.emulated,
        "container": {
            "runtime": job.system.container,
            "image": job.image_name,
            "digest": job.image.get("digest") or containers.image_identity(job.image_name),
        },
        "slurm": slurm_job.placement(job.job_id) if job.job_id else {},
        "code": provenance.commit(job.train_script.resolve().parent),
        "captured": captured,
        "silent": silent,
        "problem": "" if captured else ended_by or f"the command ended with status {status}; see capture.log",
        "differences": differing(captured),
    }
    write_json({**nodes, "seconds": round(time.monotonic() - started, 3)}, job.folder / NAME)
    return ended_by if ended_by.startswith("interrupted") else ""


def notes_of(folder: Path) -> tuple[str, ...]:
    """What a reader of an attempt should know of its nodes; nothing where they were not captured."""
    nodes = nodes_of(folder)
    if not nodes:
        return ()
    notes = [f"the nodes differ: {sentence(difference)}" for difference in nodes["differences"]]
    notes += [f"{name}: {problem}" for name, problem in _container_problems(nodes["captured"])]
    if nodes["problem"]:
        notes.insert(0, f"no node said what it is: {nodes['problem']}")
    elif nodes["silent"]:
        notes.insert(0, f"nodes that did not say what they are: {', '.join(nodes['silent'])}")
    return tuple(notes)


def _container_problems(captured: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    found = ((str(facts["hostname"]), facts["software"].get("problem")) for facts in captured)
    return [(name, problem) for name, problem in found if problem]


def nodes_of(folder: Path) -> dict[str, Any]:
    """Content of an attempt's `nodes.json`; empty where there is none."""
    try:
        content: dict[str, Any] = read_json(folder / NAME)
    except (OSError, ValueError):
        return {}
    return content


def where_it_ran(folder: Path, *, code_dir: Path) -> dict[str, Any]:
    """Keys of the run record that say with what and where a run was made, as its own ranks found it.

    Who publishes a run may be another process on another host, later; it stands in for what was not captured.
    """
    nodes = nodes_of(folder)
    captured = nodes.get("captured") or ()
    software = captured[0]["software"] if captured else {}
    return {
        "code": nodes.get("code") or provenance.commit(code_dir),
        "packages": software.get("packages", {}) if captured else provenance.package_versions(),
        "environment": software.get("environment", {}) if captured else provenance.environment(),
        "host": _host(captured[0]) if captured else provenance.host(),
        "nodes": nodes,
    }


def _host(facts: Mapping[str, Any]) -> dict[str, Any]:
    processor = facts["processor"]
    return {
        "hostname": facts["hostname"],
        "kernel": facts["kernel"],
        "processor": processor.get("model"),
        "cores": processor.get("cpus"),
        "memory_mib": facts["memory_mib"],
    }


def _ask(job: Job, folder: Path) -> tuple[int, str]:
    """Run `train.py capture` once on every node, outside the container; it asks inside for what the ranks find."""
    outside = dataclasses.replace(job, system=dataclasses.replace(job.system, container="none", image=""))
    if job.system.launcher == "local":
        outside = dataclasses.replace(outside, spec=dataclasses.replace(job.spec, nodes=1))
    inside = ["--", *words] if (words := jobs.in_container(job, "capture", "--only-software")) else []
    command = jobs.on_nodes(outside, "capture", f"--data-dir={job.spec.data_dir}", f"--folder={folder}", *inside)
    limits = dataclasses.replace(job.system, startup_limit_min=LIMIT_MIN)
    try:
        return supervise(command, output=job.folder / "capture.log", progress=job.folder / NAME, system=limits)
    except (OSError, subprocess.SubprocessError) as error:
        return 1, f"config: {command[0]} does not start: {error}"


def _captured(log: Path, folder: Path, *, job: Job) -> list[dict[str, Any]]:
    """Facts of every node that gave some, in the order of the allocation."""
    if not log.exists():
        return []
    with log.open(encoding="utf-8", errors="replace") as lines:
        files = node.said_by_nodes(lines)
    captured = []
    for file in files:
        try:
            captured.append(read_json(folder / file))
        except (OSError, ValueError):
            continue
    order = [place.name for place in job.nodes]
    places = [next((n for n, name in enumerate(order) if _is(name, facts["hostname"])), 0) for facts in captured]
    return [captured[n] for n in sorted(range(len(captured)), key=places.__getitem__)]


def _is(name: str, hostname: str) -> bool:
    """Whether a node of Slurm is a host: Slurm's names are mostly short, a host's own may have its domain."""
    return name == hostname or name.partition(".")[0] == hostname.partition(".")[0]
