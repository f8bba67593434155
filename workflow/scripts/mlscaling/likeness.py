"""Are the points of a curve alike? What differs between them, and whether it may explain an efficiency above 100 %.

A scaling curve compares node counts; it says something about nodes only as far as nothing else changes. What follows
from the batch policy (global batch, learning rate) is a note, what changes the work per accelerator or the machine
(gradient accumulation, precision, software, accelerator) a warning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mlscaling import evidence
from mlscaling.mlperf.findings import Severity
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import SystemDescription, from_values
from mlscaling.settings_of_nodes import Settings, settings_of_captured
from mlscaling.settings_of_runs import LOGGED, settings_of_description, settings_of_log, settings_of_record

SCHEMA_VERSION: Final = 1
_BATCH: Final = ("batch", "global_batch_size")
_FOLLOW_BATCH: Final = ("learning_rate", "schedule")
"""Kinds of settings that may change with the global batch; where that is equal they must not."""
_NOTES: Final = ("batch", "host_name", "firmware")
"""Kinds that differ between the points of every honest curve, or between the nodes of many a cluster."""
_SUSPECTS: Final = (
    "gradient_accumulation",
    "precision",
    "optimiser",
    "hyperparameter",
    "learning_rate",
    "schedule",
    "accelerator",
    "framework",
)
"""Kinds by how readily they explain a surprising efficiency; others come behind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One point of a curve with everything that is known of how it was measured."""

    nodes: int
    """Number of nodes."""
    summaries: Sequence[RunSummary] = ()
    """Of its logs."""
    records: Sequence[Mapping[str, Any]] = ()
    """Run records, `run_{run}.json`."""
    description: SystemDescription | None = None
    """MLPerf system description."""
    scaling: Mapping[str, Any] = field(default_factory=dict)
    """Its row of the scaling table: `efficiency`, `efficiency_low`, `efficiency_high`, `reference_nodes`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting that is not the same at all points."""

    kind: str
    """What it is about, e.g. `gradient_accumulation`, `software`; the finding's check."""
    setting: str
    """Name of the setting."""
    severity: Severity
    """`warning` where it can move time or convergence by itself, else `note`."""
    values: Mapping[int, tuple[str, ...]]
    """Nodes → its values in the point's runs; empty where the point does not state it."""

    @property
    def message(self) -> str:
        """`gradient_accumulation_steps is 8 at 1 node, 1 at 2 nodes`."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for nodes, values in self.values.items():
            groups.setdefault(values, []).append(nodes)
        shown = [f"{' and '.join(values) or 'not stated'} at {_nodes(nodes)}" for values, nodes in groups.items()]
        return f"{self.setting} is {', '.join(shown)}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object in the order of the verdict files, with the values beside the sentence."""
        values = {str(nodes): list(texts) for nodes, texts in self.values.items()}
        return {
            "check": self.kind,
            "severity": self.severity,
            "line": None,
            "message": self.message,
            "setting": self.setting,
            "values": values,
        }


def likeness(points: Sequence[CurvePoint], *, system: str, workload: str) -> dict[str, Any]:
    """The content of `likeness.json`.

    Args:
        points: of one curve.
        system, workload: whose curve it is.

    Returns:
        `findings`, warnings first, and `alarm`: None, or the points whose efficiency is above 100 % beyond its interval
        with the settings in which they differ from the reference.
    """
    points = sorted(points, key=lambda point: point.nodes)
    found = sorted(differences(points), key=_rank)
    return {
        "schema_version": SCHEMA_VERSION,
        "system": system,
        "workload": workload,
        "nodes": [point.nodes for point in points],
        "alike": not any(difference.severity == "warning" for difference in found),
        "findings": [difference.to_dict() for difference in found],
        "alarm": _alarm(points, found),
    }


def read_curve(
    *,
    scaling: str | Path,
    compliance: Iterable[str | Path],
    records: Iterable[str | Path],
    system: str,
    workload: str,
) -> list[CurvePoint]:
    """The points of a curve from the files of a study.

    Args:
        scaling: the scaling table.
        compliance: `…/{system}/{workload}/n{nodes}/compliance_{run}.json` of the curve's runs.
        records: `…/{system}/{workload}/n{nodes}/run_{run}.json`; a record's `description` is an MLPerf system
            description, as those of imported runs have it.
        system, workload: whose curve it is.
    """
    from mlscaling.tables import read_table

    summaries: dict[int, list[RunSummary]] = {}
    for (point, _), verdict in evidence.read_compliance(compliance).items():
        summaries.setdefault(_nodes_of(point), []).append(RunSummary.from_dict(verdict["summary"]))
    by_nodes: dict[int, list[Mapping[str, Any]]] = {}
    for path in map(Path, records):
        by_nodes.setdefault(_nodes_of(path.parent.name), []).append(json.loads(path.read_text(encoding="utf-8")))
    table = read_table(scaling, "scaling")
    rows = table[(table["system"] == system) & (table["workload"] == workload)].to_dict("records")
    return [
        CurvePoint(
            nodes=row["nodes"],
            summaries=summaries.get(row["nodes"], []),
            records=by_nodes.get(row["nodes"], []),
            description=_description(by_nodes.get(row["nodes"], [])),
            scaling=row,
        )
        for row in rows
    ]


