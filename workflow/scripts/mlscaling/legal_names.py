"""Sizes and hyper-parameters of a workload's file that its module does not know: misspelt, most likely."""

from __future__ import annotations

from collections.abc import Iterator

from mlscaling.configuration import Problem
from mlscaling.spec import ScaleSpec, WorkloadSpec
from mlscaling.workload_source import declared


def unknown_names(workload: WorkloadSpec, *, scale: str, file: str) -> list[Problem]:
    """A problem for each name, at the first batch size that has it."""
    known, settings = declared(workload.name), workload.scales[scale]
    problems = []
    for name, value in settings.model.items():
        if known.sizes is not None and name not in known.sizes:
            message = f"is no size of the model; legal: {', '.join(sorted(known.sizes))}"
            problems.append(Problem(file=file, key=f"scales.{scale}.model.{name}", value=value, message=message))
    horizon = f"max_{workload.convergence_unit}"
    for size, name in _first_use(settings):
        where = f"scales.{scale}.hyperparameters[global_batch_size={size}].{name}"
        if name not in known.hyperparameters | {horizon}:
            value = settings.hyperparameters[size][name]
            legal = ", ".join(sorted(known.hyperparameters | {horizon}))
            message = f"is no hyper-parameter of the workload; legal: {legal}"
            problems.append(Problem(file=file, key=where, value=value, message=message))
    for size in (size for size, record in settings.hyperparameters.items() if horizon not in record):
        where = f"scales.{scale}.hyperparameters[global_batch_size={size}]"
        message = f"misses the key {horizon}, where a run gives up"
        problems.append(Problem(file=file, key=where, value=None, message=message))
    return problems


def _first_use(settings: ScaleSpec) -> Iterator[tuple[int, str]]:
    seen = set()
    for size, record in settings.hyperparameters.items():
        for name in record:
            if name not in seen:
                seen.add(name)
                yield size, name
