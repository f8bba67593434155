"""What the folders of `config/` hold is right, whatever is added to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlscaling.configuration import check_schema, load_schema, read_yaml
from mlscaling.reference import KINDS, config_reference
from mlscaling.study import check_study

CONFIG = Path(__file__).resolve().parents[2] / "config"
FOLDERS = {"system": "systems", "workload": "workloads", "dataset": "datasets", "round": "rounds"}
FILES = [(kind, path) for kind, folder in FOLDERS.items() for path in sorted((CONFIG / folder).glob("*.yaml"))]
STUDIES = sorted((CONFIG / "studies").glob("*.yaml"))


def named(paths: list[Path]) -> dict[str, Any]:
    return {"argvalues": paths, "ids": [path.stem for path in paths]}


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[f"{kind}-{path.stem}" for kind, path in FILES])
def test_every_file_keeps_its_schema(kind: str, path: Path) -> None:
    data, problems = read_yaml(path)
    assert problems == []
    assert check_schema(data, schema=kind, file=path.name)[1] == []


def test_the_default_study_is_right_and_short() -> None:
    path = CONFIG / "config.yaml"
    assert len(path.read_text().splitlines()) <= 40
    errors = [p for p in check_study(yaml.safe_load(path.read_text()), config_dir=CONFIG) if p.severity == "error"]
    assert errors == []


@pytest.mark.parametrize("path", **named(STUDIES))
def test_every_study_is_right_and_named_as_its_file(path: Path, tmp_path: Path) -> None:
    study = yaml.safe_load(path.read_text())
    if any("published" in curve for curve in study["curves"]):
        study["published_root"] = str(tmp_path)  # the user says where the tree is
    assert [p for p in check_study(study, config_dir=CONFIG, file=path.name) if p.severity == "error"] == []
    assert study["study"] == path.stem


def properties(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in ("properties", "$defs"):
        for name, rule in schema.get(part, {}).items():
            yield f"{prefix}{name}", rule
            yield from properties(rule, f"{prefix}{name}.")
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from properties(schema[part], f"{prefix}[].")


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_describe_every_key_and_refuse_unknown_ones(kind: str) -> None:
    schema = load_schema(kind)
    assert schema["additionalProperties"] is False
    for key, rule in properties(schema):
        assert "description" in rule or "$ref" in rule or "properties" in rule, key
        if rule.get("type") == "object":
            assert "additionalProperties" in rule, key


def test_the_documented_parameters_are_the_schemas() -> None:
    assert (CONFIG / "README.md").read_text() == config_reference(), "write it anew: make config-reference"


@pytest.mark.parametrize("path", **named(sorted((CONFIG / "rounds").glob("*.yaml"))))
def test_required_and_trimmed_runs_are_those_of_mlperf_logging(path: Path) -> None:
    from mlscaling.mlperf import rounds

    data, _ = check_schema(yaml.safe_load(path.read_text()), schema="round", file=path.name)
    assert set(data["required_runs"]) == set(rounds.benchmarks(path.stem))
    for benchmark, required in data["required_runs"].items():
        assert required == rounds.required_runs(benchmark), benchmark
        assert data["trimmed_runs"].get(benchmark, 1) == rounds.trimmed_runs(benchmark), benchmark


@pytest.mark.parametrize("path", **named(sorted((CONFIG / "workloads").glob("*.yaml"))))
def test_official_targets_at_full_scale(path: Path) -> None:
    from mlscaling.mlperf import rounds

    workload = yaml.safe_load(path.read_text())
    if "full" not in workload["scales"]:
        pytest.skip(f"{path.name} has no full scale")
    target = rounds.official_target(workload["mlperf_benchmark"], "1.1.0")
    assert target is not None
    assert rounds.Target.of(workload["scales"]["full"]["target"], mode=workload["quality"]["mode"]) == target
