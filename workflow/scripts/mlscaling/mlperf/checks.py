"""Our checks of one log: structure, status, times, evaluations, batch, identity and seeds.

The official checker reads values by key; it looks neither at times, nor at the status of a run, nor across a log's
numbers (mlperf_logging 4.1.68). A run that did not reach its target and says so is a well-formed log: scoring counts
it as infinite, the checks only note it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mlscaling.mlperf import rounds
from mlscaling.mlperf.findings import Finding, Severity
from mlscaling.mlperf.parse import SAME_EVENT_MS
from mlscaling.mlperf.rounds import Target
from mlscaling.mlperf.summary import RunSummary

INIT_LIMIT_MIN: Final = 30
"""`init_start` to `init_stop`/`run_start`; closed rules of round 1.1 (comment there: 20, code: 30 minutes)."""
EXPECTABLE: Final = (
    "benchmark",
    "division",
    "organization",
    "platform",
    "global_batch_size",
    "local_batch_size",
    "accelerators",
    "gradient_accumulation_steps",
    "seed",
)
"""Keys of `expected`: what the point says about its logs; each may be left out."""
_LOCAL_BATCH_SIZES: Final = ("local_batch_size", "d_batch_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """A log's summary and what it is checked against."""

    summary: RunSummary
    """The log."""
    ruleset: str
    """Round whose rules count."""
    expected: Mapping[str, Any]
    """What the point says."""
    target: Target | None
    """Quality to reach, None where it is not known."""


def check_summary(
    summary: RunSummary, *, ruleset: str, expected: Mapping[str, Any] | None = None, target: Target | None = None
) -> tuple[Finding, ...]:
    """All findings about one run: the reader's and those of each check here.

    Raises:
        ValueError: for an unknown ruleset or an unknown key of `expected`, naming the legal ones.
    """
    expected = {key: value for key, value in (expected or {}).items() if value is not None}
    unknown = sorted(expected.keys() - set(EXPECTABLE))
    if unknown:
        raise ValueError(f"expected has unknown keys {unknown}; legal: {', '.join(EXPECTABLE)}")
    if ruleset not in rounds.rulesets():
        raise ValueError(f"ruleset {ruleset!r} is unknown; legal: {', '.join(rounds.rulesets())}")
    if target is None and summary.division == "closed":
        target = rounds.official_target(summary.benchmark, ruleset)
    case = _Case(summary=summary, ruleset=ruleset, expected=expected, target=target)
    return (*summary.findings, *(finding for check in _CHECKS for finding in check(case)))


def _finding(check: str, severity: Severity, message: str) -> Finding:
    return Finding(check=check, severity=severity, message=message)


def _structure(case: _Case) -> Iterator[Finding]:
    """Every event that the round asks for is there."""
    summary, counts = case.summary, case.summary.event_counts
    if not counts:
        yield _finding("empty", "error", f"the log has no MLLOG event ({summary.size_bytes} bytes)")
        return
    legal = rounds.benchmarks(case.ruleset)
    if summary.benchmark and summary.benchmark not in legal:
        message = f"submission_benchmark is {summary.benchmark!r}; legal in {case.ruleset}: {', '.join(legal)}"
        yield _finding("benchmark", "error", message)
    if summary.division not in ("closed", "open"):
        yield _finding("division", "error", f"submission_division is {summary.division!r}; legal: closed, open")
    for keys in rounds.required_events(summary.benchmark, summary.division, case.ruleset):
        if not any(key in counts for key in keys):
            yield _finding("event_missing", "error", f"the log has no {' or '.join(keys)}")


def _contradictions(case: _Case) -> Iterator[Finding]:
    """A setting that must be logged once has one value."""
    summary = case.summary
    for keys in rounds.required_events(summary.benchmark, summary.division, case.ruleset):
        key = keys[0]
        if summary.event_counts.get(key, 0) > 1 and _takes_two_values(summary, key):
            yield _finding("setting_contradicts", "error", f"{key} is logged with different values")


def _takes_two_values(summary: RunSummary, key: str) -> bool:
    if key == "train_samples":
        return summary.hyperparameters.get(key) != summary.train_samples
    return key.startswith("opt_") and key not in summary.hyperparameters


def _status(case: _Case) -> Iterator[Finding]:
    """What the run says of itself fits its last evaluation."""
    summary, target = case.summary, case.target
    reached = target is not None and bool(summary.final_quality) and target.reached(summary.final_quality)
    shown = ", ".join(f"{metric} {value:g}".strip() for metric, value in summary.final_quality.items()) or "none"
    limits = target.describe() if target else "an unknown target"
    if summary.status == "success" and target and not reached:
        message = f"the run says success, but its last evaluation before run_stop is {shown} against {limits}"
        yield _finding("quality_not_reached", "error", message)
    if summary.status == "aborted" and reached:
        message = f"the run says aborted, but its last evaluation is {shown} against {limits}"
        yield _finding("status_contradicts_quality", "error", message)
    elif summary.status == "aborted":
        message = f"the run did not converge: last evaluation {shown} against {limits}; scoring counts it as infinite"
        yield _finding("not_converged", "note", message)
    elif summary.status == "success" and not math.isfinite(summary.convergence):
        yield _finding("convergence_unknown", "error", "no evaluation before run_stop says how much was trained")


