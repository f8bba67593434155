"""`study.json` and `environment/containers.json`: what a bundle is, in a form that the first reader understands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlscaling import evidence
from mlscaling.bundles import environment, layout
from mlscaling.files import read_json
from mlscaling.study import Study

SCHEMA_VERSION: Final = 1
_RUN_FILE: Final = re.compile(r"(?:result|run)_(\d+)\.(?:txt|json)")


def describe(root: Path, study: Study, *, left_out: Mapping[str, str]) -> dict[str, Any]:
    """The content of `study.json`, from the evidence below a bundle's root.

    Args:
        root: folder of the bundle.
        study: its study.
        left_out: files that stayed behind, and why.
    """
    missing = missing_runs(root, study)
    packages, code = read_json(root / "environment/packages.json"), read_json(root / "environment/code.json")
    return {
        "schema_version": SCHEMA_VERSION,
        "name": study.name,
        "title": study.title,
        "round": study.round.name,
        "scale": study.scale,
        "status": "incomplete" if missing else "complete",
        "num_runs": sum(point.num_runs for point in study.points),
        "missing_runs": missing,
        "unplanned": unplanned(root, study),
        "published_by": sorted({point.published.submitter for point in study.points if point.published}),
        "anonymized": study.anonymize,
        "commit": code["commit"],
        "dirty": code["dirty"],
        "machine": code["machine"],
        "versions": environment.makers(packages),
        "schema_versions": {"planned": 1, "run_record": _record_versions(root, study), "compliance": 1, "rcp": 1},
        "left_out": dict(sorted(left_out.items())),
    }


def missing_runs(root: Path, study: Study) -> list[dict[str, Any]]:
    """Planned runs without a log: tried and failed, or not tried at all."""
    attempts = evidence.read_attempts(root / "results/attempts")
    missing: list[dict[str, Any]] = []
    for point in study.points:
        for run in range(point.num_runs):
            if not (root / f"results/runs/{point.path}/result_{run}.txt").is_file():
                tried = attempts.get((point.path, run), [])
                last = tried[-1] if tried else {}
                failed = last.get("status") == "failed"
                reason = f"{last.get('failure_class')}: {last.get('message')}" if failed else _unfinished(last)
                missing.append({"point": point.path, "run": run, "num_attempts": len(tried), "reason": reason})
    return missing


def _unfinished(last: Mapping[str, Any]) -> str:
    status = last.get("status")
    return {"completed": "completed, but not taken over", "running": "unfinished"}.get(str(status), "not tried")


def unplanned(root: Path, study: Study) -> list[str]:
    """Logs, records and attempts of runs that the study's configuration does not have (any more)."""
    planned = {point.path: point.num_runs for point in study.points}
    found = []
    for path in sorted((root / "results/runs").glob("*/*/n*/*")):
        match = _RUN_FILE.fullmatch(path.name)
        if match and int(match[1]) >= planned.get("/".join(path.parts[-4:-1]), 0):
            found.append(path.relative_to(root).as_posix())
    for folder in sorted((root / "results/attempts").glob("*/*/n*/run_*")):
        if int(folder.name.removeprefix("run_")) >= planned.get("/".join(folder.parts[-4:-1]), 0):
            found.append(folder.relative_to(root).as_posix())
    return found


def _record_versions(root: Path, study: Study) -> list[int]:
    records = [
        root / f"results/runs/{point.path}/run_{run}.json" for point in study.points for run in range(point.num_runs)
    ]
    return sorted({int(read_json(record)["schema_version"]) for record in records if record.is_file()})


def containers(root: Path, study: Study) -> dict[str, Any]:
    """System → what wrapped its ranks' commands, as the run records have it, with its digest."""
    found: dict[str, list[dict[str, Any]]] = {}
    for point in study.points:
        for run in range(point.num_runs):
            path = root / f"results/runs/{point.path}/run_{run}.json"
            record = read_json(path) if path.is_file() else {}
            system = record.get("system") or {}
            used = {name: system[name] for name in ("container", "image") if system.get(name)}
            used |= {
                name: record[name] for name in ("container", "container_digest", "image_digest") if record.get(name)
            }
            if used and used not in found.setdefault(point.system.name, []):
                found[point.system.name].append(used)
    return dict(sorted(found.items()))


def manifest(hashes: Mapping[str, str]) -> str:
    """`manifest-sha256.txt`, in the form of `sha256sum`."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items()) if name != layout.MANIFEST)


def read_manifest(text: str) -> dict[str, str]:
    """Name → hash.

    Raises:
        ValueError: a line is of another form, or a name is given twice; says which line.
    """
    hashes: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not match or match[2] in hashes:
            raise ValueError(f"{layout.MANIFEST}: line {number} is not `<sha256>  <file>`, or names a file again")
        hashes[match[2]] = match[1]
    return hashes
