"""Raw files of a dataset: are they all there, and are they the ones that were published?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlscaling.spec import DatasetSpec

CHECKSUMS = "SHA256SUMS"
CHUNK_BYTES = 1 << 22


def digests(path: Path, *, algorithms: Iterable[str]) -> dict[str, str]:
    """Hexadecimal digests of one file, read once."""
    hashes = {name: hashlib.new(name) for name in algorithms}
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            for value in hashes.values():
                value.update(chunk)
    return {name: value.hexdigest() for name, value in hashes.items()}


def write_checksums(folder: Path, *, names: Iterable[str]) -> None:
    """Write the folder's SHA256SUMS, in the form of coreutils' `sha256sum`, beside and renamed."""
    lines = [f"{digests(folder / name, algorithms=['sha256'])['sha256']}  {name}\n" for name in sorted(names)]
    partial = folder / f"{CHECKSUMS}.partial"
    partial.write_text("".join(lines), encoding="utf-8")
    os.replace(partial, folder / CHECKSUMS)


def read_checksums(folder: Path) -> dict[str, dict[str, str]]:
    """Raw file → `{"sha256": …}` of a folder's SHA256SUMS."""
    expected = {}
    for number, line in enumerate((folder / CHECKSUMS).read_text(encoding="utf-8").splitlines(), start=1):
        checksum, separator, name = line.partition("  ")
        if not separator or len(checksum) != 64:
            raise ValueError(f"{folder / CHECKSUMS}:{number}: expected '<sha256>  <file>', found {line!r}")
        expected[name] = {"sha256": checksum}
    return expected


def expected_files(spec: DatasetSpec, *, raw_dir: Path) -> Mapping[str, Mapping[str, Any]]:
    """Raw file → what is known of it: from the dataset's YAML, or from the SHA256SUMS of a generated archive."""
    return read_checksums(raw_dir) if spec.generator else spec.raw


def require(spec: DatasetSpec, *, raw_dir: Path) -> Mapping[str, Mapping[str, Any]]:
    """The expected files, which are all there; a checksum, which may take minutes, is not taken yet.

    Raises:
        FileNotFoundError: names all that are missing at once, and who gives them out.
    """
    expected = expected_files(spec, raw_dir=raw_dir)
    missing = [name for name in expected if not (raw_dir / name).is_file()]
    if missing:
        raise FileNotFoundError(_missing_message(spec, raw_dir=raw_dir, expected=expected, missing=missing))
    return expected


def verify(spec: DatasetSpec, *, raw_dir: Path) -> dict[str, dict[str, Any]]:
    """Check every raw file; `{file: {"sha256", "size_bytes"}}` for the manifest.

    Raises:
        FileNotFoundError: for missing files, as `require`.
        ValueError: for a file of another size or checksum, naming what was expected and found.
    """
    expected = require(spec, raw_dir=raw_dir)
    return {name: _verified(raw_dir / name, known=known, spec=spec) for name, known in sorted(expected.items())}


def _verified(path: Path, *, known: Mapping[str, Any], spec: DatasetSpec) -> dict[str, Any]:
    size = path.stat().st_size
    if size != known.get("size_bytes", size):
        raise ValueError(_damaged_message(path, what="size", expected=known["size_bytes"], found=size, spec=spec))
    algorithms = {"sha256"} | ({"md5"} & known.keys())
    found = digests(path, algorithms=sorted(algorithms))
    for name in sorted(algorithms & known.keys()):
        if found[name] != known[name]:
            message = _damaged_message(path, what=name, expected=known[name], found=found[name], spec=spec)
            raise ValueError(message)
    return {"sha256": found["sha256"], "size_bytes": size}


def _remedy(spec: DatasetSpec) -> str:
    if spec.generator:
        return f"It was generated: delete its folder and run again (generator {spec.generator!r})."
    return f"Given out by: {spec.source}"


def _damaged_message(path: Path, *, what: str, expected: Any, found: Any, spec: DatasetSpec) -> str:
    return (
        f"dataset {spec.name}: raw file {path} is damaged or another version: "
        f"expected {what} {expected}, found {found}. {_remedy(spec)}"
    )


def _missing_message(
    spec: DatasetSpec, *, raw_dir: Path, expected: Mapping[str, Mapping[str, Any]], missing: list[str]
) -> str:
    lines = []
    for name in missing:
        known = ", ".join(f"{key} {value}" for key, value in sorted(expected[name].items()))
        lines.append(f"  {raw_dir / name} ({known or 'no checksum is published'})")
    files = "\n".join(lines)
    return f"dataset {spec.name}: raw files are missing:\n{files}\n{_remedy(spec)}"
