"""What all tests share: where the repository is, and real public logs where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """Top folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public MLPerf logs beside the repository; tests that need them skip where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs public MLPerf logs in {folder}")
    return folder
