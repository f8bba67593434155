"""A study as a bundle: its evidence collected and cleaned, everything that follows derived from it, packed.

Verdicts, tables and figures are not copied but derived anew from the evidence that goes into the bundle. So a bundle
holds whatever was replaced in its texts, and a study that was interrupted has tables, too: of the runs that it has.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling.bundles import assemble, documents, layout
from mlscaling.bundles.archives import BundleError
from mlscaling.bundles.collect import Source, collect
from mlscaling.bundles.derive import OFFICIAL, Checkers, Work, derive
from mlscaling.bundles.description import manifest
from mlscaling.bundles.hygiene import Cleaned, cleaned, private_record, remaining
from mlscaling.bundles.packing import pack
from mlscaling.configuration import check_schema
from mlscaling.files import read_json, write_json, write_text, written_beside
from mlscaling.study import load_study

_COMPARED: Final = ("results/tables/runs.csv", "results/tables/points.csv", "results/tables/scaling.csv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A bundle that was written."""

    path: Path
    """The archive."""
    sha256: str
    """Of the archive."""
    about: Mapping[str, Any]
    """Its `study.json`."""
    private: Path | None
    """Where it is written which pseudonym is whose; None where nothing was replaced."""
    notices: tuple[str, ...]
    """What the owner should know."""


def source_of(config: Mapping[str, Any], *, given: Path | None, checkout: Path, results: Path | None = None) -> Source:
    """Where the study of a configuration lies.

    Raises:
        ValueError: the configuration is wrong, or there are no results; says what and where.
    """
    file = str(given or "config")
    study = load_study(config, config_dir=checkout / "config", file=file)
    folder = results or checkout / "results" / study.name
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; study {study.name} has no results")
    resolved = check_schema(config, schema="study", file=file)[0]
    return Source(study=study, config=resolved, given=given, checkout=checkout, results=folder)


def write_bundle(
    source: Source,
    target: Path,
    *,
    no_secrets: Iterable[str] = (),
    jobs: int = 2,
    checkers: Checkers = OFFICIAL,
    draw: bool = True,
) -> Written:
    """Write the bundle, and beside it which pseudonym is whose.

    Args:
        source: the study.
        target: the archive; replaced if it is there.
        no_secrets: places `FILE:LINE` that look like secrets and are none.
        jobs: processes of the official checkers at a time.
        checkers: whom to ask.
        draw: draw the figures, not only their data and captions.

    Raises:
        SecretError: a text may hold a secret; nothing was written.
        ValueError, OSError: the evidence cannot be read as what it should be; names the file.
    """
    collected = collect(source)
    clean = cleaned(collected, study=source.study, anonymize=source.study.anonymize, no_secrets=no_secrets)
    with tempfile.TemporaryDirectory(prefix="bundle-") as folder:
        root = Path(folder)
        assemble.write_files(clean.files, root)
        _mark_collected_rcps(source, root)
        study = assemble.study_of(root)
        derive(Work(study=study, root=root, out=root, jobs=jobs, checkers=checkers, draw=draw))
        assemble.present(root, root, study, left_out=clean.left_out)
        assemble.finish(root, root, study)
        write_text(manifest(assemble.hashes_below(root)), root / layout.MANIFEST)
        files = _checked(root, clean)
        about = read_json(root / layout.STUDY)
    with written_beside(target) as beside:
        pack(files, beside)
        sha256 = hashlib.sha256(beside.read_bytes()).hexdigest()
    private = _write_private(clean, target)
    notices = [
        *clean.notices,
        *_differing(files, source),
        *(f"left out: {n}: {r}" for n, r in about["left_out"].items()),
    ]
    return Written(path=target, sha256=sha256, about=about, private=private, notices=tuple(notices))


def _mark_collected_rcps(source: Source, root: Path) -> None:
    """RCPs that the study's own runs were collected as are derived where they are there."""
    for path in sorted((source.results / "rcps").glob("rcps_*.json")):
        assemble.write_files({f"results/rcps/{path.name}": path.read_bytes()}, root)


def _checked(root: Path, clean: Cleaned) -> dict[str, bytes]:
    """All files, none of which a reader would refuse, and none with an identity that should have been replaced."""
    files = {}
    for name in assemble.files_below(root):
        try:
            documents.check(root / name, name=name)
        except BundleError as error:
            raise ValueError(f"no reader would take the bundle: {error}") from None
        files[name] = (root / name).read_bytes()
    if kept := remaining(files, clean):
        raise ValueError(f"identities were to be replaced and are still in {', '.join(kept[:5])}; nothing was written")
    return files


def _write_private(clean: Cleaned, target: Path) -> Path | None:
    path = target.with_name(f"{target.stem}.pseudonyms.json")
    if not clean.names:
        return None
    write_json(private_record(clean), path)
    os.chmod(path, 0o600)
    return path


def _differing(files: Mapping[str, bytes], source: Source) -> list[str]:
    """Tables that the workflow left and that do not follow from what is there: made before more runs, or changed."""
    there = {name: source.results / name.removeprefix("results/") for name in _COMPARED}
    return [
        f"{there[name]} does not follow from the logs and records that are there; the bundle has it as it does"
        for name in _COMPARED
        if there[name].is_file() and there[name].read_bytes() != files[name]
    ]
