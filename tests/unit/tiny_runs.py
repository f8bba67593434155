"""Runs at the tiny scale for tests: their data, their specs, and how their ranks are started."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from mlscaling.catalog import load_workload
from mlscaling.datasets.preparation import prepare_dataset
from mlscaling.spec import DatasetSpec, RunSpec, WorkloadSpec

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow" / "scripts"


def configuration(kind: str, name: str) -> dict[str, Any]:
    """A file of `config/`."""
    values: dict[str, Any] = yaml.safe_load((ROOT / "config" / kind / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


def dataset_spec(name: str, **changes: Any) -> DatasetSpec:
    """A dataset as `config/datasets/` describes it; options may be changed."""
    spec = DatasetSpec(name=name, **configuration("datasets", name))
    options = {**spec.options, **changes.pop("options", {})}
    return dataclasses.replace(spec, options=options, **changes)


def prepared(name: str, folder: Path) -> Path:
    """Prepared tiny data."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare_dataset(
        dataset_spec(name),
        raw_dir=folder / "raw" / name,
        data_dir=folder / name,
        manifest=folder / f"{name}.manifest.json",
    )
    return folder / name


def workload_spec(name: str) -> WorkloadSpec:
    """A workload as a study of round 1.1.0 sees it."""
    found, problems = load_workload(name, config_dir=ROOT / "config", file="", key="", ruleset="1.1.0")
    assert found is not None, problems
    return found


def unreachable(target: Any, *, mode: str) -> Any:
    """A target like this one, which may be of several metrics, that no quality meets."""
    if isinstance(target, Mapping):
        return {metric: unreachable(value, mode=mode) for metric, value in target.items()}
    return 2.0 if mode == "max" else -1.0


def run_spec(workload: str, *, scale: str = "tiny", data_dir: Path | str = "", **changes: Any) -> RunSpec:
    """A run on one rank, with the configuration's first batch size; `hyperparameters` and `model` are added to it."""
    found = workload_spec(workload)
    settings = found.scales[scale]
    size = changes.pop("global_batch_size", next(iter(settings.hyperparameters)))
    nodes, per_node = changes.pop("nodes", 1), changes.pop("accelerators_per_node", 1)
    steps = changes.pop("gradient_accumulation_steps", 1)
    return RunSpec(
        **{
            "study": "test",
            "system": "emulated_cpu",
            "workload": workload,
            "scale": scale,
            "mlperf_benchmark": found.mlperf_benchmark,
            "round": "1.1.0",
            "division": "open",
            "nodes": nodes,
            "accelerators_per_node": per_node,
            "cpus_per_accelerator": 1,
            "device": "cpu",
            "emulated": True,
            "global_batch_size": size,
            "local_batch_size": size // (nodes * per_node * steps),
            "gradient_accumulation_steps": steps,
            "run": 0,
            "seed": 1234,
            "data_dir": str(data_dir),
            **{name: getattr(settings, name) for name in ("train_samples", "eval_samples", "target")},
            "evaluate_every_samples": settings.evaluate_every_samples.at(size),
            "convergence_unit": found.convergence_unit,
            "quality_mode": found.quality_mode,
            "model": {**settings.model, **changes.pop("model", {})},
            "hyperparameters": {**settings.hyperparameters[size], **changes.pop("hyperparameters", {})},
            **changes,
        }
    )


def trained(spec: RunSpec, log: Path) -> list[dict[str, Any]]:
    """Train with one process for each rank and return the log's events."""
    spec_file = log.with_suffix(".json")
    spec_file.write_text(spec.to_json(), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    port = str(free_port())
    processes = [
        subprocess.Popen(
            rank_command(spec_file, log),
            env=environment | rank_variables(spec, rank=rank, port=port),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(spec.world_size)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * spec.world_size, "\n".join(outputs)
    return events(log)


def rank_command(spec_file: Path, log: Path) -> list[str]:
    """What a launcher starts once for each rank."""
    return [sys.executable, str(SCRIPTS / "train.py"), "rank", "--spec", str(spec_file), "--log", str(log)]


def rank_variables(spec: RunSpec, *, rank: int, port: str) -> dict[str, str]:
    """torchrun's variables of one rank."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_RANK": str(rank % spec.accelerators_per_node),
        "LOCAL_WORLD_SIZE": str(spec.accelerators_per_node),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def events(log: Path) -> list[dict[str, Any]]:
    """The MLLOG events of a log; every line is one."""
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text(encoding="utf-8").splitlines()]


def series(found: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """`epoch_num` and value of every evaluation."""
    return [(event["metadata"]["epoch_num"], event["value"]) for event in found if event["key"] == "eval_accuracy"]
