"""The one way into a bundle: unpacked into a folder of its own and judged, whoever made it.

    with opened(Path("study.zip")) as root:
        study = json.loads((root / "study.json").read_text())

Below the root: `study.json` (name, title, status, missing runs, commit, versions), `index.html`, `config/`,
`results/` as in `results/<study>/`, `datasets/<name>/manifest.json`, `environment/`, `workflow/`,
`ro-crate-metadata.json` and `manifest-sha256.txt`. Nothing of it is ever executed, imported or rendered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlscaling.bundles import documents
from mlscaling.bundles.archives import BundleError, unpack

__all__ = ["BundleError", "opened"]


@contextmanager
def opened(archive: Path) -> Iterator[Path]:
    """Unpack a bundle into a temporary folder; yields the folder, and removes it when the block ends.

    Raises:
        BundleError: it is no bundle, or holds what no bundle may hold; names archive, entry and reason.
        OSError: the archive cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="bundle-") as folder:
        root = Path(folder)
        for name in unpack(archive, root):
            try:
                documents.check(root / name, name=name)
            except BundleError as error:
                raise BundleError(f"{archive.name}: {error}") from None
        if not (root / "study.json").is_file():
            raise BundleError(f"{archive.name}: is no bundle of a study: it has no study.json at its top")
        yield root
