"""Everything that follows from a study's evidence, made anew: verdicts, tables, summary and figures.

Evidence is what cannot be made again: logs, run records, attempts, configuration and RCPs. The writer derives from the
evidence that it puts into a bundle, and whoever verifies derives from the evidence that is in it, by the same code.
Both folders have the layout of a bundle; what is derived gets the names that it has in `results/<study>/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlscaling import evidence, likeness
from mlscaling.bundles.derive_systems import verdicts_on_descriptions
from mlscaling.files import read_json, write_json, write_text
from mlscaling.gate import gate
from mlscaling.mlperf import compliance, official, rcp
from mlscaling.mlperf.official import OfficialVerdict, RcpQuestion
from mlscaling.mlperf.rounds import Target
from mlscaling.mlperf.summary import RunSummary
from mlscaling.plan import plan_rows, plan_text
from mlscaling.planned import Planned
from mlscaling.provenance import origin_of_runs
from mlscaling.spec import Point
from mlscaling.study import Study, expected_log, planned

if TYPE_CHECKING:
    import pandas as pd

    from mlscaling.plots import Context

LOGS_PER_PROCESS: Final = 24
"""Of the official compliance checker: it starts in 0.2 s and takes 0.06 s for a log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkers:
    """The official checkers, as far as they are asked."""

    compliance: Callable[[Sequence[Path], str], Sequence[OfficialVerdict]]
    """Logs and round → an answer for each log."""
    rcp: Callable[[Sequence[RcpQuestion]], Sequence[OfficialVerdict]]
    """Questions → an answer for each."""


def _ask_compliance(logs: Sequence[Path], ruleset: str) -> Sequence[OfficialVerdict]:
    return official.compliance(logs, ruleset=ruleset)


OFFICIAL: Final = Checkers(compliance=_ask_compliance, rcp=official.rcp)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Where to read the evidence of which study, and where to write what follows from it."""

    study: Study
    """As the evidence's own configuration describes it."""
    root: Path
    """Folder of the evidence, in the layout of a bundle."""
    out: Path
    """Folder of what is derived, in the same layout; may be the same."""
    jobs: int = 2
    """Processes of the official checkers at a time."""
    checkers: Checkers = field(default=OFFICIAL)
    """Whom to ask."""
    draw: bool = True
    """Draw figures, too, not only their data and captions."""

    def log(self, point: Point, run: int) -> Path:
        """MLPerf log of a run."""
        return self.root / f"results/runs/{point.path}/result_{run}.txt"

    def record(self, point: Point, run: int) -> Path:
        """Run record."""
        return self.root / f"results/runs/{point.path}/run_{run}.json"

    def verdict(self, point: Point, run: int) -> Path:
        """Compliance verdict, to be derived."""
        return self.out / f"results/validation/{point.path}/compliance_{run}.json"

    def logged(self, point: Point) -> list[int]:
        """Planned runs of a point that have a log."""
        return [run for run in range(point.num_runs) if self.log(point, run).is_file()]


def derive(work: Work) -> None:
    """Write everything that follows.

    Raises:
        ValueError, OSError: the evidence cannot be read as what it should be; names the file.
    """
    content = planned(work.study)
    write_json(content, work.out / "results/planned.json")
    write_text(plan_text(plan_rows(content, base=work.root)), work.out / "results/plan.tsv")
    _validation(work)
    _tables(work)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _validation(work: Work) -> None:
    """Verdicts of runs, then of points from the summaries in them; the official checkers answer many at once."""
    verdicts = _compliance_of_all(work)
    summaries = {
        point.path: [RunSummary.from_dict(verdicts[point.path, run]["summary"]) for run in work.logged(point)]
        for point in work.study.points
    }
    asked = {point.path: _question(work, point, summaries[point.path]) for point in work.study.points}
    questions = {path: question for path, question in asked.items() if question}
    answers = dict(zip(questions, work.checkers.rcp(list(questions.values())), strict=True)) if questions else {}
    for point in work.study.points:
        verdict = _rcp(work, point, summaries[point.path], answers.get(point.path))
        write_json(verdict, work.out / f"results/validation/{point.path}/rcp.json")


