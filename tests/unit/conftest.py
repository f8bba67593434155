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
def shapes(tiny_data: Path) -> Path:
    """Prepared images and objects of the tiny COCO."""
    return tiny_runs.prepared("coco_shapes", tiny_data)


@pytest.fixture(scope="session")
def articles(tiny_data: Path) -> Path:
    """Prepared examples of the tiny Wikipedia."""
    return tiny_runs.prepared("wikipedia_closed_world", tiny_data)


@pytest.fixture(scope="session")
def few_digits(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 128 training and 33 evaluation digits: 33 divide neither by ranks nor by batches."""
    folder = tmp_path_factory.mktemp("few")
    for split, every, number in (("train", 12, 128), ("val", 7, 33)):
        (folder / split).symlink_to(digits / split)
        names = (digits / f"{split}.txt").read_text().split()[::every][:number]
        (folder / f"{split}.txt").write_text("\n".join(names))
    return folder


@pytest.fixture(scope="session")
def spoken(tiny_data: Path) -> Path:
    """Prepared utterances of the tiny LibriSpeech."""
    return tiny_runs.prepared("librispeech_digits", tiny_data)
