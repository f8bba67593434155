"""What the captured nodes contradict: the system file, one another, and the counts that the runs state."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mlscaling.described import Described
from mlscaling.mlperf import words_of_nodes as words
from mlscaling.mlperf.description import KEYS, NOTHING, nodes_of
from mlscaling.mlperf.findings import Finding, Severity
from mlscaling.mlperf.system import memory_gb
from mlscaling.settings_of_nodes import differing

_GIB_TOLERANCE: Final = 0.08
"""81,251 MiB are sold as 80 GB."""
_KINDS: Final = frozenset({"host", "accelerator", "software", "network", "storage"})
"""Kinds of settings that a description is about."""


def check_nodes(
    described: Described, records: Sequence[Mapping[str, Any]], values: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """Findings about a description that was made from nodes.

    Args:
        described: whose it is.
        records: of its runs.
        values: the description as made.
    """
    return (
        *_captured(described, records),
        *_unlike(records),
        *(_accelerators(described, records) if described.device == "cuda" else ()),
        *_unsaid(described, values),
    )


def _captured(described: Described, records: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Every run's nodes said what they are, and are as many as the run had; emulated ones may be one host."""
    without = [record for record in records if not nodes_of([record])]
    if len(without) == len(records):
        yield _finding("nodes_unknown", "warning", "no run says what its nodes are; the description knows counts only")
        return
    if without:
        message = f"{len(without)} of {len(records)} runs do not say what their nodes are"
        yield _finding("nodes_unknown", "warning", message)
    counts = {len(nodes_of([record])) for record in records if record not in without}
    odd = counts - {described.nodes} - ({1} if described.emulated else set())
    if odd:
        shown = " and ".join(map(str, sorted(odd)))
        message = f"runs at {described.nodes} nodes heard of {shown}; the others did not say what they are"
        yield _finding("nodes_silent", "warning", message)


def _unlike(records: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    names = [item["setting"] for item in differing(nodes_of(records)) if item["kind"] in _KINDS]
    if names:
        message = f"the nodes differ in {', '.join(names)}; the description says what most of them say"
        yield _finding("nodes_unlike", "warning", message)


def _accelerators(described: Described, records: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    nodes = nodes_of(records)
    counts = sorted({len(words.devices(node)) for node in nodes})
    if not nodes:
        return
    if counts == [0]:
        yield _finding("accelerators_unknown", "warning", "no node says what its accelerators are")
        return
    used = described.accelerators_per_node
    if counts[0] < used:
        message = f"a node has {counts[0]} accelerators, the run uses {used} on each"
        yield _finding("accelerators_differ", "error", message)
    if counts[-1] > used:
        yield _finding(
            "accelerators_idle", "note", f"a node has {counts[-1]} accelerators, the run uses {used} of them"
        )
    for name in dict.fromkeys(filter(None, map(words.accelerator_name, nodes))):
        if _models(name).isdisjoint(_models(described.accelerator)):
            message = f"accelerator is {described.accelerator!r} in the system file, the nodes say {name!r}"
            yield _finding("accelerator_differs", "warning", message)
    yield from _memory(described, nodes)


def _memory(described: Described, nodes: Sequence[words.Node]) -> Iterator[Finding]:
    """Memory that the system file states, in a model's name or by itself, against that of the nodes."""
    stated = {
        "accelerator": described.accelerator,
        "description.accelerator_memory_capacity": described.said.get("accelerator_memory_capacity", ""),
    }
    for real in dict.fromkeys(filter(None, map(words.accelerator_memory, nodes))):
        for key, text in stated.items():
            size = memory_gb(text)
            if not math.isnan(size) and not math.isclose(size, memory_gb(real), rel_tol=_GIB_TOLERANCE):
                message = f"{key} is {text!r} in the system file, the nodes say {real}"
                yield _finding("accelerator_memory", "warning", message)


def _models(name: str) -> set[str]:
    """`{'A100', 'SXM4'}` of `NVIDIA A100-SXM4-80GB (400W)`."""
    return set(re.findall(r"[A-Z]+\d+[A-Z]*", name.upper())) or {name.upper()}


def _unsaid(described: Described, values: Mapping[str, Any]) -> Iterator[Finding]:
    unsaid = [key for key in KEYS if values.get(key) == NOTHING]
    if unsaid:
        message = (
            f"not known: {', '.join(unsaid)}; what you know of them goes under `description` in "
            f"config/systems/{described.system}.yaml"
        )
        yield _finding("not_said", "note", message)


def _finding(check: str, severity: Severity, message: str) -> Finding:
    return Finding(check=check, severity=severity, message=message)
