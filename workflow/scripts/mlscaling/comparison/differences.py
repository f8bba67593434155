"""What changed between two sides in environment, hyper-parameters and hardware, named before any change of time is.

Logs state the hyper-parameters, run records the environment, system descriptions the hardware; `settings_of_runs` gives
each a kind. A trained study and a published one say some of it in different words, which are made one here. What only
one side states is no change: a published log has no run record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlscaling import wording
from mlscaling.comparison.sides import SidePoint
from mlscaling.likeness import settings_of_point
from mlscaling.mlperf.system import check_description
from mlscaling.settings_of_runs import LOGGED

CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "environment": (
        "container",
        "launcher",
        "slurm",
        "framework",
        "software",
        "environment",
        "commit",
    ),
    "hyper-parameters": (
        "gradient_accumulation",
        "batch",
        "precision",
        "optimiser",
        "learning_rate",
        "schedule",
        "hyperparameter",
        "model",
        "execution_option",
    ),
    "hardware": ("accelerator", "host", "network", "storage", "firmware", "host_name"),
}
"""Category → kinds of settings by how readily they explain a change; a kind that is not named is environment."""
_SAME: Final[Mapping[str, tuple[str, str]]] = {
    "host_processor_model_name": ("host", "processor"),
    "accelerator_model_name": ("accelerator", "accelerator"),
    "accelerators_per_node": ("accelerator", "accelerators_per_node"),
}
"""Key of a description, or of a log that states its hardware → the setting of a run record that says the same."""
_WORDS: Final[Mapping[str, str]] = {
    "processor": "CPU",
    "hostname": "host names",
    "image": "container image",
    "accelerator_driver": "driver",
    "other_software_stack.cuda_driver_version": "driver",
}
"""Setting → what a reader should see."""

Settings = Mapping[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting that is not the same on both sides."""

    category: str
    """Key of `CATEGORIES`."""
    kind: str
    """Kind of the setting, as in `likeness.json`."""
    setting: str
    """Its name."""
    a: tuple[str, ...]
    """Its values in the runs of A; empty where a log of A does not use it."""
    b: tuple[str, ...]
    """Its values in the runs of B."""
    points: tuple[str, ...]
    """Paths of A's points at which it differs."""

    @property
    def words(self) -> str:
        """`CPU: Xeon Gold 6338 → Xeon Platinum 8368`."""
        one, other = (" and ".join(values) or "not stated" for values in (self.a, self.b))
        return f"{_WORDS.get(self.setting, self.setting)}: {one} → {other}"

    def to_dict(self) -> dict[str, Any]:
        """As in `comparison.json`."""
        return {
            "category": self.category,
            "kind": self.kind,
            "setting": self.setting,
            "a": list(self.a),
            "b": list(self.b),
            "points": list(self.points),
        }


def differences(pairs: Sequence[tuple[SidePoint, SidePoint]]) -> list[Difference]:
    """What differs between the two points of each pair; equal differences of several pairs are one."""
    found: dict[tuple[tuple[str, str], tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for a, b in pairs:
        ours, theirs = _settings(a), _settings(b)
        for key in dict.fromkeys([*ours, *theirs]):
            one, other = ours.get(key, ()), theirs.get(key, ())
            if set(one) != set(other) and ((one and other) or key[0] in LOGGED):
                found.setdefault((key, one, other), []).append(a.planned.path)
    result = [
        Difference(
            category=_category(kind), kind=kind, setting=name, a=one, b=other, points=tuple(points)
        )
        for ((kind, name), one, other), points in found.items()
    ]  # fmt: skip
    return sorted(result, key=_rank)


def stated_once(pairs: Sequence[tuple[SidePoint, SidePoint]]) -> dict[str, list[str]]:
    """Settings that only the points of `a` or only those of `b` state, and that therefore cannot be compared."""
    names: dict[str, dict[str, None]] = {"a": {}, "b": {}}
    for a, b in pairs:
        ours, theirs = _settings(a), _settings(b)
        for side, mine, others in (("a", ours, theirs), ("b", theirs, ours)):
            names[side] |= dict.fromkeys(
                name for kind, name in mine if (kind, name) not in others and kind not in LOGGED
            )
    return {side: sorted(found) for side, found in names.items()}


def contradictions(points: Iterable[SidePoint], *, label: str) -> list[str]:
    """What the system descriptions of a side contradict, themselves or the logs: hardware is taken from them."""
    found: dict[str, None] = {}
    for point in points:
        if point.measured.description is None:
            continue
        for finding in check_description(point.measured.description, point.measured.summaries):
            if finding.severity != "note":
                found[f"{label}, {point.planned.system}: {finding.message}"] = None
    return list(found)


def of_point(found: Iterable[Difference], path: str) -> list[Difference]:
    """Those that concern a point of A, without the names of hosts where there is anything else."""
    mine = [one for one in found if path in one.points]
    return [one for one in mine if one.kind != "host_name"] or mine


def at_points(difference: Difference, *, num_pairs: int, titles: Mapping[str, str]) -> str:
    """Where a difference is, in words; empty where it is everywhere."""
    if len(difference.points) == num_pairs:
        return ""
    return wording.joined([titles[path] for path in difference.points])


def _settings(point: SidePoint) -> Settings:
    merged: dict[tuple[str, str], dict[str, None]] = {}
    for (kind, name), values in settings_of_point(point.measured).items():
        merged.setdefault(_SAME.get(name, (kind, name)), {}).update(dict.fromkeys(values))
    return {key: tuple(values) for key, values in merged.items()}


def _category(kind: str) -> str:
    return next((name for name, kinds in CATEGORIES.items() if kind in kinds), "environment")


def _rank(item: Difference) -> tuple[int, int, bool, str]:
    kinds = CATEGORIES[item.category]
    place = kinds.index(item.kind) if item.kind in kinds else len(kinds)
    # What has words of its own (CPU, driver) comes before its kind's details.
    return [*CATEGORIES].index(item.category), place, item.setting not in _WORDS, item.setting
