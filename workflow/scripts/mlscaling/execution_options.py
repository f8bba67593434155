"""What the execution options of a study need; asked where a study is checked, and again where a run starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlscaling.spec import Point
from mlscaling.systems import Scalar


def execution_options(study: Mapping[str, Any]) -> dict[str, Scalar]:
    """Execution options of a study's trainings; those that came later only where they are used.

    They stand in the spec of each run, and a new one must not make finished runs look changed.
    """
    later = {name: True for name in ("cuda_graphs",) if study[name]}
    return {"precision": study["precision"], "compile": study["compile"], **later}


def graph_problem(
    options: Mapping[str, Scalar], *, device: str, gradient_accumulation_steps: int, workload: str, static_shapes: bool
) -> str:
    """Why `cuda_graphs` cannot be kept; empty where it can, or is not asked for.

    A graph repeats the same kernels on the same memory, so every pass must have the same shapes.
    """
    if not options.get("cuda_graphs"):
        return ""
    if device != "cuda":
        return f"cuda_graphs needs a system of device cuda, this one is {device}"
    if gradient_accumulation_steps != 1:
        return f"cuda_graphs needs gradient_accumulation_steps 1, not {gradient_accumulation_steps}"
    if not static_shapes:
        return f"cuda_graphs needs batches of one shape, and those of workload {workload} differ (static_shapes)"
    return ""


def submitter(key: str, point: Point) -> dict[str, str]:
    """Who submits, where a person said so: it stands in the logs, so that they and the description agree."""
    name = point.system.description.get("submitter")
    return {key: name} if name else {}
