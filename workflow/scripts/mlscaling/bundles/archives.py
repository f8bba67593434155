"""Zip archives from anywhere, unpacked as if they were hostile.

Our own bundles use little of what the format allows (APPNOTE.TXT 6.3.10), so everything else is refused: a bundle is
plain files with short ASCII names, stored or deflated. Nothing is written before the whole directory of the archive has
been judged, and nothing is written outside the target. Sizes are what is counted while unpacking, not what is declared.
"""

from __future__ import annotations

import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

MAX_FILES: Final = 60_000
"""Below the 65,535 from which on an archive needs ZIP64, which is refused."""
MAX_TOTAL_BYTES: Final = 4 << 30
"""Of all unpacked files."""
MAX_RATIO: Final = 200
"""Unpacked ÷ packed of a file larger than `RATIO_FROM_BYTES`; deflate itself reaches 1,032. Our writer stores what
would exceed it."""
RATIO_FROM_BYTES: Final = 1 << 20
MAX_NAME: Final = 240
MAX_DEPTH: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9._+=@,~()#%-]+(?: [A-Za-z0-9._+=@,~()#%-]+)*")
"""One part of a path: ASCII without control characters, separators, drive letters and what a shell or Windows reads."""
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_END: Final = struct.Struct("<4s4H2LH")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_UTF8, _DESCRIPTOR, _LEVEL = 0x800, 0x8, 0x6
"""Flags of an entry that say nothing harmful: name's encoding, sizes behind the data, level of compression."""


class BundleError(ValueError):
    """The archive is refused; the message names the entry and the reason."""


def unpack(archive: Path, target: Path) -> list[str]:
    """Unpack into an empty folder; returns the names of the files, sorted.

    Raises:
        BundleError: anything that a bundle cannot have; nothing has been written outside `target`.
        OSError: the archive cannot be read, or the target not written.
    """
    with archive.open("rb") as stream:
        start_of_directory = _check_end(stream, archive)
        try:
            with zipfile.ZipFile(stream) as opened:
                entries = _checked(opened, archive, stream, end=start_of_directory)
                for entry in entries:
                    _extract(opened, entry, target / entry.filename)
        # zipfile raises what its parts raise: struct.error, NotImplementedError, UnicodeDecodeError, zlib.error.
        except (
            zipfile.BadZipFile,
            zlib.error,
            struct.error,
            EOFError,
            NotImplementedError,
            UnicodeDecodeError,
        ) as error:
            raise BundleError(f"{archive.name}: is not a sound zip archive: {error}") from None
    return sorted(entry.filename for entry in entries)


def check_name(name: str) -> str:
    """Why a path may not be in a bundle; empty if it may. Also what the writer keeps."""
    if len(name) > MAX_NAME:
        return f"its name is longer than {MAX_NAME} characters"
    parts = name.split("/")
    if len(parts) > MAX_DEPTH:
        return f"it lies deeper than {MAX_DEPTH} folders"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "its path is absolute"
    if ".." in parts:
        return "its path leads out of the folder"
    for part in parts:
        if not _NAME.fullmatch(part) or part.endswith((".", " ")) or _RESERVED.fullmatch(part):
            return f"{part!r} is no plain name: letters, digits and ._+=@,~()#%- only, nothing that Windows reserves"
    return ""


# --- judging ----------------------------------------------------------------------------------------------------------


def _check_end(stream: BinaryIO, archive: Path) -> int:
    """The end record must be the very end: no comment, no second archive behind, one disk, no ZIP64.

    Checked by hand first: zipfile would search for it, read the directory it names whatever its size, and accept data
    before and behind the archive.

    Returns:
        Where the directory starts, which is where the last entry's data must end.
    """
    size = stream.seek(0, 2)
    if size < _END.size:
        raise BundleError(f"{archive.name}: is not a zip archive, it has {size} bytes")
    stream.seek(size - _END.size)
    mark, disk, first_disk, here, total, directory_size, offset, comment = _END.unpack(stream.read(_END.size))
    if mark != b"PK\x05\x06":
        raise BundleError(f"{archive.name}: does not end as a zip archive without comment does")
    if comment or disk or first_disk or here != total:
        raise BundleError(f"{archive.name}: has a comment or several disks")
    if total > MAX_FILES or 0xFFFFFFFF in (directory_size, offset):
        raise BundleError(f"{archive.name}: has {total} entries or is a ZIP64 archive; at most {MAX_FILES} are read")
    if offset + directory_size != size - _END.size:
        raise BundleError(f"{archive.name}: has data before, between or behind its parts")
    return int(offset)


