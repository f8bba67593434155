"""From a study's configuration to its points and runs, reporting every problem at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlscaling.configuration import Problem, check_schema, names_in, read_yaml
from mlscaling.spec import DatasetSpec, Point, Round, RunSpec, ScaleSpec, System, WorkloadSpec

LIBRARY = Path(__file__).resolve().parent
BATCH_POLICIES = ("strong", "weak", "explicit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A checked study: all that the workflow needs to know of its configuration."""

    name: str
    """Name; results go to `results/<name>/`."""
    title: str
    """What a reader of the report should see."""
    round: Round
    """Rules to keep."""
    scale: str
    """`tiny` or `full`."""
    data_root: str
    """Folder of prepared data."""
    raw_root: str
    """Folder where raw archives of the full scale are expected."""
    options: Mapping[str, bool | int | float | str]
    """Execution options of every training: `precision`, `compile`."""
    accept_missing_runs: bool
    """Report although runs have failed."""
    plots: tuple[str, ...]
    """Figures to draw."""
    points: tuple[Point, ...]
    """Every point of every curve, in the order of the file."""
    datasets: Mapping[str, DatasetSpec]
    """Datasets that the points use."""
    warnings: tuple[Problem, ...] = ()
    """What is allowed but labelled, e.g. fewer runs than the round requires."""

    def point(self, *, system: str, workload: str, nodes: int | str) -> Point:
        """The point at a path.

        Raises:
            ValueError: the study has no such point; lists those it has.
        """
        path = f"{system}/{workload}/n{nodes}"
        for point in self.points:
            if point.path == path:
                return point
        raise ValueError(f"study {self.name} has no point {path}; it has {[point.path for point in self.points]}")


class StudyError(ValueError):
    """All problems of a study in one message."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        super().__init__(f"the study has {count}:\n" + "\n".join(f"  {problem}" for problem in problems))


def load_study(config: Mapping[str, Any], *, config_dir: Path, file: str = "config/config.yaml") -> Study:
    """Check the configuration and expand it.

    Args:
        config: the study, as Snakemake's `config` holds it.
        config_dir: folder with `workloads/`, `systems/`, `rounds/`, `datasets/`.
        file: name of the study's file, for messages.

    Raises:
        StudyError: lists every problem with file, key, value and what is legal.
    """
    study, problems = _build(config, config_dir=config_dir, file=file)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors or study is None:
        raise StudyError(errors)
    return study


def check_study(config: Mapping[str, Any], *, config_dir: Path, file: str = "config/config.yaml") -> list[Problem]:
    """Every problem of a study at once, errors and warnings; empty if there is none. Arguments as `load_study`."""
    return _build(config, config_dir=config_dir, file=file)[1]


def run_seed(point: Point, *, run: int) -> int:
    """Seed of a run, 1 … 2³¹−1: a stable hash of the run's identity, different for each run of each study."""
    identity = f"{point.study}/{point.path}/b{point.global_batch_size}/run{run}"
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") % (2**31 - 1) + 1


def run_spec(study: Study, point: Point, *, run: int) -> RunSpec:
    """What one training consumes; `data_dir` is filled in where it starts, so that moving data re-runs nothing."""
    settings = point.settings
    return RunSpec(
        study=study.name,
        system=point.system.name,
        workload=point.workload.name,
        scale=point.scale,
        mlperf_benchmark=point.workload.mlperf_benchmark,
        round=study.round.name,
        division=study.round.division,
        nodes=point.nodes,
        accelerators_per_node=point.system.accelerators_per_node,
        cpus_per_accelerator=point.system.cpus_per_accelerator,
        device=point.system.device,
        emulated=point.system.emulated,
        global_batch_size=point.global_batch_size,
        local_batch_size=point.local_batch_size,
        gradient_accumulation_steps=point.gradient_accumulation_steps,
        run=run,
        seed=run_seed(point, run=run),
        data_dir="",
        train_samples=settings.train_samples,
        eval_samples=settings.eval_samples,
        evaluate_every_samples=settings.evaluate_every_samples,
        convergence_unit=point.workload.convergence_unit,
        quality_mode=point.workload.quality_mode,
        target=settings.target,
        model=settings.model,
        hyperparameters=settings.hyperparameters[point.global_batch_size],
        options=study.options,
    )


