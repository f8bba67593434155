"""What belongs to which MLPerf round: runs, targets, and rules that came later than the logs they are applied to.

Counts and targets are read from the pinned mlperf_logging, never copied. Today's checkers judge a published log by
rules that did not exist when it was accepted; the table of later rules here names them with their source.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, Self

QualityMode = Literal["max", "min"]
MINIGO: Final = "minigo"
"""Logs no batch size: its training and its self-play have one each."""
ASYNCHRONOUS_EVALUATION: Final = frozenset({"minigo", "stable_diffusion"})
"""Benchmarks whose saved models are evaluated beside or after the run, with the time of the evaluation."""
SEEDS_REQUIRED_SINCE: Final = (4, 1)
"""training_policies #547 (2024-09-20): "require logging of seeds from v4.1 onwards"; optional before."""
SEED_ALWAYS_REQUIRED: Final = frozenset({"unet3d"})
"""Its closed rules have asked for a seed since round 1.0."""
NORMALIZED_SINCE: Final = (2, 1)
"""training_policies #503 (2022-09-08, "approved today, for the v2.1 round"): an accepted score that converged faster
than the RCP mean is multiplied by RCP mean ÷ epochs. The pinned checker writes that factor for older rounds, too."""
_TARGET = re.compile(r"v\['value'\](?:\['(\w+)'\])?\s*(>=|<=|>|<)\s*([0-9.]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Quality that a run must reach."""

    values: Mapping[str, float]
    """Metric → limit; the metric's name is empty where there is only one."""
    mode: QualityMode
    """`max` where larger is better."""

    @classmethod
    def of(cls, target: float | Mapping[str, float], *, mode: str) -> Self:
        """The target of a workload's configuration: a number, or metric → number."""
        values = dict(target) if isinstance(target, Mapping) else {"": target}
        return cls(values=values, mode="max" if mode == "max" else "min")

    @property
    def first(self) -> float:
        """Limit of the first metric, which tables show."""
        return next(iter(self.values.values()))

    def reached(self, quality: Mapping[str, float]) -> bool:
        """True where every metric meets its limit; NaN and missing metrics do not."""
        return all(self._meets(self._value(quality, metric), limit) for metric, limit in self.values.items())

    def describe(self) -> str:
        """E.g. `≥ 0.759`, `BBOX ≥ 0.377, SEGM ≥ 0.339`."""
        sign = "≥" if self.mode == "max" else "≤"
        return ", ".join(f"{metric} {sign} {limit:g}".strip() for metric, limit in self.values.items())

    def _value(self, quality: Mapping[str, float], metric: str) -> float:
        if metric or "" in quality or len(quality) != 1:
            return quality.get(metric, float("nan"))
        return next(iter(quality.values()))

    def _meets(self, value: float, limit: float) -> bool:
        return value >= limit if self.mode == "max" else value <= limit


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterRule:
    """A rule that today's checker applies to rounds that did not have it."""

    message: str
    """Regular expression that its messages match."""
    before: tuple[int, ...]
    """Rounds before this one did not have the rule."""
    reason: str
    """What to tell the reader, with the source."""


LATER_RULES: Final = (
    LaterRule(
        message="weights_initialization|initialized_tensors",
        before=(2, 0),
        reason="weight-initialisation events were a warning in round 1.1 and an error since 2022-03-29 "
        "(mlcommons/logging 4c04112)",
    ),
    LaterRule(
        message="logs no seed",
        before=SEEDS_REQUIRED_SINCE,
        reason="seeds must be logged only since round 4.1 (mlcommons/logging #384)",
    ),
    LaterRule(
        message="opt_lamb_epsilon",
        before=(3, 0),
        reason="opt_lamb_epsilon was added to the rules of round 2.1 after its submissions (mlcommons/logging d82b94d)",
    ),
)


def version(ruleset: str) -> tuple[int, ...]:
    """A ruleset as comparable numbers.

    Raises:
        ValueError: where it is no dotted version.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,2}", ruleset):
        raise ValueError(f"ruleset {ruleset!r} is no version; legal: {', '.join(rulesets())}")
    return tuple(int(part) for part in ruleset.split("."))


@cache
def rulesets() -> tuple[str, ...]:
    """Training rounds that the pinned compliance checker knows, oldest first."""
    folder = importlib.resources.files("mlperf_logging") / "compliance_checker"
    names = (re.fullmatch(r"training_(\d+\.\d+\.\d+)", entry.name) for entry in folder.iterdir())
    return tuple(sorted((name[1] for name in names if name), key=lambda text: [int(n) for n in text.split(".")]))


def tool_version() -> str:
    """Version of mlperf_logging, for the verdicts."""
    return importlib.metadata.version("mlperf_logging")


def required_runs(benchmark: str) -> int:
    """Runs that a score of the benchmark needs; one table of mlperf_logging for all rounds.

    Raises:
        ValueError: for an unknown benchmark, listing the known ones.
    """
    from mlperf_logging import benchmark_meta

    counts: dict[str, int] = benchmark_meta.get_result_file_counts("training")
    if benchmark not in counts:
        raise ValueError(f"MLPerf benchmark {benchmark!r} is unknown; legal: {', '.join(sorted(counts))}")
    return counts[benchmark]


def trimmed_runs(benchmark: str) -> int:
    """Runs that the Olympic mean drops at each end (training_rules.adoc, "unet3d": four, else one)."""
    return 4 if benchmark == "unet3d" else 1


def benchmarks(ruleset: str) -> tuple[str, ...]:
    """Benchmarks of a round.

    Raises:
        ValueError: for an unknown round, listing the known ones.
    """
    from mlperf_logging import benchmark_meta

    version(ruleset)
    try:
        return tuple(dict.fromkeys(benchmark_meta.get_allowed_benchmarks("training", ruleset)))
    except ValueError:
        raise ValueError(f"ruleset {ruleset!r} is unknown; legal: {', '.join(rulesets())}") from None


@cache
def official_target(benchmark: str, ruleset: str) -> Target | None:
    """The closed division's target as the pinned checker states it; None where it states none as plain numbers."""
    folder = importlib.resources.files("mlperf_logging") / "compliance_checker" / f"training_{ruleset}"
    rules = folder / f"closed_{benchmark}.yaml"
    if not rules.is_file():
        return None
    check = re.search(r"ATLEAST_ONE_CHECK:\s*\"(.*)\"", rules.read_text(encoding="utf-8"))
    if check and "<= v[" in check[1]:
        return None  # Stable Diffusion's two metrics have two directions; `convergence.py` applies them
    limits: dict[str, float] = {}
    operators = set()
    for metric, operator, limit in _TARGET.findall(check[1] if check else ""):
        if metric not in limits:
            limits[metric] = float(limit.rstrip("."))
            operators.add(operator[0])
    if len(operators) != 1:
        return None
    return Target(values=limits, mode="max" if operators == {">"} else "min")


@cache
def required_events(benchmark: str, division: str, ruleset: str) -> tuple[tuple[str, ...], ...]:
    """Events that the round asks for, each as the alternatives of which one must be logged.

    Read from the pinned checker's rules: the round's common file, and the benchmark's own in the closed division,
    which replaces common rules key by key. Rules that came after the round's submissions are left out.
    """
    folder = importlib.resources.files("mlperf_logging") / "compliance_checker" / f"training_{ruleset}"
    requirements: dict[str, str] = {}
    own = (f"closed_{benchmark}",) if division == "closed" else ()
    for name in ("common", f"{division or 'open'}_common", *own):
        rules = folder / f"{name}.yaml"
        for record in rules.read_text(encoding="utf-8").split("- KEY:")[1:] if rules.is_file() else ():
            key, requirement = re.search(r"NAME:\s*(\w+)", record), re.search(r"REQ:\s*(\S+)", record)
            if key:
                requirements[key[1]] = requirement[1] if requirement else ""
    alternatives = (
        (key, *re.findall(r"\w+", requirement.removeprefix("AT_LEAST_ONE_OR")))
        if requirement.startswith("AT_LEAST_ONE_OR")
        else (key,)
        for key, requirement in requirements.items()
        if requirement.startswith(("EXACTLY_ONE", "AT_LEAST"))
    )
    return tuple(keys for keys in alternatives if not any(later_rules(key, ruleset) for key in keys))


def seed_required(benchmark: str, ruleset: str) -> bool:
    """True where the round's own rules ask each run for a seed."""
    return benchmark in SEED_ALWAYS_REQUIRED or version(ruleset) >= SEEDS_REQUIRED_SINCE


def normalizes(ruleset: str) -> bool:
    """True where the round's policy scales a score that converged faster than the RCP mean."""
    return version(ruleset) >= NORMALIZED_SINCE


def later_rules(message: str, ruleset: str) -> list[str]:
    """Reasons why an official message says nothing about a log of this round; empty where it does."""
    round_version = version(ruleset)
    return [rule.reason for rule in LATER_RULES if round_version < rule.before and re.search(rule.message, message)]
