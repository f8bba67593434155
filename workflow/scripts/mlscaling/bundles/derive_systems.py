"""Verdicts on system descriptions, made anew. Descriptions are evidence: a published one is its tree's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlscaling.described import Described, described_system
from mlscaling.files import read_json, write_json
from mlscaling.mlperf.summary import RunSummary
from mlscaling.spec import Point
from mlscaling.study import Study
from mlscaling.system_descriptions import verdict_on


def verdicts_on_descriptions(
    study: Study,
    *,
    root: Path,
    out: Path,
    logged: Callable[[Point], Sequence[int]],
) -> list[dict[str, Any]]:
    """Write `description_n{nodes}.json` of every system that is described; returns them in the order of the study.

    Args:
        root, out: folders of the evidence and of what is derived, in the layout of a bundle.
        logged: runs of a point that have a log.
    """
    systems: dict[tuple[str, int], list[Point]] = {}
    for point in study.points:
        systems.setdefault((point.system.name, point.nodes), []).append(point)
    verdicts = []
    for (system, nodes), points in systems.items():
        description = root / f"results/systems/{system}_n{nodes}.json"
        if not description.is_file():
            continue
        runs = [(point, run) for point in points for run in logged(point)]
        records = [root / f"results/runs/{point.path}/run_{run}.json" for point, run in runs]
        compliance = [out / f"results/validation/{point.path}/compliance_{run}.json" for point, run in runs]
        verdict = verdict_on(
            Described(**described_system(points[0], division=study.round.division)),
            contents=[read_json(path) for path in records if path.is_file()],
            summaries=[_summary(read_json(path)) for path in compliance],
            ruleset=study.round.name,
            description=description,
        )
        write_json(verdict, out / f"results/validation/{system}/description_n{nodes}.json")
        verdicts.append(verdict)
    return verdicts


def _summary(verdict: Mapping[str, Any]) -> RunSummary:
    return RunSummary.from_dict(verdict["summary"])
