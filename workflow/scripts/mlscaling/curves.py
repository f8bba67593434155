"""From one curve of a study to its points, with everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlscaling.catalog import can_train, load_system, load_workload
from mlscaling.configuration import Problem
from mlscaling.execution_options import graph_problem
from mlscaling.spec import Point, Published, Round, WorkloadSpec
from mlscaling.systems import System
from mlscaling.workload_source import declared

BATCH_POLICIES = ("strong", "weak", "explicit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A curve as declared, and where it stands."""

    settings: Mapping[str, Any]
    """Its keys, defaults applied."""
    study: Mapping[str, Any]
    """The keys of its study, defaults applied."""
    config_dir: Path
    """Folder of the configuration."""
    file: str
    """The study's file, for messages."""
    key: str
    """Its key in the file, e.g. `curves[0]`."""

    def problem(self, key: str, value: object, message: str, *, severity: str = "error") -> Problem:
        """A problem with one of its keys; empty for the curve as a whole."""
        where = f"{self.key}.{key}" if key else self.key
        return Problem(file=self.file, key=where, value=value, message=message, severity=severity)


def points_of_curve(curve: Curve, *, round_: Round | None) -> tuple[list[Point], list[Problem]]:
    """The curve's points in the order of its node counts, and its problems; no points where one is an error."""
    settings, folder, file = curve.settings, curve.config_dir, curve.file
    system, problems = load_system(settings["system"], config_dir=folder, file=file, key=f"{curve.key}.system")
    ruleset = "" if round_ is None else round_.name
    workload, found = load_workload(
        settings["workload"], config_dir=folder, file=file, key=f"{curve.key}.workload", ruleset=ruleset
    )
    problems += found
    policy, found = _batch_policy(curve)
    problems += found + _problems_of_source(curve, workload=workload)
    if isinstance(steps := settings["gradient_accumulation_steps"], list):
        problems += _one_for_each_node_count(curve, steps, key="gradient_accumulation_steps")
    if workload is not None:
        problems += _problems_of_workload(curve, workload, round_=round_)
    unusable = any(problem.severity == "error" for problem in problems)
    if unusable or system is None or workload is None or round_ is None:
        return [], problems
    required = round_.required_runs[workload.mlperf_benchmark]
    if settings["runs"] < required:
        message = f"round {round_.name} requires {required}; points will be labelled incomplete"
        problems.append(curve.problem("runs", settings["runs"], message, severity="warning"))
    points = [
        _point(curve, index=index, system=system, workload=workload, round_=round_, policy=policy)
        for index in range(len(settings["nodes"]))
    ]
    rcps = workload.scales[curve.study["scale"]].rcps
    if rcps not in ("", "official") and not (folder.parent / rcps).is_file():
        where, message = f"scales.{curve.study['scale']}.rcps", "there is no such file; points have no RCP verdict"
        workload_file = str(folder / "workloads" / f"{workload.name}.yaml")
        problems.append(Problem(file=workload_file, key=where, value=rcps, message=message, severity="warning"))
    for index, point in enumerate(points):
        problems += _problems_of_point(curve, point, key=f"nodes[{index}]")
    return points, problems


def _point(
    curve: Curve, *, index: int, system: System, workload: WorkloadSpec, round_: Round, policy: str
) -> Point:  # fmt: skip
    return Point(
        study=curve.study["study"],
        system=system,
        workload=workload,
        scale=curve.study["scale"],
        nodes=curve.settings["nodes"][index],
        batch_policy=policy,
        global_batch_size=_global_batch_size(curve.settings, policy=policy, index=index, system=system),
        gradient_accumulation_steps=_accumulation(curve.settings, index=index),
        num_runs=curve.settings["runs"],
        required_runs=round_.required_runs[workload.mlperf_benchmark],
        trimmed_runs=round_.trimmed_runs[workload.mlperf_benchmark],
        allocation=curve.settings["allocation"],
        published=_published(curve.settings, index=index, benchmark=workload.mlperf_benchmark),
    )


def _problems_of_workload(curve: Curve, workload: WorkloadSpec, *, round_: Round | None) -> list[Problem]:
    problems = []
    scale = curve.study["scale"]
    if scale not in workload.scales:
        message = f"{workload.name} has no such scale; legal values: {', '.join(workload.scales)}"
        problems.append(Problem(file=curve.file, key="scale", value=scale, message=message))
    if round_ and workload.mlperf_benchmark not in round_.required_runs:
        legal = ", ".join(round_.required_runs)
        message = f"round {round_.name} has no benchmark {workload.mlperf_benchmark}; it has {legal}"
        problems.append(curve.problem("workload", workload.name, message))
    return problems


