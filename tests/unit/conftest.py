"""Prepared tiny data, made once for all tests of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_runs


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of raw and prepared tiny datasets."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def digits(tiny_data: Path) -> Path:
    """Prepared images of the tiny ImageNet."""
    return tiny_runs.prepared("imagenet_digits", tiny_data)


@pytest.fixture(scope="session")
def articles(tiny_data: Path) -> Path:
    """Prepared examples of the tiny Wikipedia."""
    return tiny_runs.prepared("wikipedia_closed_world", tiny_data)


@pytest.fixture(scope="session")
def spoken(tiny_data: Path) -> Path:
    """Prepared utterances of the tiny LibriSpeech."""
    return tiny_runs.prepared("librispeech_digits", tiny_data)