def expected_log(study: Study, point: Point, *, run: int) -> dict[str, Any]:
    """What a log of this run must say of itself; the compliance check compares."""
    return {
        "benchmark": point.workload.mlperf_benchmark,
        "division": study.round.division,
        "platform": point.system.name,
        "global_batch_size": point.global_batch_size,
        "local_batch_size": point.local_batch_size,
        "accelerators": point.accelerators,
        "gradient_accumulation_steps": point.gradient_accumulation_steps,
        "seed": run_seed(point, run=run),
    }


def planned(study: Study) -> dict[str, Any]:
    """What everything behind the training needs to know of the plan; written as `planned.json`."""
    return {
        "schema_version": 1,
        "study": study.name,
        "title": study.title,
        "round": study.round.name,
        "scale": study.scale,
        "points": [_planned_point(point) for point in study.points],
    }


def _planned_point(point: Point) -> dict[str, Any]:
    return {
        "system": point.system.name,
        "system_title": point.system.title,
        "emulated": point.system.emulated,
        "workload": point.workload.name,
        "workload_title": point.workload.title,
        "mlperf_benchmark": point.workload.mlperf_benchmark,
        "nodes": point.nodes,
        "accelerators": point.accelerators,
        "global_batch_size": point.global_batch_size,
        "local_batch_size": point.local_batch_size,
        "batch_policy": point.batch_policy,
        "num_runs": point.num_runs,
        "required_runs": point.required_runs,
        "trimmed_runs": point.trimmed_runs,
        "trial_seeds": [run_seed(point, run=run) for run in range(point.num_runs)],
        "target": point.settings.target,
        "quality_name": point.workload.quality_name,
        "quality_mode": point.workload.quality_mode,
        "convergence_unit": point.workload.convergence_unit,
        "train_samples": point.settings.train_samples,
        "samples_per_s_per_accelerator": point.system.samples_per_s_per_accelerator.get(point.workload.name),
        "rcps": point.settings.rcps,
    }


# --- building blocks: each returns what it could build and the problems it met ---------------------------------------


def _build(config: Mapping[str, Any], *, config_dir: Path, file: str) -> tuple[Study | None, list[Problem]]:
    data, problems = check_schema(config, schema="study", file=file)
    if problems:
        return None, problems
    round_, found = _load_round(data["round"], config_dir=config_dir, file=file)
    problems += found
    problems += _unknown_plots(data["plots"], file=file)
    points: list[Point] = []
    for number, curve in enumerate(data["curves"]):
        curve_points, found = _points_of_curve(
            curve, data=data, round_=round_, config_dir=config_dir, file=file, key=f"curves[{number}]"
        )
        points += curve_points
        problems += found
    problems = list({str(problem): problem for problem in problems}.values())
    problems += _repeated_points(points, file=file)
    datasets, found = _load_datasets(points, config_dir=config_dir)
    problems += found
    if round_ is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    study = Study(
        name=data["study"],
        title=data.get("title", data["study"]),
        round=round_,
        scale=data["scale"],
        data_root=data["data_root"],
        raw_root=data["raw_root"],
        options={"precision": data["precision"], "compile": data["compile"]},
        accept_missing_runs=data["accept_missing_runs"],
        plots=tuple(data["plots"]),
        points=tuple(points),
        datasets=datasets,
        warnings=tuple(problems),
    )
    return study, problems


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


def _load_round(name: str, *, config_dir: Path, file: str) -> tuple[Round | None, list[Problem]]:
    data, problems = _load("round", name, config_dir=config_dir, file=file, key="round")
    if not data:
        return None, problems
    trimmed = {benchmark: data["trimmed_runs"].get(benchmark, 1) for benchmark in data["required_runs"]}
    required = data["required_runs"]
    return Round(name=name, division=data["division"], required_runs=required, trimmed_runs=trimmed), problems


def load_system(name: str, *, config_dir: Path, file: str = "", key: str = "") -> tuple[System | None, list[Problem]]:
    """System of that name, or the problems of its file."""
    from mlscaling import containers, launchers

    data, problems = _load("system", name, config_dir=config_dir, file=file, key=key)
    if not data:
        return None, problems
    path = str(config_dir / "systems" / f"{name}.yaml")
    for field, registry in (("launcher", launchers.LAUNCHERS), ("container", containers.CONTAINERS)):
        if data[field] not in registry:
            message = f"is not registered; legal values: {', '.join(sorted(registry))}"
            problems.append(Problem(file=path, key=field, value=data[field], message=message))
    if data["container"] != "none" and not data["image"]:
        problems.append(
            Problem(file=path, key="image", value="", message=f"container {data['container']} needs an image")
        )
    return (None if problems else System(name=name, **data)), problems


