"""MLPerf system descriptions: read whatever a submitter wrote, and compare it with itself and with the logs.

Published descriptions hold numbers as text, `N/A`, empty and missing keys, trailing commas and byte order marks; none
of it raises. What contradicts is a finding: submitters copy a description from one system to the next.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mlscaling.mlperf import official
from mlscaling.mlperf.findings import Finding, Severity, has_errors
from mlscaling.mlperf.summary import RunSummary

SCHEMA_VERSION: Final = 1
UNKNOWN: Final = frozenset({"", "n/a", "na", "none", "null", "tbd", "unknown", "-"})
"""What submitters write where they say nothing."""
_GIB_TOLERANCE: Final = 0.08
"""GB against GiB, and 81,920 MiB against 80 GB: one memory in two units."""
_TEXTS: Final = {
    "submitter": "submitter",
    "division": "division",
    "status": "status",
    "name": "system_name",
    "accelerator": "accelerator_model_name",
    "accelerator_memory": "accelerator_memory_capacity",
    "processor": "host_processor_model_name",
    "host_memory": "host_memory_capacity",
    "networking": "host_networking",
    "framework": "framework",
    "operating_system": "operating_system",
}
"""Field → key of the description."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemDescription:
    """A `systems/<system>.json`. Missing words are empty, missing counts are None."""

    submitter: str = ""
    """`submitter`."""
    division: str = ""
    """`division`: closed or open."""
    status: str = ""
    """`status`: available, preview, research."""
    name: str = ""
    """`system_name`."""
    num_nodes: int | None = None
    """`number_of_nodes`."""
    accelerators_per_node: int | None = None
    """`accelerators_per_node`."""
    accelerator: str = ""
    """`accelerator_model_name`."""
    accelerator_memory: str = ""
    """`accelerator_memory_capacity`, as written."""
    processor: str = ""
    """`host_processor_model_name`."""
    host_memory: str = ""
    """`host_memory_capacity`, as written."""
    networking: str = ""
    """`host_networking`."""
    framework: str = ""
    """`framework`."""
    operating_system: str = ""
    """`operating_system`."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Every value that says something, nested keys joined by dots, e.g. `other_software_stack.nccl_version`."""
    problems: tuple[Finding, ...] = ()
    """What reading it met."""

    @property
    def num_accelerators(self) -> int | None:
        """Accelerators of all nodes; None where a count is missing."""
        if self.num_nodes is None or self.accelerators_per_node is None:
            return None
        return self.num_nodes * self.accelerators_per_node


def read_description(path: Path) -> SystemDescription:
    """Read a description as far as it can be read; `problems` says what could not.

    Raises:
        OSError: where the file cannot be read. No content raises.
    """
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    content, problem = _content(text)
    description = from_values(content)
    if problem:
        message = f"{path.name}: {problem}"
        found = Finding(check="description_not_json", severity="warning", message=message)
        return dataclasses.replace(description, problems=(found, *description.problems))
    return description


def from_values(content: Mapping[str, Any]) -> SystemDescription:
    """The description that a JSON object is; also that of a run record."""
    values = dict(_flat(content))
    texts: dict[str, Any] = {name: values.get(key, "") for name, key in _TEXTS.items()}
    counts: dict[str, int | None] = {}
    problems = []
    for name, key in (("num_nodes", "number_of_nodes"), ("accelerators_per_node", "accelerators_per_node")):
        counts[name] = _count(values.get(key, ""))
        if counts[name] is None:
            shown = repr(content[key]) if key in content else "missing"
            message = f"{key} is {shown}; a whole number is needed to compare it with anything"
            problems.append(Finding(check="description_incomplete", severity="warning", message=message))
    return SystemDescription(
        **texts,
        num_nodes=counts["num_nodes"],
        accelerators_per_node=counts["accelerators_per_node"],
        values=values,
        problems=tuple(problems),
    )


def check_description(
    description: SystemDescription, summaries: Sequence[RunSummary] = (), *, folder: str = ""
) -> tuple[Finding, ...]:
    """What a description contradicts: itself, the logs of its results, the folder that they lie in.

    Args:
        description: as read.
        summaries: of the logs that were published for it; may be empty.
        folder: name of its results folder; may be empty.
    """
    platforms = _distinct(summary.platform for summary in summaries)
    return (
        *description.problems,
        *_memory(description),
        *_identity(description, summaries, folder=folder),
        *(finding for name in _names(description, platforms, folder=folder) for finding in _counts(description, name)),
        *_logged_counts(description, summaries),
    )


def description_verdict(
    path: Path,
    summaries: Sequence[RunSummary] = (),
    *,
    ruleset: str,
    folder: str = "",
    found: Sequence[Finding] = (),
    with_official: bool = True,
) -> dict[str, Any]:
    """Our verdict on a description, with what else was `found`, and the official one beside it, as in other verdicts.

    Raises:
        OSError: where the file cannot be read.
    """
    findings = (*found, *check_description(read_description(path), summaries, folder=folder))
    answer = official.system_description(path, ruleset=ruleset) if with_official else None
    return {
        "schema_version": SCHEMA_VERSION,
        "description": path.name,
        "ruleset": ruleset,
        "passed": not has_errors(findings),
        "findings": [finding.to_dict() for finding in findings],
        "official": answer.to_dict() if answer else None,
    }


def memory_gb(text: str) -> float:
    """The first amount of memory in a text, in GB; NaN where there is none: `NVIDIA A100-PCIE-80GB (300W)` has 80."""
    match = re.search(r"(\d+(?:\.\d+)?)\s*([GMT])i?B\b", text, flags=re.IGNORECASE)
    if not match:
        return math.nan
    return float(match[1]) * {"M": 1 / 1024, "G": 1.0, "T": 1024.0}[match[2].upper()]


