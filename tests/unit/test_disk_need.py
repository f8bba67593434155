"""What a preparation says of the disk before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_runs
from mlscaling.datasets.preparation import prepare_dataset


@pytest.mark.parametrize(("prepared_bytes", "fits"), [(10**6, True), (10**18, False)])
def test_disk_need_is_said_before_anything_else(tmp_path: Path, capsys, prepared_bytes: int, fits: bool) -> None:
    """A wrong checksum is found next: a disk that is too small need not wait for checksums."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.tar").touch()
    known = {"a.tar": {"md5": "0" * 32}}
    spec = tiny_runs.dataset_spec("imagenet_digits", generator="", raw=known, prepared_bytes=prepared_bytes)
    with pytest.raises(ValueError if fits else OSError, match="is damaged" if fits else "not enough"):
        prepare_dataset(spec, raw_dir=tmp_path / "raw", data_dir=tmp_path / "data", manifest=tmp_path / "m.json")
    assert (
        f"the prepared data take about {prepared_bytes / 1e9:.0f} GB in {tmp_path / 'data'}" in capsys.readouterr().out
    )


@pytest.mark.parametrize("name", ["imagenet", "wikipedia"])
def test_full_scale_says_its_disk_need(name: str) -> None:
    spec = tiny_runs.dataset_spec(name)
    assert spec.prepared_bytes > sum(int(file.get("size_bytes", 0)) for file in spec.raw.values()) / 2
