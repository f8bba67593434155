"""What `config/` describes, as frozen values: systems, rounds, datasets, workloads, points and runs.

Nothing here reads a file or decides anything; `study.py` builds these objects from checked configuration.
A `RunSpec` is the one thing that a training consumes. It is written as JSON into the attempt's folder and read
back by every rank, so that no value crosses a shell twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from mlscaling.evaluation_interval import EvaluationInterval
from mlscaling.systems import Scalar, System

Value = Scalar | Sequence[int | float]
"""A setting: some of MLPerf's are lists, e.g. the epochs at which a learning rate falls."""
TargetValue = float | Mapping[str, float]
"""Quality to reach, or metric → quality where a benchmark has several and all must be reached."""


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as YAML and JSON give them, lists as tuples: what is frozen has no list in it."""
    return {key: _tuple(value) for key, value in values.items()}


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """An MLPerf Training round and its rules: one file in `config/rounds/`."""

    name: str
    """Version as the official tools name it, e.g. `1.1.0`."""
    division: str
    """Division logged by our own trainings: `open` or `closed`."""
    required_runs: Mapping[str, int]
    """Runs that a score needs, by MLPerf benchmark."""
    trimmed_runs: Mapping[str, int]
    """Fastest and slowest runs dropped at each end by the Olympic mean, by MLPerf benchmark."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSpec:
    """A dataset: one file in `config/datasets/`."""

    name: str
    """File name without suffix; wildcard `dataset`."""
    title: str
    """What it is, in a sentence."""
    format: str
    """Preparation: a module in `mlscaling/datasets/` with `prepare()`."""
    generator: str = ""
    """Maker of a tiny raw archive: a module in `mlscaling/datasets/tiny/`; empty: raw files are brought by the user."""
    raw: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """Raw file name → known `md5`/`sha256` and `size_bytes`; empty where a generator writes its own checksums."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Expected number of samples by split after preparation."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameters of generator and preparation (sizes, seeds)."""
    source: str = ""
    """Who gives the raw files out, for the error message when they are missing."""
    prepared_bytes: int = 0
    """About the size of the prepared data; 0: not known, and small where they are generated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleSpec:
    """One size of a workload: model, data, target and hyper-parameters by global batch size."""

    dataset: str
    """Name of a file in `config/datasets/`."""
    target: TargetValue
    """Quality to reach."""
    train_samples: int
    """Training samples in one epoch."""
    eval_samples: int
    """Evaluation samples, each counted exactly once."""
    evaluate_every_samples: EvaluationInterval
    """Training samples between evaluations; whole epochs where `convergence_unit` is epochs."""
    model: Mapping[str, Value]
    """Sizes of the model; empty at full scale where the module's defaults are MLPerf's."""
    hyperparameters: Mapping[int, Mapping[str, Value]]
    """Global batch size → hyper-parameters under their MLLOG names; empty where nothing is trained."""
    rcps: str = ""
    """File of RCPs in MLPerf's JSON format, or `official` for those of mlperf_logging; empty: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandSpec:
    """An implementation that is not ours: any command that prints MLLOG lines. Texts may hold `vendor.FIELDS`."""

    program: tuple[str, ...]
    """Program and its arguments."""
    image: str = ""
    """Container image; empty, the system's."""
    workdir: str = ""
    """Folder in which it starts; empty, the image's."""
    mounts: tuple[str, ...] = ()
    """Folders to bind, `source:target` or `source:target:ro`."""
    before: tuple[tuple[str, ...], ...] = ()
    """Programs that each node runs before, in this order, e.g. to print the submission header."""
    start: str = "ranks"
    """`ranks`: once for each rank; `nodes`: once on each node; `once`: on the first node, and it starts the others."""
    trials: str = "one"
    """`one`: a launch makes one run; `all`: all runs of its job, where a job makes all runs of a point."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables by which geometry, seed, batch size and folders reach it, its preset's among them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadSpec:
    """Our name of an MLPerf benchmark: one file in `config/workloads/`, one module in `mlscaling/workloads/`."""

    name: str
    """File and module name; wildcard `workload`."""
    title: str
    """What a reader of a figure should see."""
    mlperf_benchmark: str
    """Benchmark name as MLLOG's `submission_benchmark`."""
    quality_name: str
    """Name and unit of the quality metric, e.g. `top-1 accuracy`."""
    quality_mode: str
    """`max` if larger is better, else `min`."""
    convergence_unit: str
    """`epochs`, or `samples` where the benchmark counts samples."""
    scales: Mapping[str, ScaleSpec]
    """`tiny` and/or `full`."""
    command: CommandSpec | None = None
    """What trains it where that is not our module of its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """Where a point's logs are in a tree of published results."""

    submitter: str
    """Folder of the submitter."""
    system: str
    """Folder of the system below `results/`, which names its description too."""
    benchmark: str
    """Folder of the benchmark."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """What is scored: workload on a system at a node count and a global batch size."""

    study: str
    """Name of the study that it belongs to."""
    system: System
    """Where it runs."""
    workload: WorkloadSpec
    """What is trained."""
    scale: str
    """Key of `workload.scales`."""
    nodes: int
    """Number of nodes, emulated or real."""
    batch_policy: str
    """`strong`, `weak` or `explicit`, as the curve declares it."""
    global_batch_size: int
    """Samples per optimiser step over all accelerators."""
    gradient_accumulation_steps: int
    """Forward/backward passes per optimiser step."""
    num_runs: int
    """Planned runs."""
    required_runs: int
    """Runs that the round requires for a score."""
    trimmed_runs: int
    """Runs dropped at each end by the Olympic mean."""
    allocation: str = "run"
    """What one job makes: a `run`, or all runs of the `point`."""
    published: Published | None = None
    """Where its logs are published; None where this workflow trains it."""

    @property
    def accelerators(self) -> int:
        """All accelerators of the point."""
        return self.nodes * self.system.accelerators_per_node

    @property
    def local_batch_size(self) -> int:
        """Samples per accelerator in one forward/backward pass."""
        return self.global_batch_size // (self.accelerators * self.gradient_accumulation_steps)

    @property
    def path(self) -> str:
        """Path form `{system}/{workload}/n{nodes}`."""
        return f"{self.system.name}/{self.workload.name}/n{self.nodes}"

    @property
    def settings(self) -> ScaleSpec:
        """The workload at this point's scale."""
        return self.workload.scales[self.scale]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """Everything one training consumes, and nothing else."""

    study: str
    """Study, for the record and the seed."""
    system: str
    """System name, MLLOG's `submission_platform`."""
    workload: str
    """Module in `mlscaling/workloads/`."""
    scale: str
    """`tiny` or `full`."""
    mlperf_benchmark: str
    """MLLOG's `submission_benchmark`."""
    round: str
    """MLPerf round whose events are logged."""
    division: str
    """MLLOG's `submission_division`."""
    nodes: int
    """Number of nodes."""
    accelerators_per_node: int
    """Ranks per node."""
    cpus_per_accelerator: int
    """CPU threads of each rank."""
    device: str
    """`cpu` or `cuda`."""
    emulated: bool
    """Nodes are emulated on one host."""
    global_batch_size: int
    """Samples per optimiser step over all ranks."""
    local_batch_size: int
    """Samples per rank and forward/backward pass."""
    gradient_accumulation_steps: int
    """Passes per optimiser step."""
    run: int
    """Zero-based repeat."""
    seed: int
    """Stable hash of the run's identity, 1 … 2³¹−1."""
    data_dir: str
    """Prepared data; its manifest lies in the results tree."""
    train_samples: int
    """Samples in one epoch."""
    eval_samples: int
    """Samples of one evaluation."""
    evaluate_every_samples: int
    """Training samples between evaluations."""
    convergence_unit: str
    """`epochs` or `samples`."""
    quality_mode: str
    """`max` or `min`."""
    target: TargetValue
    """Quality to reach."""
    model: Mapping[str, Value]
    """Model sizes."""
    hyperparameters: Mapping[str, Value]
    """Hyper-parameters for this global batch size, under their MLLOG names where MLLOG has one."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Execution options: `precision` (float32, bfloat16, float16), `compile`, `cuda_graphs`, `num_workers`."""
    command: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `CommandSpec` that trains instead of our module; empty where ours does."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.accelerators_per_node

    def with_data(self, data_dir: Path) -> Self:
        """The same run on prepared data in this folder."""
        return dataclasses.replace(self, data_dir=str(data_dir.resolve()))

    def to_json(self) -> str:
        """One-line JSON with sorted keys; equal specs give equal text, and what is not used is not in it."""
        values = dataclasses.asdict(self)
        if not self.command:
            del values["command"]
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`.

        Raises:
            ValueError: for a missing or an unknown field, naming it.
        """
        values: dict[str, Any] = json.loads(text)
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(values.keys() - known)
        if unknown:
            raise ValueError(f"run spec has unknown fields {unknown}; known: {sorted(known)}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"run spec is incomplete: {error}") from None

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a spec that `to_json` wrote."""
        return cls.from_json(path.read_text(encoding="utf-8"))
