"""From a study's configuration to its points and runs, reporting every problem at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlscaling.catalog import LIBRARY, load_dataset, load_round
from mlscaling.configuration import Problem, check_schema, names_in, sound_part
from mlscaling.curves import Curve, points_of_curve
from mlscaling.execution_options import execution_options, submitter
from mlscaling.mlcommons import footnotes, short_round
from mlscaling.mlperf.rounds import Target
from mlscaling.seeds import seed_of_run
from mlscaling.spec import DatasetSpec, Point, Round, RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A checked study: all that the workflow needs to know of its configuration."""

    name: str
    """Name; results go to `results/<name>/`."""
    title: str
    """What a reader of the report should see."""
    notes: tuple[str, ...]
    """Sentences that every figure and the summary carry."""
    round: Round
    """Rules to keep."""
    scale: str
    """`tiny` or `full`."""
    data_root: str
    """Folder of prepared data."""
    raw_root: str
    """Folder where raw archives of the full scale are expected."""
    published_root: str
    """Tree of published results; empty where nothing is imported."""
    options: Mapping[str, bool | int | float | str]
    """Execution options of every training: `precision`, `compile`, `cuda_graphs`."""
    accept_missing_runs: bool
    """Report although runs have failed."""
    anonymize: bool
    """Replace identities in a bundle by pseudonyms."""
    plots: tuple[str, ...]
    """Figures to draw."""
    submission: Mapping[str, Any]
    """`submitter`, `division` and `rehearsal` of the target `submission`."""
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
    """Seed of a run, 1 … 2³¹−1."""
    return seed_of_run(study=point.study, point=point.path, global_batch_size=point.global_batch_size, run=run)


def run_spec(study: Study, point: Point, *, run: int) -> RunSpec:
    """What one training consumes; `data_dir` is filled in where it starts, so that moving data re-runs nothing."""
    if run >= point.num_runs:
        raise ValueError(f"{point.path} has no run {run}: study {study.name} plans {point.num_runs}, from 0")
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
        evaluate_every_samples=settings.evaluate_every_samples.at(point.global_batch_size),
        convergence_unit=point.workload.convergence_unit,
        quality_mode=point.workload.quality_mode,
        target=settings.target,
        model=settings.model,
        hyperparameters=settings.hyperparameters.get(point.global_batch_size, {}),
        options={**study.options, **submitter("submitter", point)},
        command=dataclasses.asdict(command) if (command := point.workload.command) else {},
    )


def expected_log(study: Study, point: Point, *, run: int) -> dict[str, Any]:
    """What a log of this run must say of itself; the compliance check compares."""
    common = {
        "benchmark": point.workload.mlperf_benchmark,
        "global_batch_size": point.global_batch_size,
        "accelerators": point.accelerators,
    }
    if point.published is not None or point.workload.command is not None:  # their own names of platform and seed
        return common
    return {
        **common,
        "division": study.round.division,
        "platform": point.system.name,
        **submitter("organization", point),
        "local_batch_size": point.local_batch_size,
        "gradient_accumulation_steps": point.gradient_accumulation_steps,
        "seed": run_seed(point, run=run),
    }


def planned(study: Study) -> dict[str, Any]:
    """What everything behind the training needs to know of the plan; written as `planned.json`."""
    return {
        "schema_version": 1,
        "study": study.name,
        "title": study.title,
        "notes": list(_notes(study)),
        "round": study.round.name,
        "scale": study.scale,
        "points": [_planned_point(point) for point in study.points],
    }