def _batch_policy(curve: Curve) -> tuple[str, list[Problem]]:
    given = [policy for policy in BATCH_POLICIES if policy in curve.settings]
    if len(given) != 1:
        what = "has none of them" if not given else f"has {' and '.join(given)}"
        return "", [curve.problem("", None, f"needs exactly one of {', '.join(BATCH_POLICIES)}, and {what}")]
    if given[0] == "explicit":
        sizes = curve.settings["explicit"]["global_batch_sizes"]
        return given[0], _one_for_each_node_count(curve, sizes, key="explicit.global_batch_sizes")
    return given[0], []


def _one_for_each_node_count(curve: Curve, entries: list[Any], *, key: str) -> list[Problem]:
    num_nodes = len(curve.settings["nodes"])
    if len(entries) == num_nodes:
        return []
    return [curve.problem(key, entries, f"needs one entry for each of the {num_nodes} node counts")]


def _global_batch_size(settings: Mapping[str, Any], *, policy: str, index: int, system: System) -> int:
    if policy == "strong":
        return int(settings["strong"]["global_batch_size"])
    if policy == "explicit":
        return int(settings["explicit"]["global_batch_sizes"][index])
    ranks = int(settings["nodes"][index]) * system.accelerators_per_node
    return int(settings["weak"]["local_batch_size"]) * ranks * _accumulation(settings, index=index)


def _accumulation(settings: Mapping[str, Any], *, index: int) -> int:
    steps = settings["gradient_accumulation_steps"]
    return int(steps[index] if isinstance(steps, list) else steps)


def _published(settings: Mapping[str, Any], *, index: int, benchmark: str) -> Published | None:
    if "published" not in settings:
        return None
    source = settings["published"]
    folder = source.get("benchmark", benchmark)
    return Published(submitter=source["submitter"], system=source["systems"][index], benchmark=folder)


def _problems_of_source(curve: Curve, *, workload: WorkloadSpec | None) -> list[Problem]:
    """What is wrong with where the logs come from: a training, or a tree of published results."""
    if "published" not in curve.settings:
        return can_train(workload, scale=curve.study["scale"], config_dir=curve.config_dir) if workload else []
    systems = curve.settings["published"]["systems"]
    problems = _one_for_each_node_count(curve, systems, key="published.systems")
    root = curve.study["published_root"]
    if not root or not Path(root).is_dir():
        message = "there is no such folder" if root else "is needed for curves with `published`"
        message += "; give the checkout of a training_results repository, or the folder of a submitter in it"
        problems.append(Problem(file=curve.file, key="published_root", value=root, message=message))
    trained = {other["system"] for other in curve.study["curves"] if "published" not in other}
    if curve.settings["system"] in trained:
        message = "has curves that are trained and curves that are published; give one kind a system file of its own"
        problems.append(curve.problem("system", curve.settings["system"], message))
    return problems


def _problems_of_point(curve: Curve, point: Point, *, key: str) -> list[Problem]:
    problems = []
    if point.nodes > point.system.max_nodes:
        message = f"system {point.system.name} has max_nodes = {point.system.max_nodes}"
        problems.append(curve.problem(key, point.nodes, message))
    parts = point.accelerators * point.gradient_accumulation_steps
    if point.global_batch_size % parts:
        message = (
            f"global batch size {point.global_batch_size} is not divisible by {point.accelerators} ranks × "
            f"{point.gradient_accumulation_steps} accumulation steps; "
            f"nearest legal: {_nearest(point.global_batch_size, parts)}"
        )
        problems.append(curve.problem(key, point.nodes, message))
    problems += _problem_of_graphs(curve, point)
    legal = sorted(point.settings.hyperparameters)
    ours = point.published is None and point.workload.command is None
    if ours and point.global_batch_size not in legal:
        workload_file = curve.config_dir / "workloads" / f"{point.workload.name}.yaml"
        message = (
            f"global batch size {point.global_batch_size} has no hyper-parameters in {workload_file} "
            f"(scales.{point.scale}.hyperparameters) for this round; it has {legal}"
        )
        problems.append(curve.problem(key, point.nodes, message))
    return problems


def _problem_of_graphs(curve: Curve, point: Point) -> list[Problem]:
    if point.published is not None or point.workload.command is not None:
        return []
    message = graph_problem(
        {"cuda_graphs": curve.study["cuda_graphs"]},
        device=point.system.device,
        gradient_accumulation_steps=point.gradient_accumulation_steps,
        workload=point.workload.name,
        static_shapes=declared(point.workload.name).static_shapes,
    )
    return [Problem(file=curve.file, key="cuda_graphs", value=True, message=message)] if message else []


def _nearest(size: int, parts: int) -> str:
    below = size - size % parts
    return f"{below} or {below + parts}" if below else f"{parts}"
