"""A study that is really trained once, in a copy of the repository; the tests look at it and ask for changes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkout import Checkout, copy_of_repository


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The study, trained and reported."""
    checkout = copy_of_repository(tmp_path_factory.mktemp("trained"))
    checkout.snakemake()
    return checkout


@pytest.fixture
def changeable(trained: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the trained study that a test may change; times of files are kept."""
    shutil.copytree(trained.path, tmp_path / "copy", symlinks=True)
    return Checkout(path=tmp_path / "copy")
