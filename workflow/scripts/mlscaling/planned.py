"""What a study planned: its points and runs as `planned.json` records them for everything behind the training.

Tables, figures and summary read this file instead of the configuration, so that they re-run only when the plan changes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPoint:
    """A point as planned, with the titles that readers see."""

    system: str
    """System name."""
    workload: str
    """Workload name."""
    nodes: int
    """Number of nodes."""
    accelerators: int
    """Accelerators of all nodes."""
    global_batch_size: int
    """Samples of the whole job in one step."""
    local_batch_size: int
    """Samples of one accelerator in one forward/backward pass."""
    batch_policy: str
    """`strong`, `weak` or `explicit`."""
    num_runs: int
    """Planned runs."""
    required_runs: int
    """Runs that the round requires for a score."""
    trimmed_runs: int
    """Runs dropped at each end by the Olympic mean."""
    target: float
    """Quality to reach."""
    convergence_unit: str
    """`epochs` or `samples`."""
    trial_seeds: tuple[int, ...] = ()
    """Seed of each planned run; empty where runs were not started by this workflow."""
    emulated: bool = False
    """Nodes are emulated on one host."""
    system_title: str = ""
    """System as a reader should see it; default, its name."""
    workload_title: str = ""
    """Workload as a reader should see it; default, its name."""
    train_samples: int = 0
    """Samples of an epoch; 0: what the logs say. Some published logs state another number."""
    quality_name: str = "quality"
    """Name and unit of the quality metric."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "system_title", self.system_title or self.system)
        object.__setattr__(self, "workload_title", self.workload_title or self.workload)

    @property
    def path(self) -> str:
        """Path form `{system}/{workload}/n{nodes}`."""
        return f"{self.system}/{self.workload}/n{self.nodes}"

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, source: str) -> Self:
        """From one record of `planned.json`; keys that are not fields serve others and are left out.

        Raises:
            ValueError: a field is missing; names the file and the fields.
        """
        fields = {f.name: f for f in dataclasses.fields(cls)}
        missing = [name for name, f in fields.items() if f.default is dataclasses.MISSING and name not in record]
        if missing:
            raise ValueError(f"{source}: misses {', '.join(missing)}; needs {', '.join(fields)}")
        values = {name: record[name] for name in fields if name in record}
        return cls(**values | {"trial_seeds": tuple(record.get("trial_seeds", ()))})


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """All points that a study planned."""

    study: str
    """Name of the study."""
    title: str
    """What a reader of the report should see."""
    points: tuple[PlannedPoint, ...]
    """In the order of the study's file."""
    notes: tuple[str, ...] = ()
    """Sentences that every figure and the summary must carry, e.g. `not verified by MLCommons`."""

    def point(self, path: str) -> PlannedPoint:
        """The point at `{system}/{workload}/n{nodes}`.

        Raises:
            ValueError: the study planned no such point; lists those it did.
        """
        for point in self.points:
            if point.path == path:
                return point
        raise ValueError(f"study {self.study} planned no point {path}; it has {[point.path for point in self.points]}")

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read `planned.json`.

        Raises:
            ValueError: a key is missing; names file and key.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        if missing := [key for key in ("study", "points") if key not in data]:
            raise ValueError(f"{path}: misses {', '.join(missing)}")
        points = [
            PlannedPoint.from_record(record, source=f"{path}: points[{number}]")
            for number, record in enumerate(data["points"])
        ]
        title = data.get("title") or data["study"]
        return cls(study=data["study"], title=title, points=tuple(points), notes=tuple(data.get("notes", ())))
