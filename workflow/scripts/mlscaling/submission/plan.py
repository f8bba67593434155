"""What a study would submit, as the configuration says it, and what forbids it before anything has run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from mlscaling.spec import Point, Published, TargetValue
from mlscaling.study import Study

UNNAMED: Final = "unnamed"
"""Folder of a rehearsal that names no submitter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionPoint:
    """A point as a submission sees it."""

    path: str
    """Path form `{system}/{workload}/n{nodes}`."""
    system: str
    """System of the study."""
    nodes: int
    """Number of nodes."""
    accelerators_per_node: int
    """Accelerators of a node."""
    accelerator: str
    """Model of the accelerator."""
    emulated: bool
    """Nodes are emulated on one host."""
    benchmark: str
    """MLPerf's name of the workload."""
    target: TargetValue
    """Quality that its runs must reach."""
    num_runs: int
    """Planned runs."""
    required_runs: int
    """Runs that the round requires."""
    trimmed_runs: int
    """Runs dropped at each end by the Olympic mean."""
    published: Published | None = None
    """Where its logs come from; None where this workflow trained it."""

    @property
    def system_folder(self) -> str:
        """Name of its system in MLPerf's tree; several nodes of a trained system as submitters write them, `8xname`."""
        if self.published is not None:
            return self.published.system
        return self.system if self.nodes == 1 else f"{self.nodes}x{self.system}"

    @property
    def benchmark_folder(self) -> str:
        """Name of its benchmark in MLPerf's tree."""
        return self.benchmark if self.published is None else self.published.benchmark


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionPlan:
    """All that a submission needs to know of the configuration; a rule's params."""

    study: str
    """Name of the study."""
    ruleset: str
    """MLPerf round."""
    scale: str
    """`tiny` or `full`."""
    logged_division: str
    """What this workflow's trainings log as `submission_division`."""
    submitter: str
    """Submitter of the trained points; published ones keep theirs."""
    division: str
    """Division that the trained points are submitted to."""
    rehearsal: bool
    """Build the tree in spite of reasons against it, and mark it."""
    published_root: str
    """Tree that published points come from."""
    points: tuple[SubmissionPoint, ...]
    """In the order of the study's file."""

    def submitter_of(self, point: SubmissionPoint) -> str:
        """Folder of a point's submitter."""
        return (self.submitter or UNNAMED) if point.published is None else point.published.submitter

    @property
    def submitters(self) -> list[str]:
        """Folders of the submission."""
        return list(dict.fromkeys(map(self.submitter_of, self.points)))

    @property
    def trained(self) -> list[SubmissionPoint]:
        """Points that this workflow trains."""
        return [point for point in self.points if point.published is None]

    @classmethod
    def of(cls, study: Study) -> Self:
        """What the study would submit."""
        settings = study.submission
        return cls(
            study=study.name,
            ruleset=study.round.name,
            scale=study.scale,
            logged_division=study.round.division,
            submitter=settings["submitter"],
            division=settings["division"],
            rehearsal=settings["rehearsal"],
            published_root=study.published_root,
            points=tuple(map(_point, study.points)),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `dataclasses.asdict`, which the rule hands over."""
        points = [
            SubmissionPoint(**{**point, "published": Published(**point["published"]) if point["published"] else None})
            for point in values["points"]
        ]
        return cls(**{**values, "points": tuple(points)})


def _point(point: Point) -> SubmissionPoint:
    return SubmissionPoint(
        path=point.path,
        system=point.system.name,
        nodes=point.nodes,
        accelerators_per_node=point.system.accelerators_per_node,
        accelerator=point.system.accelerator,
        emulated=point.system.emulated,
        benchmark=point.workload.mlperf_benchmark,
        target=point.settings.target,
        num_runs=point.num_runs,
        required_runs=point.required_runs,
        trimmed_runs=point.trimmed_runs,
        published=point.published,
    )


def reasons_against(plan: SubmissionPlan) -> list[str]:
    """Why the study's own trainings cannot be submitted, whatever their logs will say; empty where nothing forbids it.

    Published points have been submitted before; what the checkers say of them is kept, not decided here.
    """
    trained = plan.trained
    if not trained:
        return []
    reasons = []
    if not plan.submitter:
        reasons.append("submission.submitter is empty; it names the submitter's folder of the trained points")
    if plan.scale != "full":
        reasons.append(f"the scale is {plan.scale}; MLPerf's task is the full scale")
    if emulated := sorted({point.system for point in trained if point.emulated}):
        reasons.append(f"nodes of {', '.join(emulated)} are emulated on one host")
    if plan.logged_division != plan.division:
        reasons.append(
            f"this workflow's trainings of round {plan.ruleset} log the {plan.logged_division} division "
            f"(config/rounds/{plan.ruleset}.yaml), submission.division is {plan.division}"
        )
    if plan.division == "closed":  # the open one has any criterion to stop (training_rules, "Quality measure")
        reasons += _unofficial_targets(trained, ruleset=plan.ruleset)
    for point in trained:
        if point.num_runs < point.required_runs:
            reasons.append(f"{point.path}: {point.num_runs} runs are planned, the round requires {point.required_runs}")
    return reasons


def refusal(reasons: Iterable[str], *, study: str) -> str:
    """One message with every reason."""
    listed = "\n".join(f"  - {reason}" for reason in reasons)
    advice = "For a rehearsal, marked as not submittable, set submission.rehearsal: true in the study."
    return f"study {study} cannot be submitted:\n{listed}\n{advice}"


def _unofficial_targets(points: Iterable[SubmissionPoint], *, ruleset: str) -> list[str]:
    from mlscaling.mlperf import rounds

    reasons = {}
    for point in points:
        official = rounds.official_target(point.benchmark, ruleset)
        if official is None:
            continue
        ours = rounds.Target.of(point.target, mode=official.mode)
        if sorted(ours.values.values()) != sorted(official.values.values()):
            reasons[point.benchmark] = (
                f"the target of {point.benchmark} is {ours.describe()}, MLPerf's is {official.describe()}"
            )
    return list(reasons.values())
