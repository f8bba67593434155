"""Files to a zip archive whose bytes depend on names and contents alone."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mlscaling.bundles.archives import MAX_FILES, MAX_RATIO, MAX_TOTAL_BYTES, RATIO_FROM_BYTES, check_name

DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The first that a zip archive can hold; every entry has it."""
PERMISSIONS: Final = 0o100644
UNIX: Final = 3
LEVEL: Final = 6


def pack(files: Mapping[str, bytes], path: Path) -> None:
    """Write the archive: entries in the order of their names, one date, one mode, one level of compression.

    Raises:
        ValueError: a file that no reader of bundles would take; names it.
    """
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_TOTAL_BYTES:
        raise ValueError(f"a bundle has at most {MAX_FILES} files and {MAX_TOTAL_BYTES:,} bytes")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in sorted(files.items()):
            if reason := check_name(name):
                raise ValueError(f"{name}: cannot be in a bundle: {reason}")
            archive.writestr(_entry(name, content), content, compresslevel=LEVEL)


def _entry(name: str, content: bytes) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=DATE)
    entry.create_system = UNIX
    entry.external_attr = PERMISSIONS << 16
    entry.compress_type = zipfile.ZIP_STORED if _too_dense(content) else zipfile.ZIP_DEFLATED
    return entry


def _too_dense(content: bytes) -> bool:
    """Whether a reader would take its entry for a zip bomb, as a log of one repeated line may seem."""
    if len(content) <= RATIO_FROM_BYTES:
        return False
    return len(content) > MAX_RATIO // 2 * len(zlib.compress(content, LEVEL))
