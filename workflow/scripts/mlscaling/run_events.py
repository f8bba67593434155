"""What a run says of itself: the events at the head of its MLPerf log, and one line of an evaluation for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlscaling.spec import RunSpec


def submission(spec: RunSpec) -> dict[str, Any]:
    """What MLPerf asks of every log: who, where, what."""
    return {
        "submission_benchmark": spec.mlperf_benchmark,
        "submission_division": spec.division,
        "submission_org": str(spec.options.get("submitter", "unspecified")),
        "submission_platform": spec.system,
        "submission_status": str(spec.options.get("submission_status", "onprem")),
    }


def settings(spec: RunSpec) -> dict[str, Any]:
    """Settings of a run that do not depend on its workload."""
    return {
        "seed": spec.seed,
        "global_batch_size": spec.global_batch_size,
        "local_batch_size": spec.local_batch_size,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
        "train_samples": spec.train_samples,
        "eval_samples": spec.eval_samples,
        "target_quality": spec.target,
        "number_of_nodes": spec.nodes,
        "accelerators_per_node": spec.accelerators_per_node,
        "precision": str(spec.options.get("precision", "float32")),
    }


def progress(spec: RunSpec, *, trained: int, quality: float | Mapping[str, float], throughput: float) -> str:
    """One line of an evaluation for people."""
    place = f"{spec.workload} n{spec.nodes} run {spec.run}: {spec.convergence_unit} {trained}"
    shown = f"quality {_shown(quality, '.4f')} (target {_shown(spec.target, 'g')})"
    return f"{place}, {shown}, {throughput:.0f} samples/s"


def _shown(values: float | Mapping[str, float], form: str) -> str:
    if isinstance(values, Mapping):
        return ", ".join(f"{metric} {value:{form}}" for metric, value in values.items())
    return f"{values:{form}}"
