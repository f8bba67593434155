"""What the folders of `config/` offer by name: systems, rounds, workloads and datasets, with what is wrong in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlscaling import containers, launchers, vendor
from mlscaling.configuration import Problem, check_schema, names_in, read_yaml
from mlscaling.datasets.preparation import NOT_FORMATS
from mlscaling.spec import CommandSpec, DatasetSpec, Round, ScaleSpec, System, WorkloadSpec, with_tuples

LIBRARY = Path(__file__).resolve().parent


def load_round(name: str, *, config_dir: Path, file: str) -> tuple[Round | None, list[Problem]]:
    """Round of that name, or the problems of its file; `file` is what names it."""
    data, problems = _load("round", name, config_dir=config_dir, file=file, key="round")
    if not data:
        return None, problems
    trimmed = {benchmark: data["trimmed_runs"].get(benchmark, 1) for benchmark in data["required_runs"]}
    required = data["required_runs"]
    return Round(name=name, division=data["division"], required_runs=required, trimmed_runs=trimmed), problems


def load_system(name: str, *, config_dir: Path, file: str = "", key: str = "") -> tuple[System | None, list[Problem]]:
    """System of that name, or the problems of its file; `file` and `key` are what names it."""
    data, problems = _load("system", name, config_dir=config_dir, file=file, key=key)
    if not data:
        return None, problems
    path = str(config_dir / "systems" / f"{name}.yaml")
    for field, registry in (("launcher", launchers.LAUNCHERS), ("container", containers.CONTAINERS)):
        if data[field] not in registry:
            message = f"is not registered; legal values: {', '.join(sorted(registry))}"
            problems.append(Problem(file=path, key=field, value=data[field], message=message))
    problems += _problems_of_container(data, file=path)
    errors = [problem for problem in problems if problem.severity == "error"]
    return (None if errors else System(name=name, **with_tuples(data))), problems


def _problems_of_container(data: Mapping[str, Any], *, file: str) -> list[Problem]:
    runtime, image = data["container"], data["image"]
    problems = [
        Problem(file=file, key=f"mounts[{number}]", value=mount, message=str(error))
        for number, mount in enumerate(data["mounts"])
        if (error := _error_of(containers.mount_of, mount))
    ]
    if runtime == "none":
        return problems
    if runtime == "pyxis" and data["launcher"] not in ("srun", "torchrun"):
        message = "pyxis is a plugin of srun; launchers that start ranks by it: srun, torchrun"
        problems.append(Problem(file=file, key="launcher", value=data["launcher"], message=message))
    if not image:
        message = f"container {runtime} needs an image"
        problems.append(Problem(file=file, key="image", value="", message=message))
    elif not containers.is_pinned(image) and not data["image_sha256"]:
        message = "is a tag, which can become another image; a path, a digest (name@sha256:…) or image_sha256 pins it"
        problems.append(Problem(file=file, key="image", value=image, message=message, severity="warning"))
    return problems


def _error_of(function: Callable[[str], object], text: str) -> str:
    try:
        function(text)
    except ValueError as error:
        return str(error)
    return ""


def load_workload(name: str, *, config_dir: Path, file: str, key: str) -> tuple[WorkloadSpec | None, list[Problem]]:
    """Workload of that name, or the problems of its file; `file` and `key` are what names it."""
    data, problems = _load("workload", name, config_dir=config_dir, file=file, key=key)
    if not data:
        return None, problems
    path = str(config_dir / "workloads" / f"{name}.yaml")
    scales = {}
    for scale, settings in data["scales"].items():
        records = settings.pop("hyperparameters")
        sizes = [record["global_batch_size"] for record in records]
        for size in sorted({size for size in sizes if sizes.count(size) > 1}):
            where, message = f"scales.{scale}.hyperparameters", "has two records for this batch size"
            problems.append(Problem(file=path, key=where, value=size, message=message))
        by_size = {record.pop("global_batch_size"): record for record in records}
        problems += _odd_values(by_size, file=path, key=f"scales.{scale}.hyperparameters")
        scales[scale] = ScaleSpec(hyperparameters=by_size, **settings)
    command, found = _command(data, file=path)
    problems += found
    workload = WorkloadSpec(
        name=name,
        title=data["title"],
        mlperf_benchmark=data["mlperf_benchmark"],
        quality_name=data["quality"]["name"],
        quality_mode=data["quality"]["mode"],
        convergence_unit=data["convergence_unit"],
        scales=scales,
        command=command,
    )
    return (None if problems else workload), problems


def _command(data: Mapping[str, Any], *, file: str) -> tuple[CommandSpec | None, list[Problem]]:
    """The command of a workload that one implements, and what is wrong with it."""
    given = data.get("command")
    if data["implementation"] == "module" and given:
        message = "is used where implementation is command, not module"
        return None, [Problem(file=file, key="command", value=None, message=message)]
    if data["implementation"] == "module":
        return None, []
    if not given:
        return None, [
            Problem(file=file, key="command", value=None, message="is needed where implementation is command")
        ]
    if (preset := given["preset"]) not in vendor.PRESETS:
        message = f"there is no such preset; legal values: {', '.join(vendor.PRESETS)}"
        return None, [Problem(file=file, key="command.preset", value=preset, message=message)]
    values = with_tuples(given) | {"environment": {**vendor.PRESETS[given["preset"]], **given["environment"]}}
    del values["preset"]
    command = CommandSpec(**values)
    problems = [
        Problem(file=file, key=f"command.{key}", value=text, message=message)
        for key, text, message in vendor.problems_of_texts(command)
    ]
    return command, problems


def _odd_values(records: Mapping[int, Mapping[str, object]], *, file: str, key: str) -> list[Problem]:
    """Hyper-parameters that YAML or a slip of the hand made something else of."""
    problems = []
    for size, record in records.items():
        for name, value in record.items():
            where = f"{key}[global_batch_size={size}].{name}"
            if isinstance(value, str) and _is_number(value):
                message = "is text to YAML, which wants a point in a number with an exponent: 1.0e-1"
                problems.append(Problem(file=file, key=where, value=value, message=message))
            elif isinstance(value, float) and not math.isfinite(value):
                problems.append(Problem(file=file, key=where, value=value, message="must be a finite number"))
            elif name.startswith("max_") and not (isinstance(value, int) and value >= 1):
                problems.append(
                    Problem(file=file, key=where, value=value, message="must be a whole number, at least 1")
                )
    return problems


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def load_dataset(name: str, *, config_dir: Path, file: str, key: str) -> tuple[DatasetSpec | None, list[Problem]]:
    """Dataset of that name, or the problems of its file; `file` and `key` are what names it."""
    data, problems = _load("dataset", name, config_dir=config_dir, file=file, key=key)
    if not data:
        return None, problems
    path = str(config_dir / "datasets" / f"{name}.yaml")
    for field, folder in (("format", "datasets"), ("generator", "datasets/tiny")):
        legal = [module for module in names_in(LIBRARY / folder, ".py") if module not in NOT_FORMATS]
        if data[field] and data[field] not in legal:
            message = f"there is no such module; legal values: {', '.join(legal)}"
            problems.append(Problem(file=path, key=field, value=data[field], message=message))
    return (None if problems else DatasetSpec(name=name, **data)), problems


def can_train(workload: WorkloadSpec, *, scale: str, config_dir: Path) -> list[Problem]:
    """Why a workload cannot be trained at a scale; nothing if it can. Importing published logs needs neither."""
    path = str(config_dir / "workloads" / f"{workload.name}.yaml")
    if workload.command is None and not (LIBRARY / "workloads" / f"{workload.name}.py").is_file():
        message = f"cannot be trained: there is no module mlscaling/workloads/{workload.name}.py"
        return [Problem(file=path, key="", value=None, message=message)]
    if scale in workload.scales and not workload.scales[scale].dataset:
        message = "is needed for a curve that is trained"
        return [Problem(file=path, key=f"scales.{scale}.dataset", value=None, message=message)]
    return []


def _load(kind: str, name: str, *, config_dir: Path, file: str, key: str) -> tuple[dict[str, Any], list[Problem]]:
    folder = config_dir / f"{kind}s"
    legal = names_in(folder)
    if name not in legal:
        message = f"there is no {kind} of that name; legal values: {', '.join(legal)}"
        return {}, [Problem(file=file, key=key, value=name, message=message)]
    path = folder / f"{name}.yaml"
    data, problems = read_yaml(path)
    if problems:
        return {}, problems
    data, problems = check_schema(data, schema=kind, file=str(path))
    return ({} if problems else data), problems