def _notes(study: Study) -> tuple[str, ...]:
    """Sentences that every figure must carry: the study's, and what MLCommons asks of whoever shows its results."""
    submitters = sorted({point.published.submitter for point in study.points if point.published})
    if not submitters:
        return study.notes
    source = f"training_results_{short_round(study.round.name)}"
    return study.notes + footnotes(study.round.name, "closed", submitters=submitters, source=source)


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
        "trial_seeds": [] if point.published else [run_seed(point, run=run) for run in range(point.num_runs)],
        "target": Target.of(point.settings.target, mode=point.workload.quality_mode).first,
        "quality_name": point.workload.quality_name,
        "quality_mode": point.workload.quality_mode,
        "convergence_unit": point.workload.convergence_unit,
        "train_samples": point.settings.train_samples,
        "samples_per_s_per_accelerator": point.system.samples_per_s_per_accelerator.get(point.workload.name),
        "rcps": point.settings.rcps,
    }


# --- building, from parts that each return what they could build and the problems they met ---------------------------


def _build(config: Mapping[str, Any], *, config_dir: Path, file: str) -> tuple[Study | None, list[Problem]]:
    data, problems = check_schema(config, schema="study", file=file)
    data = sound_part(data, problems, schema="study")
    if not {"study", "scale", "curves"} <= data.keys():
        return None, problems
    round_, found = load_round(data["round"], config_dir=config_dir, file=file) if "round" in data else (None, [])
    problems += found + _unknown_plots(data["plots"], file=file)
    curves = {number: settings for number, settings in enumerate(data["curves"]) if settings is not None}
    data["curves"] = list(curves.values())
    points: list[Point] = []
    for number, settings in curves.items():
        curve = Curve(settings=settings, study=data, config_dir=config_dir, file=file, key=f"curves[{number}]")
        curve_points, found = points_of_curve(curve, round_=round_)
        points += curve_points
        problems += found
    problems = list({str(problem): problem for problem in problems}.values())
    problems += _repeated_points(points, file=file)
    datasets, found = _datasets(points, config_dir=config_dir)
    problems += found
    if round_ is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _study(data, round_=round_, points=points, datasets=datasets, warnings=problems), problems


def _study(
    data: Mapping[str, Any],
    *,
    round_: Round,
    points: Sequence[Point],
    datasets: Mapping[str, DatasetSpec],
    warnings: Sequence[Problem],
) -> Study:
    return Study(
        name=data["study"],
        title=data.get("title", data["study"]),
        notes=tuple(data["notes"]),
        round=round_,
        scale=data["scale"],
        data_root=data["data_root"],
        raw_root=data["raw_root"],
        published_root=data["published_root"],
        options=execution_options(data),
        accept_missing_runs=data["accept_missing_runs"],
        anonymize=data["anonymize"],
        plots=tuple(data["plots"]),
        submission=data["submission"],
        points=tuple(points),
        datasets=datasets,
        warnings=tuple(warnings),
    )


def _datasets(points: Sequence[Point], *, config_dir: Path) -> tuple[dict[str, DatasetSpec], list[Problem]]:
    datasets: dict[str, DatasetSpec] = {}
    problems: list[Problem] = []
    for point in points:
        name = point.settings.dataset
        if point.published is not None or name in datasets:
            continue
        file, key = config_dir / "workloads" / f"{point.workload.name}.yaml", f"scales.{point.scale}.dataset"
        dataset, found = load_dataset(name, config_dir=config_dir, file=str(file), key=key)
        problems += found
        if dataset is not None:
            datasets[name] = dataset
    return datasets, problems


def _repeated_points(points: Sequence[Point], *, file: str) -> list[Problem]:
    paths = [point.path for point in points]
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    message = "two curves have this point; a study has one point for each system, workload and node count"
    return [Problem(file=file, key="curves", value=path, message=message) for path in repeated]


def _unknown_plots(plots: Sequence[str], *, file: str) -> list[Problem]:
    legal = [name for name in names_in(LIBRARY / "plots", ".py") if name != "style"]
    message = f"is not a figure; legal values: {', '.join(legal)}"
    return [
        Problem(file=file, key=f"plots[{number}]", value=name, message=message)
        for number, name in enumerate(plots)
        if name not in legal
    ]
