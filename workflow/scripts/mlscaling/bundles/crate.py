"""`ro-crate-metadata.json`: a bundle as research-data tools read it, a Workflow Run RO-Crate 0.5.

The run of the workflow is one action: its instrument is the Snakefile, its objects are configuration, RCPs and dataset
manifests, its results logs, verdicts, tables, figures and the report. Built from a bundle's files alone, so that it can
be built again. Profiles: https://w3id.org/ro/wfrun/workflow/0.5 on Workflow RO-Crate 1.0 and RO-Crate 1.1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mlscaling.bundles import layout
from mlscaling.files import read_json
from mlscaling.study import Study

WORKFLOW_PROFILE: Final = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES: Final = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    WORKFLOW_PROFILE: ("Workflow RO-Crate", "1.0"),
}
SPECIFICATION: Final = "1.1"
_MEDIA: Final[Mapping[str, str]] = {
    ".json": "application/json",
    ".yaml": "application/yaml",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".html": "text/html",
    ".rst": "text/x-rst",
    ".md": "text/markdown",
    ".diff": "text/x-diff",
    ".txt": "text/plain",
    ".log": "text/plain",
}
_FOLDERS: Final[Mapping[str, str]] = {
    "results/runs/": "MLPerf logs and run records",
    "results/attempts/": "Every attempt at a run, failed ones included, with the output of all ranks",
    "results/validation/": "Verdicts on logs, points and curves, with reasons",
    "results/tables/": "Tables of runs, points and scaling, and their summary",
    "results/plots/": "Figures with their data and captions",
    "results/rcps/": "Reference convergence points made of the study's runs",
    "results/systems/": "System descriptions",
    "config/": "Configuration as resolved, and the files it came from",
    "datasets/": "Manifests of the datasets",
    "environment/": "Package versions, lock file, commit and uncommitted changes, containers",
    "workflow/": "The workflow's own files; the commit is in environment/code.json",
}
LICENSE_NOTE: Final = "No licence was stated; ask whoever gave you this bundle."
_EPOCH: Final = datetime(1980, 1, 1, tzinfo=UTC)


def metadata(root: Path, study: Study, names: Iterable[str]) -> str:
    """The text of `ro-crate-metadata.json`.

    Args:
        root: folder of the bundle, everything else in it.
        study: its study.
        names: files of the bundle, without the metadata and the manifest.
    """
    from rocrate.rocrate import ROCrate

    description = read_json(root / layout.STUDY)
    started, ended = _span(root, study)
    crate = ROCrate(version=SPECIFICATION)
    crate.metadata.extra_terms["sha256"] = "http://schema.org/sha256"  # not yet in the context of RO-Crate 1.1
    files = _add_files(crate, root, sorted(names))
    root_entity = crate.root_dataset
    root_entity["conformsTo"] = [
        _context(crate, uri, "CreativeWork", name, version=v) for uri, (name, v) in PROFILES.items()
    ]
    crate.metadata["conformsTo"] = [{"@id": f"https://w3id.org/ro/crate/{SPECIFICATION}"}, {"@id": WORKFLOW_PROFILE}]
    crate.name = f"{study.title} ({description['status']})"
    crate.description = (
        f"Scaling study {study.name}, MLPerf Training round {study.round.name}: raw logs, verdicts, tables and "
        "figures, with what is needed to make them again."
    )
    crate.datePublished = ended
    crate.license = _context(crate, "#licence", "CreativeWork", LICENSE_NOTE)
    organization = _context(crate, "#organization", "Organization", ", ".join(_organizations(root, study)) or "unknown")
    root_entity["author"] = root_entity["publisher"] = organization
    root_entity["mainEntity"] = files[layout.WORKFLOW]
    files[layout.README]["about"] = root_entity
    action = _action(crate, files, description=description, span=(started, ended))
    action["agent"] = organization
    root_entity["mentions"] = action
    graph = crate.metadata.generate()
    graph["@graph"] = sorted(graph["@graph"], key=lambda entity: (entity["@id"] != layout.CRATE, entity["@id"]))
    return json.dumps(graph, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _context(crate: Any, identifier: str, kind: str, name: str, **properties: str) -> Any:
    from rocrate.model.contextentity import ContextEntity

    return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, "name": name, **properties}))


def _add_files(crate: Any, root: Path, names: list[str]) -> dict[str, Any]:
    """File entities for what a reader looks for, with their hashes; folders for the rest."""
    from rocrate.model.computationalworkflow import ComputationalWorkflow

    files = {}
    for name in names:
        if _is_named(name):
            path = root / name
            about = {"name": Path(name).name, "contentSize": str(path.stat().st_size), "sha256": _sha256(path)}
            if media := _MEDIA.get(path.suffix):
                about["encodingFormat"] = media
            if name == layout.WORKFLOW:
                commit = read_json(root / "environment/code.json")["commit"]
                about |= {"name": "Multi-node scaling studies of MLPerf-style training", "version": commit or "unknown"}
                about |= {"encodingFormat": "text/x-snakemake"}
                files[name] = crate.add(ComputationalWorkflow(crate, dest_path=name, properties=about))
                files[name]["programmingLanguage"] = _snakemake(crate, root)
                files[name]["conformsTo"] = {"@id": "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"}
            else:
                files[name] = crate.add_file(dest_path=name, properties=about)
    for folder, title in _FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            crate.add_dataset(dest_path=folder, properties={"name": title})
    return files


def _is_named(name: str) -> bool:
    """Files that are entities of their own, not only part of a folder."""
    of_study = name in (layout.STUDY, layout.INDEX, layout.README, layout.WORKFLOW)
    shown = name.startswith(("results/tables/", "results/plots/")) and not name.endswith(".rst")
    return of_study or shown or name.startswith(("config/", "datasets/", "environment/")) or "/result_" in name


def _snakemake(crate: Any, root: Path) -> Any:
    from rocrate.model.computerlanguage import ComputerLanguage

    version = read_json(root / "environment/packages.json").get("snakemake", "unknown")
    language = {
        "@type": ["ComputerLanguage", "SoftwareApplication"],
        "name": "Snakemake",
        "version": version,
        "url": {"@id": "https://snakemake.github.io"},
        "identifier": {"@id": "https://doi.org/10.1093/bioinformatics/bts480"},
    }
    return crate.add(
        ComputerLanguage(crate, "https://w3id.org/workflowhub/workflow-ro-crate#snakemake", properties=language)
    )


def _action(crate: Any, files: Mapping[str, Any], *, description: Mapping[str, Any], span: tuple[str, str]) -> Any:
    from rocrate.model.contextentity import ContextEntity

    inputs = [entity for name, entity in files.items() if name.startswith(("config/", "datasets/"))]
    results = [entity for name, entity in files.items() if name.startswith("results/") or name == layout.INDEX]
    complete = description["status"] == "complete"
    missing = (
        f"; {len(description['missing_runs'])} of {description['num_runs']} runs are missing" if not complete else ""
    )
    about = {
        "@type": "CreateAction",
        "name": f"Run of the workflow for study {description['name']}{missing}",
        "startTime": span[0],
        "endTime": span[1],
        "actionStatus": f"http://schema.org/{'Completed' if complete else 'Failed'}ActionStatus",
        "description": f"Trained or imported, validated and scored by the rules of round {description['round']}.",
    }
    if not complete:
        about["error"] = f"the study is incomplete{missing}"
    action = crate.add(ContextEntity(crate, f"#run-{description['name']}", properties=about))
    action["instrument"] = files[layout.WORKFLOW]
    action["object"] = inputs
    action["result"] = results
    return action


def _span(root: Path, study: Study) -> tuple[str, str]:
    """First `run_start` and last `run_stop` of all logs: the only dates in a bundle, so that it is always the same."""
    starts, stops = [], []
    for point in study.points:
        for path in sorted((root / f"results/validation/{point.path}").glob("compliance_*.json")):
            summary = read_json(path)["summary"]
            starts += [summary["run_start_ms"]] if summary["run_start_ms"] else []
            stops += [summary["run_stop_ms"]] if summary["run_stop_ms"] else []
    return _date(min(starts, default=None)), _date(max(stops, default=None))


def _organizations(root: Path, study: Study) -> list[str]:
    """Who ran, as the logs say."""
    found = set()
    for point in study.points:
        for path in (root / f"results/validation/{point.path}").glob("compliance_*.json"):
            found.add(str(read_json(path)["summary"]["organization"]))
    return sorted(found - {"", "unspecified"})


def _date(milliseconds: float | None) -> str:
    date = _EPOCH if milliseconds is None else datetime.fromtimestamp(milliseconds // 1000, tz=UTC)
    return date.isoformat()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
