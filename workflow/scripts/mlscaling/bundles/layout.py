"""What belongs where in a bundle. A file that is neither evidence nor follows from it is a stranger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mlscaling.study import Study

STUDY, CONFIG, GIVEN, MANIFEST, CRATE = (
    "study.json",
    "config/study.json",
    "config/given.yaml",
    "manifest-sha256.txt",
    "ro-crate-metadata.json",
)
INDEX, README, CONTAINERS = "index.html", "README.md", "environment/containers.json"
WORKFLOW: Final = "workflow/Snakefile"
_POINT: Final = r"[^/]+/[^/]+/n[1-9]\d*"
_EVIDENCE: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"results/runs/{_POINT}/(result_\d+\.txt|run_\d+\.json)",
        rf"results/attempts/{_POINT}/run_\d+/attempt_\d+/.+",
        r"results/systems/.+",
        r"workflow/rules/[a-z_]+\.smk",
        r"environment/(constraints\.txt|workflow\.txt|train\.txt|changes\.diff)",
    )
)
"""Files of evidence whose number depends on what happened."""


def config_files(study: Study) -> list[str]:
    """Configuration that the study rests on, by names below the top of a bundle, which are those of a checkout."""
    points = study.points
    names = [f"config/systems/{point.system.name}.yaml" for point in points]
    names += [f"config/workloads/{point.workload.name}.yaml" for point in points]
    names += [f"config/datasets/{name}.yaml" for name in study.datasets]
    return sorted({*names, f"config/rounds/{study.round.name}.yaml"})


def rcp_files(study: Study, folder: Path) -> list[str]:
    """Files of RCPs that the points are compared with, as far as they are below a folder."""
    sources = {point.settings.rcps for point in study.points} - {"", "official"}
    return sorted(source for source in sources if (folder / source).is_file())


def official_rcps(study: Study) -> dict[str, str]:
    """MLPerf benchmark → place in a bundle, for the points that are compared with MLPerf's own RCPs."""
    benchmarks = {p.workload.mlperf_benchmark for p in study.points if p.settings.rcps == "official"}
    return {name: f"config/rcps/official/rcps_{name}.json" for name in sorted(benchmarks)}


def manifests(study: Study) -> dict[str, str]:
    """Dataset → place of its manifest."""
    return {name: f"datasets/{name}/manifest.json" for name in study.datasets}


def required(study: Study) -> Iterator[str]:
    """Evidence that every bundle has, whatever happened."""
    yield from (CONFIG, "environment/packages.json", "environment/code.json", "environment/constraints.txt", WORKFLOW)
    yield from config_files(study)


def named(study: Study, folder: Path) -> frozenset[str]:
    """Files of evidence that the configuration names, whether they are there or not."""
    places = (*required(study), *manifests(study).values(), *official_rcps(study).values(), *rcp_files(study, folder))
    return frozenset((GIVEN, *places))


def is_evidence(name: str, known: frozenset[str]) -> bool:
    """Whether a file belongs in a bundle though nothing in it makes it; `known` are those that the study names."""
    return name in known or any(rule.fullmatch(name) for rule in _EVIDENCE)