def _load_workload(name: str, *, config_dir: Path, file: str, key: str) -> tuple[WorkloadSpec | None, list[Problem]]:
    data, problems = _load("workload", name, config_dir=config_dir, file=file, key=key)
    if not data:
        return None, problems
    path = config_dir / "workloads" / f"{name}.yaml"
    if not (LIBRARY / "workloads" / f"{name}.py").is_file():
        message = f"has no module mlscaling/workloads/{name}.py"
        problems.append(Problem(file=str(path), key="", value=None, message=message))
    scales = {}
    for scale, settings in data["scales"].items():
        records = settings.pop("hyperparameters")
        sizes = [record["global_batch_size"] for record in records]
        for size in sorted({size for size in sizes if sizes.count(size) > 1}):
            where = f"scales.{scale}.hyperparameters"
            problems.append(
                Problem(file=str(path), key=where, value=size, message="has two records for this batch size")
            )
        by_size = {record.pop("global_batch_size"): record for record in records}
        scales[scale] = ScaleSpec(hyperparameters=by_size, **settings)
    workload = WorkloadSpec(
        name=name,
        title=data["title"],
        mlperf_benchmark=data["mlperf_benchmark"],
        quality_name=data["quality"]["name"],
        quality_mode=data["quality"]["mode"],
        convergence_unit=data["convergence_unit"],
        scales=scales,
    )
    return (None if problems else workload), problems


def _load_datasets(points: Sequence[Point], *, config_dir: Path) -> tuple[dict[str, DatasetSpec], list[Problem]]:
    datasets: dict[str, DatasetSpec] = {}
    problems: list[Problem] = []
    for point in points:
        name, workload_file = point.settings.dataset, str(config_dir / "workloads" / f"{point.workload.name}.yaml")
        if name in datasets:
            continue
        data, found = _load(
            "dataset", name, config_dir=config_dir, file=workload_file, key=f"scales.{point.scale}.dataset"
        )
        if data:
            datasets[name] = DatasetSpec(name=name, **data)
            found += _wrong_modules(datasets[name], config_dir=config_dir)
        problems += found
    return datasets, problems


def _wrong_modules(dataset: DatasetSpec, *, config_dir: Path) -> list[Problem]:
    path = str(config_dir / "datasets" / f"{dataset.name}.yaml")
    problems = []
    for key, value, folder in (
        ("format", dataset.format, "datasets"),
        ("generator", dataset.generator, "datasets/tiny"),
    ):
        legal = names_in(LIBRARY / folder, ".py")
        if value and value not in legal:
            message = f"there is no such module; legal values: {', '.join(legal)}"
            problems.append(Problem(file=path, key=key, value=value, message=message))
    return problems


def _points_of_curve(
    curve: Mapping[str, Any], *, data: Mapping[str, Any], round_: Round | None, config_dir: Path, file: str, key: str
) -> tuple[list[Point], list[Problem]]:
    system, problems = load_system(curve["system"], config_dir=config_dir, file=file, key=f"{key}.system")
    workload, found = _load_workload(curve["workload"], config_dir=config_dir, file=file, key=f"{key}.workload")
    problems += found
    policy, found = _batch_policy(curve, file=file, key=key)
    problems += found
    if workload is not None and data["scale"] not in workload.scales:
        message = f"{workload.name} has no such scale; legal values: {', '.join(workload.scales)}"
        problems.append(Problem(file=file, key="scale", value=data["scale"], message=message))
    benchmark = workload.mlperf_benchmark if workload else ""
    if round_ and workload and benchmark not in round_.required_runs:
        message = f"round {round_.name} has no benchmark {benchmark}; it has {', '.join(round_.required_runs)}"
        problems.append(Problem(file=file, key=f"{key}.workload", value=workload.name, message=message))
    if problems or system is None or workload is None or round_ is None:
        return [], problems
    if curve["runs"] < round_.required_runs[benchmark]:
        message = f"round {round_.name} requires {round_.required_runs[benchmark]}; points will be labelled incomplete"
        problems.append(Problem(file=file, key=f"{key}.runs", value=curve["runs"], message=message, severity="warning"))
    points = [
        Point(
            study=data["study"],
            system=system,
            workload=workload,
            scale=data["scale"],
            nodes=nodes,
            batch_policy=policy,
            global_batch_size=_global_batch_size(curve, policy=policy, index=index, system=system),
            gradient_accumulation_steps=curve["gradient_accumulation_steps"],
            num_runs=curve["runs"],
            required_runs=round_.required_runs[benchmark],
            trimmed_runs=round_.trimmed_runs[benchmark],
        )
        for index, nodes in enumerate(curve["nodes"])
    ]
    for index, point in enumerate(points):
        problems += _problems_of_point(point, config_dir=config_dir, file=file, key=f"{key}.nodes[{index}]")
    return points, problems


