"""One side of a comparison: the results of a study, from its folder or from a bundle."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from mlscaling import evidence, scoring, wording
from mlscaling.bundles import reading
from mlscaling.files import read_json
from mlscaling.likeness import CurvePoint
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import from_values
from mlscaling.planned import Planned, PlannedPoint
from mlscaling.tables import read_table

NEEDED: Final = ("planned.json", "tables/runs.csv", "tables/points.csv")
"""Files without which there is nothing to compare; records and verdicts say what it was measured with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SidePoint:
    """A point with all that is known of it."""

    planned: PlannedPoint
    """As planned."""
    runs: pd.DataFrame
    """Its rows of the runs table."""
    row: Mapping[str, Any]
    """Its row of the points table."""
    measured: CurvePoint
    """Logs, run records and description, as `likeness` compares them."""
    published: bool
    """Its logs were published by a submitter."""

    @property
    def title(self) -> str:
        """`ResNet-50, 8 nodes`."""
        return f"{self.planned.workload_title}, {wording.nodes(self.planned.nodes)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The results of a study."""

    label: str
    """`A`, what is compared with, or `B`, what is compared."""
    name: str
    """What was given on the command line, without its folder."""
    study: str
    """Name of the study."""
    title: str
    """What a reader should see."""
    ruleset: str
    """MLPerf round."""
    scale: str
    """`tiny` or `full`."""
    notes: tuple[str, ...]
    """Sentences that whoever shows its numbers must carry."""
    points: tuple[SidePoint, ...]
    """In the order of the study."""

    @property
    def systems(self) -> list[str]:
        """Names of its systems."""
        return list(dict.fromkeys(point.planned.system for point in self.points))


@contextmanager
def opened_results(path: Path) -> Iterator[Path]:
    """Folder of results that a path gives: `results/<study>/`, an unpacked bundle, or a bundle's zip.

    Raises:
        ValueError: it is none of them; says what is missing.
    """
    if path.is_dir():
        yield _results_in(path)
    elif path.is_file():
        with reading.opened(path) as folder:
            yield _results_in(folder)
    else:
        raise ValueError(f"{path}: there is no such file or folder")


def read_side(results: Path, *, label: str, name: str) -> Side:
    """Read one side.

    Args:
        results: folder of results.
        label: `A` or `B`.
        name: what a reader should see of the path.

    Raises:
        ValueError: a table, verdict or record is not as it should be; names the file.
    """
    try:
        return _side(results, label=label, name=name)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{results}: plan, verdicts or records are not as this workflow writes them: {error!r}"
        ) from None


def _side(results: Path, *, label: str, name: str) -> Side:
    study = read_json(results / "planned.json")
    planned = Planned.from_file(results / "planned.json")
    runs = read_table(results / "tables" / "runs.csv", "runs")
    rows = {_path(row): row for row in read_table(results / "tables" / "points.csv", "points").to_dict("records")}
    verdicts = evidence.read_compliance(sorted((results / "validation").glob("*/*/n*/compliance_*.json")))
    if missing := [point.path for point in planned.points if point.path not in rows]:
        raise ValueError(f"{results / 'tables' / 'points.csv'}: has no row of {', '.join(missing)}; make it again")
    return Side(
        label=label,
        name=name,
        study=planned.study,
        title=planned.title,
        ruleset=str(study.get("round", "")),
        scale=str(study.get("scale", "")),
        notes=planned.notes,
        points=tuple(
            _point(point, results, name=name, runs=runs, row=rows[point.path], verdicts=verdicts)
            for point in planned.points
        ),
    )


def _results_in(path: Path) -> Path:
    """The folder itself, or the `results` in an unpacked bundle."""
    missing: Sequence[str] = ()
    for folder in (path, path / "results"):
        missing = [name for name in NEEDED if not (folder / name).is_file()]
        if not missing:
            return folder
    raise ValueError(
        f"{path}: is neither a study's results nor a bundle of them; misses {', '.join(missing)} "
        "(the target `tables` makes them)"
    )


def _point(
    point: PlannedPoint,
    results: Path,
    *,
    name: str,
    runs: pd.DataFrame,
    row: Mapping[str, Any],
    verdicts: Mapping[tuple[str, int], evidence.Record],
) -> SidePoint:
    _check_logs(point, results, name=name, verdicts=verdicts)
    records = [read_json(path) for path in sorted((results / "runs" / point.path).glob("run_*.json"))]
    described = [record["description"] for record in records if record.get("description")]
    summaries = [
        RunSummary.from_dict(verdict["summary"]) for (path, _), verdict in verdicts.items() if path == point.path
    ]
    return SidePoint(
        planned=point,
        runs=scoring.runs_of(runs, point),
        row=row,
        measured=CurvePoint(
            nodes=point.nodes,
            summaries=summaries,
            records=records,
            description=from_values(described[0]) if described else None,
        ),
        published=any("source" in record for record in records),
    )


def _check_logs(
    point: PlannedPoint, results: Path, *, name: str, verdicts: Mapping[tuple[str, int], evidence.Record]
) -> None:
    """Raises a ValueError where a log is another than the one that its verdict judged."""
    for (path, run), verdict in verdicts.items():
        log = results / "runs" / path / f"result_{run}.txt"
        if path != point.path or not log.is_file():
            continue
        with log.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != verdict["summary"]["sha256"]:
                raise ValueError(
                    f"{name}: runs/{path}/{log.name} is not the log that its verdict judged; it was changed"
                )


def _path(row: Mapping[str, Any]) -> str:
    return f"{row['system']}/{row['workload']}/n{row['nodes']}"


def has_score(point: SidePoint) -> bool:
    """Whether the point has a time."""
    return math.isfinite(float(point.row["time_to_train_min"]))