def plain_name(name: str) -> str:
    """A name as it compares: submitters put `1x` before one node and differ in case, blanks and dashes."""
    return re.sub(r"[\s_-]+", "", re.sub(r"^1x", "", name.strip().lower()))


def _content(text: str) -> tuple[dict[str, Any], str]:
    """The JSON object in a text, and what was wrong with it."""
    problem = ""
    for attempt in (text, re.sub(r",(\s*[}\]])", r"\1", text)):
        try:
            content = json.loads(attempt, strict=False)
        except (ValueError, RecursionError) as error:
            problem = problem or f"not JSON: {error}"
            continue
        if isinstance(content, dict):
            return content, f"{problem}; read without trailing commas" if problem else ""
        return {}, f"a description is a JSON object, not a {type(content).__name__}"
    return {}, problem


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every scalar that says something; a list of objects, as in `other_software_stack`, adds no level."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        for item in value:
            yield from _flat(item, name)
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value).strip()
        if value is not None and text.strip().lower() not in UNKNOWN:
            yield name, text


def _count(text: str) -> int | None:
    """A positive whole number as submitters write it: `4`, `4.0`, `"4"`, `8 nodes`."""
    match = re.match(r"(\d+)(?:\.0*)?(?=$|[\s(])", text.strip())
    return int(match[1]) if match and int(match[1]) > 0 else None


def _memory(description: SystemDescription) -> Iterator[Finding]:
    """Memory of one accelerator against the one in its model name, and against the one in the system's name."""
    stated = memory_gb(description.accelerator_memory)
    if math.isnan(stated):
        return
    # Some submitters state the memory of all accelerators of a node.
    legal = (stated, stated / (description.accelerators_per_node or 1))
    for key, name in (("accelerator_model_name", description.accelerator), ("system_name", description.name)):
        named = memory_gb(name)
        if named > 0 and not any(math.isclose(named, size, rel_tol=_GIB_TOLERANCE) for size in legal):
            message = f"accelerator_memory_capacity is {description.accelerator_memory!r}, but {key} is {name!r}"
            yield _finding("accelerator_memory", "warning", message)
            return


def _identity(description: SystemDescription, summaries: Sequence[RunSummary], *, folder: str) -> Iterator[Finding]:
    """Submitter, platform and division of the logs, and the folder's name, against the description's."""
    for check, severity, key, stated, logged in (
        ("submitter_differs", "warning", "submission_org", description.submitter, [s.organization for s in summaries]),
        ("platform_differs", "warning", "submission_platform", description.name, [s.platform for s in summaries]),
        ("division_differs", "error", "submission_division", description.division, [s.division for s in summaries]),
    ):
        for value in _distinct(logged):
            if stated and value and plain_name(value) != plain_name(stated):
                message = f"{key} is {value!r} in the logs, the description says {stated!r}"
                yield _finding(check, severity, message)  # type: ignore[arg-type]
    if folder and description.name and plain_name(folder) != plain_name(description.name):
        message = f"the results lie in {folder!r}, the description's system_name is {description.name!r}"
        yield _finding("folder_differs", "note", message)


def _names(description: SystemDescription, platforms: Sequence[str], *, folder: str) -> Iterator[tuple[str, str]]:
    """Every name that states counts, once, with the words that say whose it is."""
    named = [("system_name", description.name), ("the results folder", folder)]
    named += [("submission_platform", platform) for platform in platforms]
    seen: set[str] = set()
    for words, name in named:
        if name and plain_name(name) not in seen:
            seen.add(plain_name(name))
            yield words, name


def _counts(description: SystemDescription, named: tuple[str, str]) -> Iterator[Finding]:
    """Nodes and accelerators in a name such as `8xR750xax4A100-PCIE-80GB` against those of the description."""
    words, name = named
    nodes, per_node = description.num_nodes, description.accelerators_per_node
    in_front = re.match(r"(\d+)x(?=\D)", name)
    if in_front and nodes and int(in_front[1]) != nodes:
        message = f"{words} {name!r} says {in_front[1]} nodes, number_of_nodes is {nodes}"
        yield _finding("nodes_differ", "warning", message)
    count = _accelerators_in(name, description.accelerator)
    if count and per_node and count not in (per_node, description.num_accelerators):
        message = f"{words} {name!r} says {count} accelerators, accelerators_per_node is {per_node}"
        yield _finding("accelerators_differ", "warning", message)


def _accelerators_in(name: str, model: str) -> int | None:
    """The number right before the accelerator's model, `NVIDIA A100`: 4 in `XE8545x4A100`, none in `xe8545_a100`."""
    for token in re.findall(r"[A-Za-z]+\d+\w*", model):
        match = re.search(rf"(?<![\da-wyz])(\d+)x?[_-]?{re.escape(token)}", name, flags=re.IGNORECASE)
        if match:
            return int(match[1])
    return None


def _logged_counts(description: SystemDescription, summaries: Sequence[RunSummary]) -> Iterator[Finding]:
    """Counts that a log states, as those of this workflow do."""
    for key, stated in (
        ("number_of_nodes", description.num_nodes),
        ("accelerators_per_node", description.accelerators_per_node),
    ):
        for value in _distinct(summary.hyperparameters.get(key, "") for summary in summaries):
            if stated and value != "" and value != stated:
                message = f"{key} is {value!r} in the logs, the description says {stated}"
                yield _finding("nodes_differ" if key == "number_of_nodes" else "accelerators_differ", "error", message)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _finding(check: str, severity: Severity, message: str) -> Finding:
    return Finding(check=check, severity=severity, message=message)
