"""Reference convergence points as files: read, pruned and written in MLPerf's own JSON format."""

from __future__ import annotations

import importlib.util
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlscaling.files import write_text
from mlscaling.mlperf import rounds
from mlscaling.mlperf.summary import RunSummary, Setting

OFFICIAL: Final = "official"
_EPOCHS: Final = "Epochs to converge"
_SAMPLES: Final = "samples to converge"
"""MLPerf's other name for the same list; llama2_70b_lora and flux1 use it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RcpRecord:
    """How long the reference takes at one global batch size."""

    name: str
    """Name in the file, e.g. `resnet_ref_3264`."""
    benchmark: str
    """MLPerf's name of the benchmark."""
    global_batch_size: int
    """Samples per optimiser step."""
    convergence: tuple[float, ...]
    """Epochs or samples to converge of each reference run, ascending."""
    hyperparameters: Mapping[str, Any]
    """As in the file."""
    creator: str = ""
    """Who ran the reference."""
    when: str = ""
    """When, in the creator's words."""
    platform: str = ""
    """Where."""

    @property
    def mean(self) -> float:
        """Olympic mean (`rcp_checker.compute_rcp_stats`)."""
        trimmed = rounds.trimmed_runs(self.benchmark)
        kept = self.convergence[trimmed : len(self.convergence) - trimmed]
        return math.fsum(kept) / len(kept) if kept else math.nan

    @property
    def standard_deviation(self) -> float:
        """Of all runs, the trimmed ones included, without Bessel's correction: so since mlperf_logging 52245a0."""
        mean = math.fsum(self.convergence) / len(self.convergence)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self.convergence) / len(self.convergence))

    @property
    def num_scored(self) -> int:
        """Reference runs in the mean."""
        return len(self.convergence) - 2 * rounds.trimmed_runs(self.benchmark)


def load_rcps(source: str | Path, *, benchmark: str, ruleset: str) -> tuple[RcpRecord, ...]:
    """Records of a benchmark by ascending global batch size; none where MLPerf has none for it.

    `source` is `official` for those of mlperf_logging and the round, or a file in the same format.

    Raises:
        ValueError: where the file is no such file, naming file, record and key.
    """
    if source == OFFICIAL:
        official = _official_file(benchmark, ruleset=ruleset)
        if not official.is_file():
            return ()
        name, text = official.name, official.read_text(encoding="utf-8")
    else:
        name, text = str(source), Path(source).read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name}: not a JSON file of RCPs: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{name}: RCPs are a JSON object of records, not a {type(content).__name__}")
    records = [_record(name, key, values) for key, values in content.items()]
    # The file of round 3.1's Stable Diffusion names its benchmark otherwise: an official file is all its benchmark's.
    mine = (record for record in records if source == OFFICIAL or record.benchmark == benchmark)
    return tuple(sorted(mine, key=lambda record: record.global_batch_size))


def _official_file(benchmark: str, *, ruleset: str) -> Path:
    """Where mlperf_logging has a benchmark's RCPs of a round, found without importing it: a study is parsed often."""
    package = importlib.util.find_spec("mlperf_logging")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "rcp_checker" / f"training_{ruleset}" / f"rcps_{benchmark}.json"


def _record(file: str, name: str, values: Any) -> RcpRecord:
    runs_key = _SAMPLES if isinstance(values, dict) and _SAMPLES in values else _EPOCHS
    missing = [key for key in ("Benchmark", "BS", runs_key) if key not in values] if isinstance(values, dict) else "all"
    if missing:
        raise ValueError(f"{file}: record {name!r} lacks {missing}; legal: Benchmark, BS, Hyperparams, {_EPOCHS}")
    runs = values[runs_key]
    trimmed = rounds.trimmed_runs(values["Benchmark"])
    if not isinstance(runs, list) or len(runs) <= 2 * trimmed:
        raise ValueError(f"{file}: record {name!r}, {runs_key!r}: more than {2 * trimmed} runs are needed for a mean")
    return RcpRecord(
        name=name,
        benchmark=values["Benchmark"],
        global_batch_size=values["BS"],
        convergence=tuple(sorted(float(run) for run in runs)),
        hyperparameters=values.get("Hyperparams", {}),
        creator=str(values.get("Creator", "")),
        when=str(values.get("When", "")),
        platform=str(values.get("Platform", "")),
    )


