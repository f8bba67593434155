"""From raw files to prepared data and a manifest: what every format has in common.

Order, so that an interruption never leaves half a dataset that looks whole: generate the raw archive where the dataset
has a generator; verify raw files; let the format write into `<data_dir>.partial`; check the counts; rename; and write
the manifest last. A second call continues a partial folder, and only verifies a finished one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from mlscaling.datasets import raw
from mlscaling.files import write_text
from mlscaling.prepared_files import LIST, RECORD, data_files, write_list
from mlscaling.registry import module_by_name
from mlscaling.spec import DatasetSpec

NOT_FORMATS = ("preparation", "pretraining", "raw", "tars", "tf_checkpoint")


def prepare_dataset(
    spec: DatasetSpec, *, raw_dir: Path, data_dir: Path, manifest: Path, num_processes: int = 1
) -> None:
    """Prepare one dataset and write its manifest.

    Raises:
        FileNotFoundError: where raw files are missing.
        ValueError: for an unknown format or generator, a damaged raw file, or counts other than `spec.counts`.
    """
    form = module_by_name("mlscaling.datasets", spec.format, kind="dataset format", without=NOT_FORMATS)
    if spec.generator:
        generate_raw(spec, raw_dir=raw_dir)
    raw.require(spec, raw_dir=raw_dir)
    require_space(spec, data_dir=data_dir)
    request = {"dataset": spec.name, "format": spec.format, "options": dict(sorted(spec.options.items()))}
    request["raw"] = raw.verify(spec, raw_dir=raw_dir)
    record = finished_record(data_dir, request=request)
    if record is None:
        partial = continued_folder(data_dir, request=request)
        splits = form.prepare(spec, raw_dir=raw_dir, out_dir=partial, num_processes=num_processes)
        check_counts(spec, splits=splits)
        listed = checksums(partial)
        record = {"schema_version": 1, **request, "splits": splits, **contents(partial, listed=listed)}
        record["made_by"] = versions(form.PACKAGES)
        write_text(listed, partial / raw.CHECKSUMS)
        write_list(partial)
        write_json(partial / RECORD, record)
        if data_dir.exists():
            shutil.rmtree(data_dir)
        os.replace(partial, data_dir)
    elif not ((data_dir / raw.CHECKSUMS).is_file() and (data_dir / LIST).is_file()):
        write_text(checksums(data_dir), data_dir / raw.CHECKSUMS)
        write_list(data_dir)
    write_json(manifest, record)


def require_space(spec: DatasetSpec, *, data_dir: Path) -> None:
    """Say what the prepared data take, before the first checksum; what an earlier preparation left counts as free.

    Raises:
        OSError: where the disk has less.
    """
    if not spec.prepared_bytes or data_dir.exists():
        return
    folder = next(parent for parent in data_dir.absolute().parents if parent.is_dir())
    partial = data_dir.with_name(data_dir.name + ".partial")
    written = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free + written
    need = f"the prepared data take about {spec.prepared_bytes / 1e9:.0f} GB in {data_dir}, beside the raw files"
    message = f"dataset {spec.name}: {need}; {free / 1e9:.0f} GB are free"
    print(message, flush=True)
    if free < spec.prepared_bytes:
        raise OSError(f"{message}: not enough")


def generate_raw(spec: DatasetSpec, *, raw_dir: Path) -> None:
    """Make the raw archive unless its SHA256SUMS, which is written last, is there."""
    if (raw_dir / raw.CHECKSUMS).is_file():
        return
    maker = module_by_name("mlscaling.datasets.tiny", spec.generator, kind="generator")
    raw_dir.mkdir(parents=True, exist_ok=True)
    raw.write_checksums(raw_dir, names=maker.generate(spec, out_dir=raw_dir))


def finished_record(data_dir: Path, *, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Record of a finished preparation from the same raw files, format and options whose files are unchanged."""
    path = data_dir / RECORD
    if not path.is_file():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    same_request = all(record.get(key) == value for key, value in request.items())
    return record if same_request and record["files_digest"] == contents(data_dir)["files_digest"] else None


def continued_folder(data_dir: Path, *, request: Mapping[str, Any]) -> Path:
    """The partial folder, emptied unless it was begun with the same raw files, format and options."""
    partial = data_dir.with_name(data_dir.name + ".partial")
    mark = partial / "request.json"
    if partial.exists() and not (mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == request):
        shutil.rmtree(partial)
    partial.mkdir(parents=True, exist_ok=True)
    write_json(mark, request)
    return partial


def contents(folder: Path, *, listed: str = "") -> dict[str, Any]:
    """Total size of the prepared files, and one digest over all, that of their checksums; equal data have an equal one.

    Args:
        listed: what `checksums` gives for the folder, if that is known.
    """
    text = listed or checksums(folder)
    total = sum((folder / line.partition("  ")[2]).stat().st_size for line in text.splitlines())
    return {"bytes": total, "files_digest": hashlib.sha256(text.encode()).hexdigest()}


def checksums(folder: Path) -> str:
    """SHA-256 and path of every prepared file, in the form of coreutils' `sha256sum`, sorted by path."""
    return "".join(
        f"{raw.digests(folder / name, algorithms=['sha256'])['sha256']}  {name}\n" for name in data_files(folder)
    )


def check_counts(spec: DatasetSpec, *, splits: Mapping[str, int]) -> None:
    """Raise ValueError where a split holds another number of samples than the dataset's YAML says."""
    wrong = [
        f"split {name!r}: expected {expected} samples, found {splits.get(name, 0)}"
        for name, expected in sorted(spec.counts.items())
        if splits.get(name, 0) != expected
    ]
    if wrong:
        raise ValueError(f"dataset {spec.name}: {'; '.join(wrong)}")


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of the packages whose output the prepared bytes depend on."""
    return {name: metadata.version(name) for name in sorted(packages)}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON beside, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(partial, path)
