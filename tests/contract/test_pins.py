"""Versions are pinned in `envs/*.txt`; everything that repeats them agrees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ENVS = Path(__file__).resolve().parents[2] / "envs"
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)$")


def lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def pins(name: str) -> dict[str, str]:
    found = {}
    for line in lines(ENVS / f"{name}.txt"):
        if not line.startswith("-r "):
            match = PIN.match(line)
            assert match, f"envs/{name}.txt: {line!r} is not an exact pin"
            found[match[1].lower()] = match[2]
    return found


@pytest.mark.parametrize("path", sorted(ENVS.glob("*.yaml")), ids=lambda path: path.stem)
def test_conda_environments_name_the_same_pins(path: Path) -> None:
    (pip,) = [entry["pip"] for entry in yaml.safe_load(path.read_text())["dependencies"] if isinstance(entry, dict)]
    assert sorted(pip) == sorted(lines(ENVS / f"{path.stem}.txt"))


@pytest.mark.parametrize("name", ["workflow", "train", "dev"])
def test_constraints_hold_the_pins(name: str) -> None:
    locked = {re.sub(r"[-_.]+", "-", key): value for key, value in pins("constraints").items()}
    for package, version in pins(name).items():
        assert locked.get(re.sub(r"[-_.]+", "-", package)) == version, f"{package}: run make lock"


def test_a_package_has_one_version() -> None:
    workflow, train = pins("workflow"), pins("train")
    assert {
        name: (workflow[name], train[name]) for name in workflow.keys() & train.keys() if workflow[name] != train[name]
    } == {}


def test_only_training_needs_torch() -> None:
    assert not {"torch", "torchvision", "torchaudio"} & pins("workflow").keys()
