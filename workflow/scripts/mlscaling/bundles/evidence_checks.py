"""Does the evidence of a bundle belong together? Each log, its record and its attempts are witnesses of each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlscaling.attempt_folders import attempt_folders
from mlscaling.bundles import layout
from mlscaling.bundles.collect import official_rcps
from mlscaling.bundles.comparing import Difference, Makers
from mlscaling.files import read_json
from mlscaling.spec import Point
from mlscaling.study import Study, run_spec


def check_evidence(root: Path, study: Study) -> Iterator[Difference]:
    """Every contradiction between the pieces of evidence."""
    for name in layout.required(study):
        if not (root / name).is_file():
            yield Difference(file=name, message="is missing")
    for point in study.points:
        for run in range(point.num_runs):
            name = f"results/runs/{point.path}/run_{run}.json"
            yield from _guarded(name, _of_run(root, study, point, run))
    for folder in sorted((root / "results/attempts").glob("*/*/n*/run_*")):
        yield from _guarded(folder.relative_to(root).as_posix(), _of_attempts(root, folder))
    for dataset, name in layout.manifests(study).items():
        yield from _guarded(name, _of_dataset(root, study, dataset, name))


def _guarded(name: str, found: Iterator[Difference]) -> Iterator[Difference]:
    """A piece of evidence from anywhere may hold anything: what reading it raises is a difference, too."""
    try:
        yield from found
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        yield Difference(file=name, message=f"is not what it should be: {type(error).__name__}: {error}")


def notes_on_evidence(root: Path, study: Study, checkout: Path, makers: Makers) -> Iterator[str]:
    """What a reader should know though it contradicts nothing."""
    for benchmark, name in layout.official_rcps(study).items():
        if (root / name).is_file() and (root / name).read_bytes() != official_rcps(benchmark, study.round.name):
            yield f"{name}: the mlperf_logging that is installed here has other RCPs of round {study.round.name}"
    rules = [f"workflow/rules/{path.name}" for path in sorted((root / "workflow/rules").glob("*.smk"))]
    here = {name: name.removeprefix("workflow/") for name in (layout.WORKFLOW, *rules)}
    here |= {name: name for name in (*layout.config_files(study), *layout.rcp_files(study, root))}
    others = [
        name
        for name, path in here.items()
        if (root / name).is_file()
        and (not (checkout / path).is_file() or (checkout / path).read_bytes() != (root / name).read_bytes())
    ]
    if others:
        yield f"differs from this checkout, and counts as it is in the bundle: {', '.join(others)}"
    if differing := makers.differing():
        versions = (f"{name} {there} there, {mine} here" for name, (there, mine) in differing.items())
        yield f"made with other versions: {', '.join(versions)}"


# --- one run ----------------------------------------------------------------------------------------------------------


def _of_run(root: Path, study: Study, point: Point, run: int) -> Iterator[Difference]:
    log, record = (f"results/runs/{point.path}/{name}" for name in (f"result_{run}.txt", f"run_{run}.json"))
    there = [(root / name).is_file() for name in (log, record)]
    if there == [True, False]:
        yield Difference(file=record, message=f"is missing, though {log} is there")
    if there == [False, True]:
        yield Difference(file=log, message=f"is missing, though {record} is there")
    if not all(there):
        return
    sha256, content = _sha256(root / log), read_json(root / record)
    if content["log_sha256"] != sha256:
        yield Difference(
            file=log, message=f"was changed: its sha256 is {sha256}, {record} says {content['log_sha256']}"
        )
    if point.published is not None:
        yield from _of_import(point, run, content, name=record)
    else:
        yield from _of_training(root, study, point, run, content, name=record, sha256=sha256)


def _of_import(point: Point, run: int, record: Mapping[str, Any], *, name: str) -> Iterator[Difference]:
    source, published = record["source"], point.published
    assert published is not None
    if source["sha256"] != record["log_sha256"]:
        yield Difference(file=name, where="source.sha256", found=source["sha256"], expected=record["log_sha256"])
    parts = ("results", published.system, published.benchmark, f"result_{run}.txt")
    if not f"/{source['log']}".endswith("/" + "/".join(parts)):
        yield Difference(file=name, where="source.log", found=source["log"], expected="…/" + "/".join(parts))


def _of_training(
    root: Path, study: Study, point: Point, run: int, record: Mapping[str, Any], *, sha256: str, name: str
) -> Iterator[Difference]:
    expected = json.loads(run_spec(study, point, run=run).to_json())
    for key in sorted(expected.keys() | record["spec"].keys()):
        if expected.get(key) != record["spec"].get(key):
            found = json.dumps(record["spec"].get(key))
            yield Difference(file=name, where=f"spec.{key}", found=found, expected=json.dumps(expected.get(key)))
    attempts = f"results/attempts/{point.path}/run_{run}"
    folders = attempt_folders(root / attempts)
    recorded = {attempt["attempt"]: attempt for attempt in record["attempts"]}
    for folder in folders:
        number = int(folder.name.removeprefix("attempt_"))
        if number not in recorded:
            yield Difference(file=f"{attempts}/{folder.name}", message=f"is an attempt that {name} does not know")
        elif read_json(folder / "attempt.json") != recorded[number]:
            yield Difference(
                file=f"{attempts}/{folder.name}/attempt.json", message=f"is not what {name} says of this attempt"
            )
    for number in sorted(recorded.keys() - {int(folder.name.removeprefix("attempt_")) for folder in folders}):
        yield Difference(file=f"{attempts}/attempt_{number}", message=f"is missing, though {name} lists it")
    yield from _of_published_attempt(root, f"{attempts}/attempt_{record['published_attempt']}", record, sha256=sha256)


def _of_published_attempt(root: Path, folder: str, record: Mapping[str, Any], *, sha256: str) -> Iterator[Difference]:
    """The attempt whose log became the run's."""
    log, spec = root / folder / "mlperf.log", root / folder / "spec.json"
    if not log.is_file():
        yield Difference(file=f"{folder}/mlperf.log", message="is missing: the run's log was made by this attempt")
    elif _sha256(log) != sha256:
        yield Difference(file=f"{folder}/mlperf.log", message="is not the log that was published for the run")
    if not spec.is_file():
        yield Difference(file=f"{folder}/spec.json", message="is missing")
    elif {**read_json(spec), "data_dir": ""} != record["spec"]:
        yield Difference(file=f"{folder}/spec.json", message="is not the spec that the run record has")


