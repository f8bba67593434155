"""What Slurm says of a job's place: partition, nodes, and the switches between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mlscaling.inventory.commands import answers

MOST_SWITCHES: Final = 200
"""Kept of a large network: a job's own switches are among its leaves."""


def placement(job_id: str) -> dict[str, Any]:
    """Job, partition, node list, Slurm's version and switches; what Slurm does not tell is left out."""
    replies = answers(
        {
            "job": ("scontrol", "show", "job", "--oneliner", job_id),
            "topology": ("scontrol", "show", "topology"),
            "version": ("scontrol", "--version"),
        }
    )
    job = parse_job(replies["job"].text)
    return {
        "job_id": job_id,
        **job,
        **({"version": version} if (version := replies["version"].text.strip().rpartition(" ")[2]) else {}),
        **({"switches": switches} if (switches := parse_topology(replies["topology"].text)) else {}),
    }


def parse_job(text: str) -> dict[str, str]:
    """Partition and node list of a line of `scontrol show job --oneliner`."""
    found = {}
    for ours, name in (("partition", "Partition"), ("node_list", "NodeList")):
        match = re.search(rf"(?:^|\s){name}=(\S+)", text)
        if match and match[1] != "(null)":
            found[ours] = match[1]
    return found


def parse_topology(text: str) -> list[dict[str, Any]]:
    """Switches of `scontrol show topology`: name, level (0 has the nodes), its nodes or switches, compressed as there.

    Without a topology plugin there are none.
    """
    switches: list[dict[str, Any]] = []
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        if "SwitchName" in fields and fields.get("Level", "").isdigit():
            switch: dict[str, Any] = {"name": fields["SwitchName"], "level": int(fields["Level"])}
            switch |= {
                ours: fields[name] for ours, name in (("nodes", "Nodes"), ("switches", "Switches")) if name in fields
            }
            switches.append(switch)
    return switches[:MOST_SWITCHES]


def names_of_switches(placed: Sequence[dict[str, Any]]) -> str:
    """`2 levels: leaf1, leaf2 below spine1`, for people."""
    levels: dict[int, list[str]] = {}
    for switch in placed:
        levels.setdefault(switch["level"], []).append(switch["name"])
    shown = [", ".join(levels[level]) for level in sorted(levels)]
    return f"{len(levels)} level{'s' * (len(levels) > 1)}: {' below '.join(shown)}" if levels else ""