def _times(case: _Case) -> Iterator[Finding]:
    """Time runs forwards from init_start over run_start to run_stop."""
    summary = case.summary
    span = (summary.run_stop_ms - summary.run_start_ms) / 60_000
    if span <= 0:
        yield _finding("time_backwards", "error", f"run_stop is {-span:g} min before run_start")
    elif math.isnan(span) and {"run_start", "run_stop"} <= summary.event_counts.keys():
        yield _finding("time_missing", "error", "run_start or run_stop has no usable time_ms")
    if summary.init_min < 0:
        yield _finding("time_backwards", "error", f"run_start is {-summary.init_min:g} min before init_start")
    elif summary.init_min > INIT_LIMIT_MIN:
        message = f"{summary.init_min:.1f} min from init_start to run_start; the closed rules allow {INIT_LIMIT_MIN}"
        yield _finding("init_too_long", "warning", message)


def _evaluations(case: _Case) -> Iterator[Finding]:
    """Evaluations lie between run_start and run_stop."""
    summary = case.summary
    severity: Severity = "note" if summary.benchmark in rounds.ASYNCHRONOUS_EVALUATION else "error"
    late = sum(item.time_ms > summary.run_stop_ms + SAME_EVENT_MS for item in summary.evaluations)
    early = sum(item.time_ms < summary.run_start_ms - SAME_EVENT_MS for item in summary.evaluations)
    late = max(late, summary.num_evaluations_after_stop)
    if late:
        yield _finding("evaluation_after_run_stop", severity, f"{late} evaluations come after run_stop")
    if early:
        yield _finding("evaluation_before_run_start", "error", f"{early} evaluations have a time before run_start")
    if early or late or severity == "note":
        return
    times = [item.time_ms for item in summary.evaluations]
    backwards = sum(later < earlier - SAME_EVENT_MS for earlier, later in itertools.pairwise(times))
    if backwards:
        yield _finding("evaluation_time_backwards", "error", f"{backwards} evaluations are earlier than the one before")


def _batch(case: _Case) -> Iterator[Finding]:
    """Global batch = accelerators × local batch × accumulation, as far as log and point name them."""
    settings, expected, counts = case.summary.hyperparameters, case.expected, case.summary.event_counts
    size = case.summary.global_batch_size
    if case.summary.benchmark != rounds.MINIGO and "global_batch_size" not in counts and counts:
        yield _finding("global_batch_size_missing", "error", "the log has no global_batch_size; no RCP can be found")
    if size <= 0:
        yield _finding("global_batch_size", "error", f"global_batch_size is {size:g}; it must be positive")
    logged = next((settings[name] for name in _LOCAL_BATCH_SIZES if name in settings), None)
    local = expected.get("local_batch_size") if logged is None else logged
    accumulation = settings.get("gradient_accumulation_steps", expected.get("gradient_accumulation_steps", 1))
    accelerators = expected.get("accelerators")
    if case.summary.benchmark == rounds.MINIGO or accelerators is None or not _numbers(local, accumulation):
        return
    product = float(accelerators) * float(local) * float(accumulation)  # type: ignore[arg-type]
    if math.isfinite(size) and product != size:
        message = (
            f"global_batch_size is {size:g}, but {accelerators} accelerators × local batch {local:g} × "
            f"accumulation {accumulation:g} = {product:g}"
        )
        yield _finding("global_batch_size", "error", message)


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _identity(case: _Case) -> Iterator[Finding]:
    """The log is of the point that it lies in."""
    summary, expected = case.summary, case.expected
    settings = {**summary.hyperparameters}
    for name in _LOCAL_BATCH_SIZES:
        settings.setdefault("local_batch_size", settings.get(name, ""))
    for name in ("benchmark", "division", "global_batch_size", "local_batch_size", "gradient_accumulation_steps"):
        logged = getattr(summary, name, None) if hasattr(summary, name) else settings.get(name, "")
        if name in expected and logged not in ("", expected[name]) and logged == logged:
            yield _finding(f"{name}_differs", "error", f"{name} is {logged!r} in the log, {expected[name]!r} expected")
    for name in ("organization", "platform"):
        logged = getattr(summary, name)
        if name in expected and _plain(logged) != _plain(str(expected[name])):
            yield _finding(
                f"{name}_differs", "warning", f"{name} is {logged!r} in the log, {expected[name]!r} expected"
            )


def _plain(name: str) -> str:
    """A platform without the `1x` that submitters put before one node, and without upper case."""
    return re.sub(r"^1x", "", name.strip().lower())


def _seeds(case: _Case) -> Iterator[Finding]:
    """A seed is an integer, and there where the round or the point asks for one."""
    seeds = case.summary.seeds
    for seed in seeds:
        if isinstance(seed, bool) or not re.fullmatch(r"[+-]?\d+(\.0*)?", str(seed).strip()):
            yield _finding("seed_not_integer", "error", f"seed is {seed!r}; it must be an integer")
    if "seed" in case.expected and case.expected["seed"] not in seeds:
        yield _finding("seed_differs", "error", f"seeds are {list(seeds)} in the log, {case.expected['seed']} expected")
    elif not seeds and case.summary.event_counts:
        required = rounds.seed_required(case.summary.benchmark, case.ruleset)
        word = "required in this round" if required else "required only since round 4.1"
        yield _finding("seed_missing", "error" if required else "warning", f"the log has no seed; {word}")


_CHECKS: Final[tuple[Callable[[_Case], Iterator[Finding]], ...]] = (
    _structure,
    _contradictions,
    _status,
    _times,
    _evaluations,
    _batch,
    _identity,
    _seeds,
)
