"""Results of a study without snakemake: the same files by the same functions of the library (tests only)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mllog_samples import log_bytes, log_lines
from mlscaling import runs, scoring, tables
from mlscaling.files import write_json
from mlscaling.mlperf import rounds
from mlscaling.mlperf.compliance import verdict
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.rcp import check_point
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import read_description
from mlscaling.planned import Planned, PlannedPoint
from mlscaling.published import import_record
from mlscaling.published_study import TITLES, system_of_folder
from mlscaling.results_tree import Results, results_of
from mlscaling.spec import Published
from mlscaling.submission.plan import SubmissionPlan, SubmissionPoint

RULESET = "1.1.0"
RECORD: dict[str, Any] = {
    "schema_version": 1,
    "spec": {"options": {"precision": "float32"}, "model": {}},
    "system": {"accelerator": "GPU9", "accelerators_per_node": 2, "launcher": "srun", "container": "docker", "image": "i"},
    "code": {"commit": "0123456789abcdef", "dirty": False},
    "packages": {"torch": "2.14.1"},
    "environment": {},
    "host": {"hostname": "node1", "processor": "CPU 7", "kernel": "Linux 6.1", "cores": 8},
    "attempts": [],
    "published_attempt": 0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A point and the runs that it has."""

    point: PlannedPoint
    logs: Mapping[int, bytes]
    """Run → log; a run without one is missing."""
    record: Callable[[int], Mapping[str, Any]] = lambda run: RECORD
    """Run → its record but for the hash."""
    rcps: str = ""
    """`official`, or none."""


def write_results(
    target: Path,
    measured: Sequence[Measured],
    *,
    study: str = "made_up",
    scale: str = "full",
    notes: Sequence[str] = (),
) -> Path:
    """`results/<study>/` with plan, logs, records, verdicts and tables; returns the folder."""
    points = [one.point for one in measured]
    planned = {
        "schema_version": 1, "study": study, "title": f"Study {study}", "notes": list(notes), "round": RULESET,
        "scale": scale, "points": [dataclasses.asdict(point) for point in points],
    }  # fmt: skip
    write_json(planned, target / "planned.json")
    compliance, rcps = {}, {}
    for one in measured:
        found = []
        for run, text in one.logs.items():
            log = target / "runs" / one.point.path / f"result_{run}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(text)
            record = {**one.record(run), "log_sha256": hashlib.sha256(text).hexdigest()}
            write_json(record, log.parent / f"run_{run}.json")
            expected = {"global_batch_size": one.point.global_batch_size, "accelerators": one.point.accelerators}
            said = verdict(
                log, ruleset=RULESET, answer=None, expected=expected if one.point.global_batch_size > 1 else {}
            )
            write_json(said, target / "validation" / one.point.path / f"compliance_{run}.json")
            compliance[one.point.path, run] = said
            found.append(RunSummary.from_dict(said["summary"]))
        rcps[one.point.path] = check_point(
            found, benchmark=one.point.workload, ruleset=RULESET, global_batch_size=one.point.global_batch_size,
            rcps=one.rcps, num_runs=one.point.num_runs, required_runs=one.point.required_runs,
        )  # fmt: skip
        write_json(rcps[one.point.path], target / "validation" / one.point.path / "rcp.json")
    plan = Planned.from_file(target / "planned.json")
    table = runs.runs_table(plan, compliance=compliance, attempts={})
    of_points = scoring.points_table(table, plan, rcps=rcps)
    tables.write_table(table, target / "tables" / "runs.csv")
    tables.write_table(of_points, target / "tables" / "points.csv")
    tables.write_table(scoring.scaling_table(of_points, table, plan), target / "tables" / "scaling.csv")
    return target


def trained_point(**changes: Any) -> PlannedPoint:
    """ResNet-50 on one node of `box`."""
    values: dict[str, Any] = {
        "system": "box", "workload": "resnet", "nodes": 1, "accelerators": 2, "global_batch_size": 64,
        "local_batch_size": 32, "batch_policy": "weak", "num_runs": 5, "required_runs": 5, "trimmed_runs": 1,
        "target": 0.759, "convergence_unit": "epochs", "workload_title": "ResNet-50",
    }  # fmt: skip
    return PlannedPoint(**values | changes)


def trained(
    minutes: Sequence[float],
    *,
    epochs: int = 5,
    record: Mapping[str, Any] | None = None,
    seed: int = 1,
    **changes: Any,
) -> Measured:
    """A trained point whose runs take these minutes; infinite ones do not converge, NaN ones are missing."""
    point = trained_point(num_runs=len(minutes), **changes)
    logs = {
        run: log_bytes(
            log_lines(
                minutes=5 if time == float("inf") else time, seed=seed + run, benchmark=point.workload,
                status="aborted" if time == float("inf") else "success", global_batch_size=point.global_batch_size,
                qualities=[*([0.5] * (epochs - 1)), 0.91],
            )
        )
        for run, time in enumerate(minutes) if time == time
    }  # fmt: skip
    return Measured(point=point, logs=logs, record=lambda run: {**RECORD, **(record or {})})


def published(root: Path, wanted: Sequence[tuple[str, str]] = ()) -> tuple[list[Measured], SubmissionPlan]:
    """Points of a published tree, all or these (system folder, benchmark), and what of them would be submitted."""
    found = [one for one in results_of(root) if not wanted or (one.system, one.benchmark) in wanted]
    pairs = [_published(one, root) for one in found]
    plan = SubmissionPlan(
        study="published", ruleset=RULESET, scale="full", logged_division="open", submitter="", division="closed",
        rehearsal=False, published_root=str(root), points=tuple(point for _, point in pairs),
    )  # fmt: skip
    return [measured for measured, _ in pairs], plan


def _published(one: Results, root: Path) -> tuple[Measured, SubmissionPoint]:
    assert one.description is not None
    description, first = read_description(one.description), summarize(one.logs[0])
    batch = int(first.global_batch_size) if first.global_batch_size == first.global_batch_size else 1
    accelerators, steps = description.num_accelerators, first.hyperparameters.get("gradient_accumulation_steps", 1)
    assert accelerators
    target = rounds.official_target(one.benchmark, RULESET)
    shared: dict[str, Any] = {
        "system": system_of_folder(one.system), "nodes": description.num_nodes, "num_runs": len(one.logs),
        "required_runs": rounds.required_runs(one.benchmark), "trimmed_runs": rounds.trimmed_runs(one.benchmark),
        "target": next(iter(target.values.values())) if target else 0.0,
    }  # fmt: skip
    point = PlannedPoint(
        **shared, workload=one.benchmark, accelerators=accelerators, global_batch_size=batch, batch_policy="explicit",
        local_batch_size=batch // accelerators // int(steps), convergence_unit=first.convergence_unit,
        system_title=description.name, workload_title=TITLES.get(one.benchmark, one.benchmark),
    )  # fmt: skip
    source = Published(submitter=one.submitter, system=one.system, benchmark=one.benchmark)
    submission = SubmissionPoint(
        **shared, path=point.path, accelerators_per_node=description.accelerators_per_node or 1,
        accelerator=description.accelerator, emulated=False, benchmark=one.benchmark, published=source,
    )  # fmt: skip
    measured = Measured(
        point=point, logs={run: log.read_bytes() for run, log in enumerate(one.logs)},
        record=lambda run: import_record(one, one.logs[run], root=root),
        rcps="official" if one.benchmark != rounds.MINIGO else "",
    )  # fmt: skip
    return measured, submission
