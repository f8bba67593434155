"""How much training a run took to its target, in the unit in which the RCP checker counts.

Source of each rule: `rcp_checker.read_submission_file` of mlperf_logging 4.1.68, which takes the last evaluation
before `run_stop`, and the logs of BERT's submitters, of whom some count samples in `epoch_num` and some in
`train_samples`; the official tool wants a flag for that, here the log decides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from mlscaling.mlperf.summary import NAN, ConvergenceUnit, Evaluation, RunSummary

BERT_SAMPLES: Final = 1e4
"""An `epoch_num` of BERT from here on counts samples; no submission has trained ten thousand epochs."""
_STABLE_DIFFUSION_LIMITS: Final = {"FID": 90.0, "CLIP": 0.15}


def with_convergence(summary: RunSummary) -> RunSummary:
    """The summary with what follows from its evaluations: convergence, samples and throughput."""
    amount, unit = _trained(summary)
    samples = amount * summary.train_samples if unit == "epochs" else amount
    success = summary.status == "success"
    return dataclasses.replace(
        summary,
        convergence=amount if success else NAN,
        convergence_unit=unit,
        samples_to_converge=samples if success else NAN,
        throughput_samples_per_s=samples / (summary.time_to_train_min * 60),
    )


def counts_train_samples(summary: RunSummary) -> bool:
    """True where BERT's samples stand in `train_samples`: the official checkers' `bert_train_samples`."""
    before = _before_stop(summary)
    if summary.benchmark != "bert" or not before or math.isfinite(before[-1].samples_count):
        return False
    return not before[-1].epoch_num >= BERT_SAMPLES and math.isfinite(summary.train_samples)


def _before_stop(summary: RunSummary) -> Sequence[Evaluation]:
    return summary.evaluations[: len(summary.evaluations) - summary.num_evaluations_after_stop]


def _trained(summary: RunSummary) -> tuple[float, ConvergenceUnit]:
    """Epochs or samples trained at the evaluation that counts; NaN where the log does not say."""
    before = _before_stop(summary)
    if not before:
        return NAN, "epochs"
    last = before[-1]
    if summary.benchmark == "stable_diffusion":
        return _first_within_limits(before), "samples"
    if summary.benchmark == "bert":
        if math.isfinite(last.samples_count):
            return last.samples_count, "samples"
        if last.epoch_num >= BERT_SAMPLES:
            return last.epoch_num, "samples"
        if counts_train_samples(summary):
            return summary.train_samples, "samples"
    if math.isfinite(last.epoch_num):
        return round(last.epoch_num, 3), "epochs"
    return last.samples_count, "samples"


def _first_within_limits(evaluations: Sequence[Evaluation]) -> float:
    """Stable Diffusion evaluates off-line, each metric by itself: the first step at which both pass."""
    steps: dict[float, dict[str, float]] = {}
    for evaluation in evaluations:
        steps.setdefault(evaluation.samples_count, {})[evaluation.metric] = evaluation.value
    passing = [
        step
        for step, values in steps.items()
        if values.get("FID", math.inf) <= _STABLE_DIFFUSION_LIMITS["FID"]
        and values.get("CLIP", -math.inf) >= _STABLE_DIFFUSION_LIMITS["CLIP"]
    ]
    return min(passing, default=NAN)
