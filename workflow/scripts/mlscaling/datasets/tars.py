"""Tar archives read as streams, where a cut-off archive is an error.

Python's tarfile takes the end of a file for the end of the archive, so an archive that was cut between two members
reads as a shorter one.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def opened(archive: Path, *, inner: str = "", stream: IO[bytes] | None = None) -> Iterator[tarfile.TarFile]:
    """An archive, or the tar that is its member `inner` and read from `stream`.

    Raises:
        ValueError: here or while members are read, for an archive that is cut off or none, naming it.
    """
    try:
        with tarfile.open(archive, "r:*") if stream is None else tarfile.open(fileobj=stream, mode="r:") as found:
            yield found
    except (tarfile.TarError, EOFError) as error:
        place = f"{archive}, member {inner}" if inner else f"{archive}"
        raise ValueError(f"{place} is no whole tar archive: {error}") from None


def files(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Regular members in the archive's order, and a check that the archive's end is there."""
    for member in archive:
        if member.isfile():
            yield member
    assert archive.fileobj is not None
    archive.fileobj.seek(archive.offset)
    if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it ends without an end mark")


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    """A regular member's bytes, as a stream."""
    stream = archive.extractfile(member)
    assert stream is not None, member.name
    return stream
