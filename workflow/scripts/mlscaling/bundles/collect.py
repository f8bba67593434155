"""The evidence of a study from where the workflow leaves it: what is there is taken, what cannot be is named."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling.bundles import documents, environment, layout
from mlscaling.bundles.archives import BundleError, check_name
from mlscaling.bundles.texts import encoding_of
from mlscaling.study import Study

_TREES: Final = ("runs", "attempts", "systems")
"""Folders of `results/<study>/` that hold evidence; everything else in it follows from them."""
_OWN: Final = ("attempt.json", "spec.json", "command.json")
"""Files of an attempt without which it is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a study lies."""

    study: Study
    """As checked."""
    config: Mapping[str, Any]
    """Its configuration as resolved, with the schema's defaults."""
    given: Path | None
    """File that the configuration was read from."""
    checkout: Path
    """Top of the repository."""
    results: Path
    """`results/<study>`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """Evidence by names in a bundle."""

    files: dict[str, bytes]
    """Name → content."""
    origins: dict[str, str]
    """Name → file that it was read from, for messages."""
    left_out: dict[str, str]
    """Name → why it stays behind."""


def collect(source: Source) -> Collected:
    """Everything of a study that cannot be made again.

    Raises:
        OSError: a file cannot be read.
        ValueError: a log was changed after its run; names it.
    """
    collected = Collected(files={}, origins={}, left_out={})
    collected.files[layout.CONFIG] = (json.dumps(source.config, indent=1, sort_keys=True) + "\n").encode()
    if source.given is not None:
        _add(collected, layout.GIVEN, source.given)
    study, checkout = source.study, source.checkout
    for name in (*layout.config_files(study), *layout.rcp_files(study, checkout)):
        _add(collected, name, checkout / name)
    for benchmark, name in layout.official_rcps(study).items():
        if content := official_rcps(benchmark, study.round.name):
            collected.files[name] = content
    for dataset, name in layout.manifests(study).items():
        manifest = source.results.parent / "datasets" / dataset / "manifest.json"
        if manifest.is_file():
            _add(collected, name, manifest)
    _add(collected, layout.WORKFLOW, checkout / "Snakefile")
    for rule in sorted((checkout / "rules").glob("*.smk")):
        _add(collected, f"workflow/rules/{rule.name}", rule)
    collected.files.update(environment.files_of(checkout))
    for tree in _TREES:
        _add_tree(collected, tree, source)
    _check_logs(collected)
    return collected


def _check_logs(collected: Collected) -> None:
    """Nobody would take a bundle whose logs are not those that the run records speak of."""
    for name, content in collected.files.items():
        record = name.replace("/result_", "/run_").removesuffix(".txt") + ".json"
        if not (name.startswith("results/runs/") and name.endswith(".txt") and record in collected.files):
            continue
        try:
            expected = json.loads(collected.files[record]).get("log_sha256")
        except (ValueError, AttributeError):  # an odd record is told of where it is read
            continue
        if expected and hashlib.sha256(content).hexdigest() != expected:
            where = collected.origins[name]
            raise ValueError(
                f"{where}: was changed after its run, says log_sha256 of {Path(record).name}; restore it, or delete it "
                "and run snakemake again"
            )


def official_rcps(benchmark: str, ruleset: str) -> bytes:
    """MLPerf's own RCPs of a benchmark as this installation has them; empty where it has none."""
    folder = importlib.resources.files("mlperf_logging") / "rcp_checker" / f"training_{ruleset}"
    file = folder / f"rcps_{benchmark}.json"
    return file.read_bytes() if file.is_file() else b""


def _add(collected: Collected, name: str, path: Path) -> None:
    collected.files[name] = path.read_bytes()
    collected.origins[name] = str(path)


def _add_tree(collected: Collected, tree: str, source: Source) -> None:
    top = source.results / tree
    for path in _files_below(top):
        name = f"results/{tree}/{path.relative_to(top).as_posix()}"
        content = b"" if (reason := _why_not(path, name) or _odd_evidence(path, name)) else path.read_bytes()
        if not reason and not encoding_of(content):
            reason = "it is no text, so it cannot be searched for secrets"
        if reason:
            collected.left_out[name] = reason
        else:
            collected.files[name] = content
            collected.origins[name] = str(path)


def _odd_evidence(path: Path, name: str) -> str:
    """Why a file that a step or a tool left in an attempt cannot be read; what the workflow itself wrote must be."""
    if path.name in _OWN or not name.startswith("results/attempts/"):
        return ""
    try:
        documents.check(path, name=name)
    except BundleError as error:
        return str(error)
    return ""


def _files_below(top: Path) -> Iterator[Path]:
    """Files and whatever else is no folder, by name; hidden ones are locks and half-written files of others."""
    for folder, names, files in os.walk(top):
        names.sort()
        linked = [name for name in names if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in sorted([*files, *linked]) if not name.startswith("."))


def _why_not(path: Path, name: str) -> str:
    if path.is_symlink():
        return "it is a link"
    if not path.is_file():
        return "it is no plain file"
    if reason := check_name(name):
        return reason
    if path.suffix not in documents.KINDS:
        return f"files of kind {path.suffix or path.name!r} are not taken"
    if not layout.is_evidence(name, frozenset()):
        return "it belongs to no run"
    return ""
