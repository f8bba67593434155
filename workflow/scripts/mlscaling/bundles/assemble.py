"""A bundle's folder from its evidence: everything that follows is derived into it, then described and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlscaling.bundles import crate, description, layout, page
from mlscaling.files import read_json, write_json, write_text
from mlscaling.study import Study, load_study


def study_of(root: Path) -> Study:
    """The study that a bundle's own configuration describes.

    Raises:
        StudyError: the configuration is wrong; lists its problems.
    """
    config: dict[str, Any] = read_json(root / layout.CONFIG)
    # The logs of published results are in the bundle; only that some folder is given matters here.
    return load_study({**config, "published_root": str(root)}, config_dir=root / "config", file=layout.CONFIG)


def present(root: Path, out: Path, study: Study, *, left_out: Mapping[str, str]) -> None:
    """Write what shows the evidence and the results below `root`: the same files, whoever makes them."""
    about = description.describe(root, study, left_out=left_out)
    write_json(about, out / layout.STUDY)
    write_json(description.containers(root, study), out / layout.CONTAINERS)
    write_text(page.readme(about), out / layout.README)


def finish(root: Path, out: Path, study: Study) -> None:
    """Write the page and the metadata, which show what `present` has written, below `root`."""
    write_text(page.page(root, study), out / layout.INDEX)
    names = [name for name in files_below(root) if name not in (layout.CRATE, layout.MANIFEST)]
    write_text(crate.metadata(root, study, names), out / layout.CRATE)


def files_below(root: Path) -> list[str]:
    """Names of all files, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def hashes_below(root: Path) -> dict[str, str]:
    """Name → SHA-256 of all files but the manifest."""
    names = (name for name in files_below(root) if name != layout.MANIFEST)
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}


def write_files(files: Mapping[str, bytes], root: Path) -> None:
    """Write files into a folder of our own."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