def prune(records: Sequence[RcpRecord]) -> tuple[RcpRecord, ...]:
    """The records that the official check uses: from the fastest upwards, those below their neighbours' chord.

    `RCP_Checker._prune_rcps`: it goes on where a record was dropped, so the result is not the convex envelope.
    """
    if not records:
        return ()
    fastest = min(records, key=lambda record: record.mean)
    kept = [record for record in records if record.global_batch_size >= fastest.global_batch_size]
    index = 1
    while index < len(kept) - 1:
        low, middle, high = kept[index - 1 : index + 2]
        chord = interpolate(low, high, middle.global_batch_size)[0]
        if middle.mean > chord:
            del kept[index]
        else:
            index += 1
    return tuple(kept)


def interpolate(low: RcpRecord, high: RcpRecord, global_batch_size: float) -> tuple[float, float]:
    """Mean and standard deviation between two records, linear in the global batch size."""
    share = (global_batch_size - low.global_batch_size) / (high.global_batch_size - low.global_batch_size)
    mean = low.mean + share * (high.mean - low.mean)
    return mean, low.standard_deviation + share * (high.standard_deviation - low.standard_deviation)


def write_rcps(
    runs: Sequence[RunSummary],
    path: Path,
    *,
    benchmark: str,
    required_runs: int,
    creator: str,
    when: str,
    platform: str,
    hyperparameters: Mapping[int, Mapping[str, Any]] | None = None,
) -> None:
    """Write reference runs as RCPs in MLPerf's format; the same runs give the same bytes.

    `hyperparameters` by global batch size; without it what all runs of a batch size log alike is written. A reference
    needs twice the runs of a submission (training_rules.adoc, "Reference convergence points").

    Raises:
        ValueError: for runs of another benchmark, runs that did not converge, and too few runs, naming the shortfall.
    """
    groups: dict[int, list[RunSummary]] = defaultdict(list)
    for run in runs:
        groups[int(run.global_batch_size) if math.isfinite(run.global_batch_size) else -1].append(run)
    problems = _problems(groups, benchmark=benchmark, required_runs=required_runs)
    if problems:
        raise ValueError(f"{path}: no RCPs of {benchmark} can be made: {'; '.join(problems)}")
    content = {
        f"{benchmark}_ref_{size}": {
            "Benchmark": benchmark,
            "Creator": creator,
            "When": when,
            "Platform": platform,
            "BS": size,
            "Hyperparams": dict(sorted(((hyperparameters or {}).get(size) or _common_settings(group)).items())),
            _EPOCHS: sorted(_plain(run.convergence) for run in group),
        }
        for size, group in sorted(groups.items())
    }
    write_text(json.dumps(content, indent=2) + "\n", path)


def _problems(groups: Mapping[int, Sequence[RunSummary]], *, benchmark: str, required_runs: int) -> list[str]:
    problems = [] if groups else ["there are no runs"]
    for size, group in sorted(groups.items()):
        others = sorted({run.benchmark or "none" for run in group} - {benchmark})
        failed = sum(not run.converged for run in group)
        if size < 0:
            problems.append(f"{len(group)} runs log no global_batch_size")
        if others:
            problems.append(f"global batch {size} has runs of {', '.join(others)}")
        if len({run.convergence_unit for run in group}) > 1:
            problems.append(f"global batch {size} mixes epochs and samples")
        if failed:
            problems.append(f"global batch {size} has {failed} runs that did not converge")
        if len(group) < 2 * required_runs:
            problems.append(f"global batch {size} has {len(group)} of {2 * required_runs} runs")
    return problems


def _common_settings(group: Sequence[RunSummary]) -> dict[str, Setting]:
    """Hyper-parameters of an optimiser that every run of the group logs alike."""
    first = group[0].hyperparameters
    return {
        name: value
        for name, value in first.items()
        if name.startswith(("opt_", "lars_", "sgd_", "lamb_"))
        and all(run.hyperparameters.get(name) == value for run in group)
    }


def _plain(value: float) -> float:
    """Whole numbers without a fraction, as in MLPerf's files."""
    return int(value) if value == int(value) else value