def _of_attempts(root: Path, folder: Path) -> Iterator[Difference]:
    """Numbered without a gap, each named as its record says."""
    name = folder.relative_to(root).as_posix()
    numbers = [int(path.name.removeprefix("attempt_")) for path in attempt_folders(folder)]
    for number in sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers)):
        yield Difference(file=f"{name}/attempt_{number}", message="is missing, though a later attempt is there")
    for number in numbers:
        path = folder / f"attempt_{number}/attempt.json"
        if not path.is_file():
            yield Difference(file=f"{name}/attempt_{number}/attempt.json", message="is missing")
            continue
        said = read_json(path)
        where = (said.get("run"), said.get("attempt"))
        if where != (int(folder.name.removeprefix("run_")), number):
            message = f"says that it is of run {where[0]}, attempt {where[1]}"
            yield Difference(file=f"{name}/attempt_{number}/attempt.json", message=message)


def _of_dataset(root: Path, study: Study, dataset: str, name: str) -> Iterator[Difference]:
    """A manifest for a dataset that a run was trained on, made as the dataset's file says."""
    points = [point for point in study.points if point.published is None and point.settings.dataset == dataset]
    if not (root / name).is_file():
        if any(any((root / f"results/runs/{point.path}").glob("result_*.txt")) for point in points):
            yield Difference(file=name, message="is missing, though runs were trained on it")
        return
    spec, manifest = study.datasets[dataset], read_json(root / name)
    expected = {"dataset": spec.name, "format": spec.format, "options": dict(spec.options)}
    expected["splits"] = {**manifest.get("splits", {}), **spec.counts}
    for key, value in expected.items():
        if manifest.get(key) != value:
            found = json.dumps(manifest.get(key), sort_keys=True)
            yield Difference(file=name, where=key, found=found, expected=json.dumps(value, sort_keys=True))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