def _compliance_of_all(work: Work) -> dict[tuple[str, int], dict[str, Any]]:
    runs = [(point, run) for point in work.study.points for run in work.logged(point)]
    size = max(1, min(LOGS_PER_PROCESS, -(-len(runs) // work.jobs)))
    chunks = [runs[start : start + size] for start in range(0, len(runs), size)]
    verdicts = {}
    with ThreadPoolExecutor(work.jobs) as pool:
        ask = [
            pool.submit(work.checkers.compliance, [work.log(*run) for run in c], work.study.round.name) for c in chunks
        ]
        for chunk, future in zip(chunks, ask, strict=True):
            for (point, run), answer in zip(chunk, future.result(), strict=True):
                verdicts[point.path, run] = _compliance(work, point, run, answer)
                write_json(verdicts[point.path, run], work.verdict(point, run))
    return verdicts


def _compliance(work: Work, point: Point, run: int, answer: OfficialVerdict) -> dict[str, Any]:
    target, mode = point.settings.target, point.workload.quality_mode
    record = work.record(point, run)
    return compliance.verdict(
        work.log(point, run),
        ruleset=work.study.round.name,
        answer=answer,
        expected=expected_log(work.study, point, run=run),
        target=None if point.published else Target.of(target, mode=mode),
        published_sha256=read_json(record)["log_sha256"] if record.is_file() else None,
    )


def _rcps(work: Work, point: Point) -> str:
    """Where a point's RCPs are: a file, `official`, or nothing."""
    source = point.settings.rcps
    if source in ("", "official"):
        return source
    return str(work.root / source) if (work.root / source).is_file() else ""


def _question(work: Work, point: Point, summaries: Sequence[RunSummary]) -> RcpQuestion | None:
    source = _rcps(work, point)
    logs = [work.log(point, run) for run in work.logged(point)]
    if not source or not logs:
        return None
    return rcp.official_question(
        summaries,
        logs,
        benchmark=point.workload.mlperf_benchmark,
        ruleset=work.study.round.name,
        rcps=source,
        required_runs=point.required_runs,
    )


def _rcp(work: Work, point: Point, summaries: Sequence[RunSummary], answer: OfficialVerdict | None) -> dict[str, Any]:
    return rcp.check_point(
        summaries,
        benchmark=point.workload.mlperf_benchmark,
        ruleset=work.study.round.name,
        global_batch_size=point.global_batch_size,
        rcps=_rcps(work, point),
        num_runs=point.num_runs,
        required_runs=point.required_runs,
        answer=answer,
    )


# --- tables, figures, summary -----------------------------------------------------------------------------------------


def _tables(work: Work) -> None:
    from mlscaling import runs, scoring, tables

    plan = Planned.from_file(work.out / "results/planned.json")
    verdicts = evidence.read_compliance(
        work.verdict(point, run) for point in work.study.points for run in work.logged(point)
    )
    attempts = evidence.read_attempts(work.root / "results/attempts")
    rcps = evidence.read_rcp(work.out / f"results/validation/{point.path}/rcp.json" for point in work.study.points)
    made = {"runs": runs.runs_table(plan, compliance=verdicts, attempts=attempts)}
    made["points"] = scoring.points_table(made["runs"], plan, rcps=rcps)
    made["scaling"] = scoring.scaling_table(made["points"], made["runs"], plan)
    # Read again, as the rules behind do: a table as written is what everything else follows from.
    for kind, table in made.items():
        path = work.out / f"results/tables/{kind}.csv"
        tables.write_table(table, path)
        made[kind] = tables.read_table(path, kind)
    verdict = gate(made["points"], made["runs"])
    if verdict["passed"]:
        write_json(verdict, work.out / "results/validation/validated.json")
    from mlscaling.plots import Context

    network = _network(work, plan)
    described = verdicts_on_descriptions(work.study, root=work.root, out=work.out, logged=work.logged)
    _summary(work, plan, made, likeness=_likeness(work), descriptions=described, network=network)
    _figures(work, made, context=Context(planned=plan, rcps=rcps, network=network))
    _collected_rcps(work)


def _likeness(work: Work) -> list[dict[str, Any]]:
    curves: dict[tuple[str, str], list[Point]] = {}
    for point in work.study.points:
        curves.setdefault((point.system.name, point.workload.name), []).append(point)
    verdicts = []
    for (system, workload), points in curves.items():
        runs = [(point, run) for point in points for run in work.logged(point)]
        found = likeness.read_curve(
            scaling=work.out / "results/tables/scaling.csv",
            compliance=[work.verdict(*run) for run in runs],
            records=[work.record(*run) for run in runs if work.record(*run).is_file()],
            system=system,
            workload=workload,
        )
        verdicts.append(likeness.likeness(found, system=system, workload=workload))
        write_json(verdicts[-1], work.out / f"results/validation/{system}/{workload}/likeness.json")
    return verdicts


def _network(work: Work, plan: Planned) -> pd.DataFrame:
    from mlscaling import network_table, tables

    runs = [(point, run) for point in work.study.points for run in work.logged(point)]
    table = network_table.network_table(
        plan,
        records=evidence.read_runs(work.record(*run) for run in runs if work.record(*run).is_file()),
        attempts=network_table.read_preflights(work.root / "results/attempts"),
    )
    path = work.out / "results/tables/network.csv"
    tables.write_table(table, path)
    return tables.read_table(path, "network")


def _summary(work: Work, plan: Planned, made: Mapping[str, pd.DataFrame], **more: Any) -> None:
    from mlscaling import summary

    for ending, make in (("txt", summary.text_summary), ("rst", summary.rst_summary)):
        text = make(made["points"], made["scaling"], plan, **more)
        write_text(text, work.out / f"results/tables/summary.{ending}")


def _figures(work: Work, made: Mapping[str, pd.DataFrame], *, context: Context) -> None:
    from mlscaling import plots, tables

    for name in work.study.plots:
        outputs = {form: work.out / f"results/plots/{name}.{form}" for form in ("svg", "png", "csv")}
        outputs["caption"] = work.out / f"results/plots/{name}.rst"
        if work.draw:
            plots.write(name, **made, context=context, outputs=outputs)
            continue
        module = plots.module_of(name)
        tables.write_table(module.data(**made, context=context), outputs["csv"])
        write_text(module.caption(**made, context=context), outputs["caption"])


def _collected_rcps(work: Work) -> None:
    """`rcps_{workload}.json`, where the evidence's study had its runs collected as RCPs."""
    for workload in dict.fromkeys(point.workload.name for point in work.study.points):
        name = f"results/rcps/rcps_{workload}.json"
        if (work.root / name).is_file():
            points = [point for point in work.study.points if point.workload.name == workload]
            runs = [(point, run) for point in points for run in work.logged(point)]
            rcp.write_rcps(
                [RunSummary.from_dict(read_json(work.verdict(*run))["summary"]) for run in runs],
                work.out / name,
                benchmark=points[0].workload.mlperf_benchmark,
                required_runs=points[0].required_runs,
                hyperparameters={
                    point.global_batch_size: dict(point.settings.hyperparameters[point.global_batch_size])
                    for point in points
                },
                **origin_of_runs([read_json(work.record(*run)) for run in runs]),
            )
