"""The system description of an entry: the published one, the captured one, or the little that is known without both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling.files import read_json
from mlscaling.mlperf import rounds
from mlscaling.mlperf.system import UNKNOWN
from mlscaling.results_tree import Results, results_of
from mlscaling.submission.entries import Entry
from mlscaling.submission.plan import SubmissionPlan

MINIMAL: Final = (
    "Written from the study's configuration and run records alone. It does not describe the hardware and is not to be "
    "submitted."
)
"""What a minimal description says of itself."""

RESEARCH: Final = "Research, Development, or Internal (RDI)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A `systems/<system>.json` to be."""

    content: bytes
    """Its bytes."""
    source: str
    """Where they come from, for people."""
    complete: bool
    """False where it is only the minimal one."""


def descriptions_of(entries: list[Entry], plan: SubmissionPlan, results: Path) -> dict[tuple[str, str], Description]:
    """(submitter, system folder) → description.

    Args:
        entries: what is submitted.
        plan: names the tree of published results.
        results: `results/<study>/`, whose `systems/` hold captured descriptions.

    Raises:
        ValueError: the published tree is not there, or has no description of a published system; says where it looked.
    """
    found: dict[tuple[str, str], Description] = {}
    trees = published_results(plan)
    for entry in entries:
        key = (entry.submitter, entry.point.system_folder)
        if key in found:
            continue
        if entry.point.published is not None:
            found[key] = _published(entry, trees)
        else:
            found[key] = _captured(entry, plan, results) or _minimal(entry, plan)
    return found


def published_results(plan: SubmissionPlan) -> dict[tuple[str, str, str], Results]:
    """(submitter, system, benchmark) → where it lies in the published tree; empty where nothing was published."""
    submitters = sorted({point.published.submitter for point in plan.points if point.published is not None})
    if not submitters:
        return {}
    found = results_of(Path(plan.published_root), submitters=submitters)
    return {(one.submitter, one.system, one.benchmark): one for one in found}


def _published(entry: Entry, trees: Mapping[tuple[str, str, str], Results]) -> Description:
    key = (entry.submitter, entry.point.system_folder, entry.point.benchmark_folder)
    found = trees.get(key)
    if found is None or found.description is None:
        raise ValueError(f"{entry.point.path}: the published tree has no systems/{entry.point.system_folder}.json")
    return Description(
        content=found.description.read_bytes(), source=f"published {found.description.name}", complete=True
    )


def _captured(entry: Entry, plan: SubmissionPlan, results: Path) -> Description | None:
    """What the nodes said of themselves at this node count, with whose submission it is."""
    path = results / "systems" / f"{entry.point.system}_n{entry.point.nodes}.json"
    if not path.is_file():
        return None
    content, whose = read_json(path), _whose(entry, plan)
    if str(content.get("status", "")).strip().lower() not in UNKNOWN:
        whose["status"] = content["status"]
    content = {**content, **whose, "system_name": entry.point.system_folder}
    return Description(content=_bytes(content), source=f"captured {path.name}", complete=True)


def _minimal(entry: Entry, plan: SubmissionPlan) -> Description:
    point = entry.point
    record: Mapping[str, Any] = entry.records[0] if entry.records else {}
    host, packages = record.get("host") or {}, record.get("packages") or {}
    content = {
        **_whose(entry, plan),
        "system_name": point.system_folder,
        "number_of_nodes": str(point.nodes),
        "host_processor_model_name": str(host.get("processor") or ""),
        "accelerators_per_node": str(point.accelerators_per_node),
        "accelerator_model_name": point.accelerator,
        "framework": f"PyTorch {packages['torch']}" if "torch" in packages else "",
        "operating_system": str(host.get("kernel") or ""),
        "hw_notes": MINIMAL,
        "sw_notes": MINIMAL,
    }
    return Description(content=_bytes(content), source="configuration and run records", complete=False)


def _whose(entry: Entry, plan: SubmissionPlan) -> dict[str, str]:
    # The checker prescribes the words since round 4.0.
    status = RESEARCH if rounds.version(plan.ruleset) >= (4, 0) else "research"
    return {"submitter": entry.submitter, "division": plan.division, "status": status}


def _bytes(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=4) + "\n").encode()