def _checked(opened: zipfile.ZipFile, archive: Path, stream: BinaryIO, *, end: int) -> list[zipfile.ZipInfo]:
    """The files of the archive, in the order of their data."""
    entries = sorted(opened.infolist(), key=lambda entry: entry.header_offset)
    for entry in entries:
        if reason := _why_not(entry):
            raise BundleError(f"{archive.name}: {entry.orig_filename!r} is refused: {reason}")
    files = [entry for entry in entries if not entry.is_dir()]
    _check_sizes(files, archive)
    _check_names(files, archive)
    _check_overlaps(entries, archive, stream, end=end)
    return files


def _why_not(entry: zipfile.ZipInfo) -> str:
    if entry.filename != entry.orig_filename or "\0" in entry.orig_filename:
        return "its name holds a NUL character or another separator"
    if reason := check_name(entry.filename.removesuffix("/")):
        return reason
    if entry.flag_bits & ~(_UTF8 | _DESCRIPTOR | _LEVEL):
        return "it is encrypted, or patched data"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"compression method {entry.compress_type} is unknown here; legal: stored, deflated"
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR) or mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
        return "it is a link, a device or another special file"
    if entry.is_dir() and (entry.file_size or entry.compress_size):
        return "it is a folder with content"
    if stat.S_ISDIR(mode) and not entry.is_dir():
        return "it is a folder with the name of a file"
    return ""


def _check_sizes(files: Sequence[zipfile.ZipInfo], archive: Path) -> None:
    for entry in files:
        if entry.file_size > RATIO_FROM_BYTES and entry.file_size > MAX_RATIO * entry.compress_size:
            raise BundleError(
                f"{archive.name}: {entry.filename!r} is refused: it unpacks to {entry.file_size:,} bytes, more than "
                f"{MAX_RATIO} times its size"
            )
    total = sum(entry.file_size for entry in files)
    if total > MAX_TOTAL_BYTES:
        raise BundleError(f"{archive.name}: unpacks to {total:,} bytes, more than {MAX_TOTAL_BYTES:,}")


def _check_names(files: Sequence[zipfile.ZipInfo], archive: Path) -> None:
    """No two files of one name, also not where upper and lower case are the same, and no file that is a folder."""
    seen: dict[str, str] = {}
    for entry in files:
        key = entry.filename.casefold()
        if key in seen:
            raise BundleError(f"{archive.name}: {entry.filename!r} is refused: {seen[key]!r} has the same name")
        seen[key] = entry.filename
    for key, name in seen.items():
        parts = key.split("/")
        for number in range(1, len(parts)):
            if "/".join(parts[:number]) in seen:
                raise BundleError(f"{archive.name}: {name!r} is refused: one of its folders is a file, too")


def _check_overlaps(entries: Sequence[zipfile.ZipInfo], archive: Path, stream: BinaryIO, *, end: int) -> None:
    """Each entry's data end before the next one starts; a bomb of 2019 (Fifield) lets entries share their data."""
    limits = [entry.header_offset for entry in entries[1:]] + [end]
    for entry, limit in zip(entries, limits, strict=True):
        stream.seek(entry.header_offset)
        header = stream.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            raise BundleError(f"{archive.name}: {entry.filename!r} is refused: there is no entry where it should be")
        *_, name_length, extra_length = _LOCAL.unpack(header)
        if entry.header_offset + _LOCAL.size + name_length + extra_length + entry.compress_size > limit:
            raise BundleError(f"{archive.name}: {entry.filename!r} is refused: its data overlap with another entry's")


# --- writing ----------------------------------------------------------------------------------------------------------


def _extract(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> None:
    """Write one file that must not exist yet; zipfile reads no more than the declared size and checks the CRC."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(entry) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    if path.stat().st_size != entry.file_size:
        raise BundleError(f"{entry.filename!r} is refused: it is shorter than the archive says")
