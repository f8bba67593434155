"""Everything about the node that this process is on."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlscaling import provenance
from mlscaling.files import write_json
from mlscaling.inventory import accelerators, networks, processors, software, storage
from mlscaling.inventory.commands import Answer, answers
from mlscaling.whereabouts import own_address

INSIDE_LIMIT_S: Final = 60.0
"""A container's first start on a node may have to unpack its image."""
_LINE: Final = re.compile(r"mlscaling node \S+ is in (?P<file>\S+)$")


def say_facts(*, data_dir: Path, folder: Path, inside: Sequence[str] = ()) -> None:
    """What runs once on every node: write its facts into the folder, and print the file's name.

    Who collects opens the file by that name. It never listed the folder before, so a network file system has no old
    listing of it to show; facts on standard output would be cut into pieces by some launchers.
    """
    facts = facts_of_node(data_dir=data_dir, inside=inside)
    file = f"{facts['hostname']}.json"
    write_json(facts, folder / file)
    print(f"mlscaling node {facts['hostname']} is in {file}", flush=True)


def said_by_nodes(lines: Iterable[str]) -> list[str]:
    """Names of the files that nodes say they wrote."""
    found = (match["file"] for line in lines if (match := _LINE.search(line.rstrip())))
    return list(dict.fromkeys(Path(file).name for file in found))


def facts_of_node(*, data_dir: Path, inside: Sequence[str] = ()) -> dict[str, Any]:
    """Facts of the host, and of the software that ranks find on it.

    Args:
        data_dir: folder of prepared data.
        inside: command that prints `facts_of_software` inside the container that ranks run in; empty without one.
    """
    started = time.monotonic()
    commands = {**processors.COMMANDS, **accelerators.COMMANDS, **software.COMMANDS}
    replies = answers(commands)
    uname = platform.uname()
    outside = software.software(replies)
    facts = {
        "hostname": uname.node,
        "address": own_address(),
        "kernel": f"{uname.system} {uname.release}",
        "operating_system": outside["operating_system"],
        "processor": processors.processors(replies),
        "memory_mib": processors.memory_mib(),
        "accelerators": accelerators.accelerators(replies),
        "network": networks.networks(),
        "storage": storage.storage(data_dir),
        "software": _software_inside(inside) if inside else {**outside, "environment": provenance.environment()},
        "tools": _tools(replies),
    }
    return {**facts, "seconds": round(time.monotonic() - started, 3)}


def facts_of_software() -> dict[str, Any]:
    """Packages, libraries and environment where this process runs."""
    replies = answers(software.COMMANDS)
    return {**software.software(replies), "environment": provenance.environment()}


def _software_inside(command: Sequence[str]) -> dict[str, Any]:
    """What the command prints; a container runtime may print before it."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=INSIDE_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"problem": f"the container did not start: {type(error).__name__}"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            try:
                facts: dict[str, Any] = json.loads(line)
            except ValueError:
                break
            return facts
    sys.stderr.write(done.stderr)  # into the step's output; it may name what is private, so no fact is made of it
    return {"problem": f"the container gave no facts (status {done.returncode})"}


def _tools(replies: Mapping[str, Answer]) -> dict[str, str]:
    """Tool → `ok`, `absent` or how it failed; of several questions to one tool the first failure counts."""
    found: dict[str, str] = {}
    for name, answer in replies.items():
        tool = name.partition(" ")[0]
        if found.get(tool, "ok") == "ok":
            found[tool] = answer.status
    return found
