"""Data that a vendor's own scripts prepared: they stay where they are, and the prepared folder only points to them."""

from __future__ import annotations

import json
from pathlib import Path

from mlscaling.spec import DatasetSpec

PACKAGES: tuple[str, ...] = ()


def prepare(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path, num_processes: int) -> dict[str, int]:  # noqa: ARG001
    """Link to the data and list their files with sizes; they are neither copied nor counted.

    Args:
        raw_dir: where the data are, `<raw_root>/<dataset>`; may be a link.

    Returns:
        The counts of the dataset's YAML, which are the user's word.

    Raises:
        FileNotFoundError: there is no such folder, or it is empty.
    """
    where = raw_dir.resolve()
    files = {str(path.relative_to(where)): path.stat().st_size for path in sorted(where.rglob("*")) if path.is_file()}
    if not files:
        hint = f" ({spec.source})" if spec.source else ""
        raise FileNotFoundError(f"dataset {spec.name}: there are no data in {raw_dir}; put or link them there{hint}")
    link = out_dir / "external"
    link.unlink(missing_ok=True)
    link.symlink_to(where)
    (out_dir / "files.json").write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")
    return dict(spec.counts)
