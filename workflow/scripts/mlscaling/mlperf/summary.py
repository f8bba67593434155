"""What one MLPerf log says about its run: the value that every table, verdict and score starts from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from mlscaling.mlperf.findings import Finding

Status = Literal["success", "aborted", "missing"]
ConvergenceUnit = Literal["epochs", "samples"]
Setting = bool | int | float | str

NAN = math.nan


class Evaluation(NamedTuple):
    """One result of one evaluation; a benchmark with two metrics has two for each evaluation."""

    epoch_num: float
    """Epochs trained as logged, NaN where the benchmark logs none. Some submitters of BERT put samples here."""
    samples_count: float
    """Samples trained as logged, NaN where the benchmark logs none."""
    value: float
    """Quality; NaN as logged."""
    time_ms: float
    """Wall-clock time of the event, milliseconds since 1970."""
    metric: str = ""
    """Name of the metric where there are several, e.g. `BBOX`, `CLIP`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """One run as its log tells it. Missing numbers are NaN, missing words are empty."""

    benchmark: str = ""
    """`submission_benchmark`."""
    organization: str = ""
    """`submission_org`."""
    division: str = ""
    """`submission_division`."""
    status_availability: str = ""
    """`submission_status`: onprem, cloud, preview or research."""
    platform: str = ""
    """`submission_platform`."""
    seeds: tuple[Setting, ...] = ()
    """Distinct values of `seed` in the order of the log."""
    global_batch_size: float = NAN
    """Samples per optimiser step."""
    hyperparameters: Mapping[str, Setting] = field(default_factory=dict)
    """Every setting that keeps one value through the log, by its MLLOG name; a list as its JSON."""
    run_start_ms: float = NAN
    """Time of the first `run_start`."""
    run_stop_ms: float = NAN
    """Time of the first `run_stop`."""
    status: Status = "missing"
    """Of the first `run_stop`; `missing` where the log has none or none with a status."""
    time_to_train_min: float = NAN
    """`run_start` to `run_stop`; NaN where one is missing or the span is not positive."""
    init_min: float = NAN
    """First `init_start` to `run_start`."""
    eval_min: float = NAN
    """Sum of the `eval_start` to `eval_stop` spans inside the run; NaN where the log has none."""
    evaluations: tuple[Evaluation, ...] = ()
    """All evaluations in the order of the log."""
    num_evaluations_after_stop: int = 0
    """How many of them, at the end, come after `run_stop` in the log."""
    train_samples: float = NAN
    """`train_samples` as logged last; some submitters of BERT log the samples trained here."""
    eval_samples: float = NAN
    """`eval_samples`."""
    convergence: float = NAN
    """What the RCP checker takes: epochs or samples at the last evaluation before `run_stop`; NaN without success."""
    convergence_unit: ConvergenceUnit = "epochs"
    """Unit of `convergence`."""
    samples_to_converge: float = NAN
    """Epochs × `train_samples`, or the samples themselves; NaN without success."""
    throughput_samples_per_s: float = NAN
    """Samples trained until the last evaluation ÷ time to train; also of a run that did not converge."""
    target: float = NAN
    """Quality target where the log states one."""
    event_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of events by key, several ranks' copies included."""
    findings: tuple[Finding, ...] = ()
    """What the reader skipped, merged or found contradicting, with physical line numbers."""
    sha256: str = ""
    """Of the file's bytes."""
    size_bytes: int = 0
    """Of the file."""

    @property
    def converged(self) -> bool:
        """The run says that it reached its target and that can be scored."""
        return self.status == "success" and math.isfinite(self.convergence)

    @property
    def final_quality(self) -> dict[str, float]:
        """Metric → value of the last evaluation before `run_stop`, empty where there is none."""
        before = self.evaluations[: len(self.evaluations) - self.num_evaluations_after_stop]
        return {evaluation.metric: evaluation.value for evaluation in before}

    @property
    def quality(self) -> float:
        """The last evaluation's value before `run_stop`; its first metric where there are several."""
        return next(iter(self.final_quality.values()), NAN)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: NaN and infinities become None, tuples lists."""
        values = {f.name: _jsonable(getattr(self, f.name)) for f in dataclasses.fields(self)}
        values["findings"] = [finding.to_dict() for finding in self.findings]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; infinities come back as NaN.

        Raises:
            ValueError: for an unknown field, naming it.
        """
        defaults = {f.name: f.default for f in dataclasses.fields(cls)}
        unknown = sorted(values.keys() - defaults.keys())
        if unknown:
            raise ValueError(f"run summary has unknown fields {unknown}; known: {sorted(defaults)}")
        restored: dict[str, Any] = {
            name: NAN if value is None and isinstance(defaults[name], float) else value
            for name, value in values.items()
        }
        restored["seeds"] = tuple(values.get("seeds", ()))
        restored["evaluations"] = tuple(_evaluation(row) for row in values.get("evaluations", ()))
        restored["findings"] = tuple(Finding.from_dict(row) for row in values.get("findings", ()))
        settings: Mapping[str, Setting | None] = values.get("hyperparameters", {})
        restored["hyperparameters"] = {name: NAN if value is None else value for name, value in settings.items()}
        return cls(**restored)


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    return value


def _evaluation(row: Sequence[Any]) -> Evaluation:
    epoch_num, samples_count, value, time_ms = (NAN if number is None else number for number in row[:4])
    return Evaluation(epoch_num, samples_count, value, time_ms, str(row[4]))