def _batch_policy(curve: Mapping[str, Any], *, file: str, key: str) -> tuple[str, list[Problem]]:
    given = [policy for policy in BATCH_POLICIES if policy in curve]
    if len(given) != 1:
        what = "has none of them" if not given else f"has {' and '.join(given)}"
        message = f"needs exactly one of {', '.join(BATCH_POLICIES)}, and {what}"
        return "", [Problem(file=file, key=key, value=None, message=message)]
    if given[0] == "explicit":
        sizes, nodes = curve["explicit"]["global_batch_sizes"], curve["nodes"]
        if len(sizes) != len(nodes):
            message = f"needs one entry for each of the {len(nodes)} node counts"
            where = f"{key}.explicit.global_batch_sizes"
            return "", [Problem(file=file, key=where, value=sizes, message=message)]
    return given[0], []


def _global_batch_size(curve: Mapping[str, Any], *, policy: str, index: int, system: System) -> int:
    if policy == "strong":
        return int(curve["strong"]["global_batch_size"])
    if policy == "explicit":
        return int(curve["explicit"]["global_batch_sizes"][index])
    ranks = int(curve["nodes"][index]) * system.accelerators_per_node
    local_batch_size: int = curve["weak"]["local_batch_size"]
    return local_batch_size * ranks * int(curve["gradient_accumulation_steps"])


def _problems_of_point(point: Point, *, config_dir: Path, file: str, key: str) -> list[Problem]:
    problems = []
    if point.nodes > point.system.max_nodes:
        message = f"system {point.system.name} has max_nodes = {point.system.max_nodes}"
        problems.append(Problem(file=file, key=key, value=point.nodes, message=message))
    parts = point.accelerators * point.gradient_accumulation_steps
    if point.global_batch_size % parts:
        message = (
            f"global batch size {point.global_batch_size} is not divisible by {point.accelerators} ranks × "
            f"{point.gradient_accumulation_steps} accumulation steps; "
            f"nearest legal: {_nearest(point.global_batch_size, parts)}"
        )
        problems.append(Problem(file=file, key=key, value=point.nodes, message=message))
    legal = sorted(point.settings.hyperparameters)
    if point.global_batch_size not in legal:
        workload_file = config_dir / "workloads" / f"{point.workload.name}.yaml"
        message = (
            f"global batch size {point.global_batch_size} has no hyper-parameters in {workload_file} "
            f"(scales.{point.scale}.hyperparameters); it has {legal}"
        )
        problems.append(Problem(file=file, key=key, value=point.nodes, message=message))
    return problems


def _nearest(size: int, parts: int) -> str:
    below = size - size % parts
    return f"{below} or {below + parts}" if below else f"{parts}"


def _repeated_points(points: Sequence[Point], *, file: str) -> list[Problem]:
    paths = [point.path for point in points]
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    message = "two curves have this point; a study has one point for each system, workload and node count"
    return [Problem(file=file, key="curves", value=path, message=message) for path in repeated]


def _unknown_plots(plots: Sequence[str], *, file: str) -> list[Problem]:
    legal = [name for name in names_in(LIBRARY / "plots", ".py") if name != "style"]
    return [
        Problem(
            file=file, key=f"plots[{number}]", value=name, message=f"is not a figure; legal values: {', '.join(legal)}"
        )
        for number, name in enumerate(plots)
        if name not in legal
    ]
