"""What the folders of `config/` offer by name: systems, rounds, workloads and datasets, with what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlscaling import containers, launchers
from mlscaling.catalog_commands import command_of_workload, problems_of_container
from mlscaling.configuration import Problem, check_schema, names_in, read_yaml
from mlscaling.datasets.preparation import NOT_FORMATS
from mlscaling.evaluation_interval import EvaluationInterval
from mlscaling.legal_names import unknown_names
from mlscaling.rcp_hyperparameters import records_of_rcps
from mlscaling.spec import DatasetSpec, Round, ScaleSpec, WorkloadSpec, with_tuples
from mlscaling.systems import Scalar, System

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
    problems += problems_of_container(data, file=path)
    legal = names_in(config_dir / "workloads")
    for workload in sorted(set(data["samples_per_s_per_accelerator"]) - set(legal)):
        where = f"samples_per_s_per_accelerator.{workload}"
        message = f"there is no workload of that name; legal values: {', '.join(legal)}"
        problems.append(Problem(file=path, key=where, value=None, message=message, severity="warning"))
    errors = [problem for problem in problems if problem.severity == "error"]
    return (None if errors else System(name=name, **with_tuples(data))), problems


def load_workload(
    name: str, *, config_dir: Path, file: str, key: str, ruleset: str
) -> tuple[WorkloadSpec | None, list[Problem]]:
    """Workload of that name, or the problems of its file; `file` and `key` are what names it.

    `ruleset` is the round whose RCPs it may take hyper-parameters from.
    """
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
        scales[scale] = _scale(settings, records=by_size, workload=data, ruleset=ruleset)
    command, found = command_of_workload(data, file=path)
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


def _scale(
    settings: dict[str, Any], *, records: Mapping[int, dict[str, Scalar]], workload: Mapping[str, Any], ruleset: str
) -> ScaleSpec:
    interval = EvaluationInterval.from_configuration(settings.pop("evaluate_every_samples"))
    reference = settings.pop("hyperparameters_from_rcps", None)
    taken: dict[int, Mapping[str, Scalar]] = {}
    if reference is not None and ruleset:
        benchmark, unit = workload["mlperf_benchmark"], workload["convergence_unit"]
        taken |= records_of_rcps(reference, benchmark=benchmark, ruleset=ruleset, convergence_unit=unit)
    return ScaleSpec(hyperparameters={**taken, **records}, evaluate_every_samples=interval, **settings)


def _odd_values(records: Mapping[int, Mapping[str, object]], *, file: str, key: str) -> list[Problem]:
    """Hyper-parameters that YAML or a slip of the hand made something else of."""
    problems = []
    for size, record in records.items():
        for name, value in record.items():
            where = f"{key}[global_batch_size={size}].{name}"
            if isinstance(value, str) and _is_number(value):
                message = "is text to YAML, which wants a point in a number with an exponent: 1.0e-1"
                problems.append(Problem(file=file, key=where, value=value, message=message))
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
    """Why a workload cannot be trained at a scale; nothing if it can. Importing published logs needs none of it."""
    path = str(config_dir / "workloads" / f"{workload.name}.yaml")
    if workload.command is None and not (LIBRARY / "workloads" / f"{workload.name}.py").is_file():
        message = f"cannot be trained: there is no module mlscaling/workloads/{workload.name}.py"
        return [Problem(file=path, key="", value=None, message=message)]
    if scale not in workload.scales:
        return []
    problems = [] if workload.command else unknown_names(workload, scale=scale, file=path)
    if not workload.scales[scale].dataset:
        message = "is needed for a curve that is trained"
        problems.append(Problem(file=path, key=f"scales.{scale}.dataset", value=None, message=message))
    return problems


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