def _nodes_of(point: str) -> int:
    return int(point.rpartition("/")[2].removeprefix("n"))


def _description(records: Sequence[Mapping[str, Any]]) -> SystemDescription | None:
    described = [record["description"] for record in records if record.get("description")]
    return from_values(described[0]) if described else None


def differences(points: Sequence[CurvePoint]) -> Iterator[Difference]:
    """Every setting that is stated and is not one value for all runs of all points."""
    settings = {point.nodes: settings_of_point(point) for point in points}
    for kind, name in dict.fromkeys(key for of_point in settings.values() for key in of_point):
        values = {nodes: of_point.get((kind, name), ()) for nodes, of_point in settings.items()}
        stated = [texts for texts in values.values() if texts]
        # A log names every hyper-parameter that it uses; a description may just be short.
        half_stated = kind in LOGGED and len(stated) < sum(bool(point.summaries) for point in points)
        if half_stated or len(set(stated)) > 1 or any(len(texts) > 1 for texts in stated):
            yield Difference(kind=kind, setting=name, severity=_severity(kind, values, settings), values=values)


def settings_of_point(point: CurvePoint) -> dict[tuple[str, str], tuple[str, ...]]:
    """(kind, name) → the distinct values in the point's runs."""
    merged: dict[tuple[str, str], dict[str, None]] = {}
    sources: list[Settings] = [settings_of_log(summary) for summary in point.summaries]
    sources += [settings_of_record(record) for record in point.records]
    sources += [settings for record in point.records for settings in settings_of_captured(record)]
    if point.description is not None:
        sources.append(settings_of_description(point.description))
    for source in sources:
        for key, value in source.items():
            merged.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in merged.items()}


def _severity(kind: str, values: Mapping[int, tuple[str, ...]], settings: Mapping[int, Any]) -> Severity:
    if kind in _NOTES:
        return "note"
    if kind not in _FOLLOW_BATCH:
        return "warning"
    by_batch: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for nodes, texts in values.items():
        by_batch.setdefault(settings[nodes].get(_BATCH, ()), set()).add(texts)
    return "warning" if any(len(group) > 1 for group in by_batch.values()) else "note"


def _rank(item: Difference) -> tuple[int, int, str]:
    suspicion = _SUSPECTS.index(item.kind) if item.kind in _SUSPECTS else len(_SUSPECTS)
    return ("error", "warning", "note").index(item.severity), suspicion, item.setting


def _alarm(points: Sequence[CurvePoint], found: Sequence[Difference]) -> dict[str, Any] | None:
    alarmed = [_alarmed(point, found) for point in points if _number(point.scaling.get("efficiency_low")) > 1]
    if not alarmed:
        return None
    return {"message": "; ".join(point["message"] for point in alarmed), "points": alarmed}


def _alarmed(point: CurvePoint, found: Sequence[Difference]) -> dict[str, Any]:
    """What one point with more than 100 % efficiency says, and how it differs from its reference."""
    row = point.scaling
    efficiency, low, high = (_number(row.get(f"efficiency{end}")) for end in ("", "_low", "_high"))
    reference = int(row["reference_nodes"])
    differing = [item for item in found if item.values.get(point.nodes) != item.values.get(reference)]
    suspects = [item for item in differing if item.severity == "warning"] or differing
    words = [f"{item.setting} {_shown(item, reference)} → {_shown(item, point.nodes)}" for item in suspects]
    explanation = f"settings that differ: {', '.join(words)}" if words else "no stated setting differs"
    message = (
        f"efficiency {100 * efficiency:.1f} % (95 % {100 * low:.1f} to {100 * high:.1f}) at {_nodes([point.nodes])} "
        f"against {_nodes([reference])}; {explanation}"
    )
    return {
        "nodes": point.nodes,
        "reference_nodes": reference,
        "efficiency": efficiency,
        "efficiency_low": low,
        "efficiency_high": high,
        "settings": [item.setting for item in suspects],
        "message": message,
    }


def _shown(item: Difference, nodes: int) -> str:
    return " and ".join(item.values.get(nodes, ())) or "not stated"


def _nodes(counts: Iterable[int]) -> str:
    numbers = sorted(counts)
    shown = " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))
    return f"{shown} node{'s' * (numbers != [1])}"


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
