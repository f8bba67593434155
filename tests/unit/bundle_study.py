"""A small study as the workflow leaves it, on a cluster that has names, and its bundle (tests only)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mllog_samples import START_MS, header, line, log_bytes, training
from mlscaling.attempt_folders import Attempt
from mlscaling.bundles import layout
from mlscaling.bundles.archives import unpack
from mlscaling.bundles.assemble import files_below, hashes_below
from mlscaling.bundles.collect import Source
from mlscaling.bundles.derive import OFFICIAL, Checkers
from mlscaling.bundles.description import manifest
from mlscaling.bundles.packing import pack
from mlscaling.bundles.write import source_of
from mlscaling.files import write_json, write_text
from mlscaling.mlperf.official import OfficialVerdict, RcpQuestion
from mlscaling.spec import Point, RunSpec
from mlscaling.study import Study, load_study, run_spec

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = {
    "study": "made_up",
    "title": "A study on tesla07 that nobody ran",
    "round": "1.1.0",
    "scale": "tiny",
    "data_root": "/scratch/alice/prepared",
    "curves": [
        {"workload": "resnet", "system": "emulated_cpu", "nodes": [1, 2], "weak": {"local_batch_size": 64}, "runs": 3}
    ],
    "plots": ["speedup", "spread"],
}
HOME = "/home/alice/mlperf"
HOSTS = (("tesla07", "10.1.2.7"), ("tesla08", "10.1.2.8"))
PRIVATE = (
    "alice",
    "tesla07",
    "tesla08",
    "10.1.2.7",
    "10.1.2.8",
    "jane.doe@hpc.corp.com",
    "proj4711",
    "a0:36:9f:12:34:56",
)
"""What must not be in a bundle."""
RETRIED = ("n1", 2)
"""Point and run whose first attempt failed."""


def checkout(folder: Path) -> Path:
    """What a bundle takes of a repository, in a folder without git."""
    for name in ("config", "rules", "envs"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copyfile(ROOT / "Snakefile", folder / "Snakefile")
    return folder


def make_study(folder: Path, *, missing: Sequence[tuple[str, int]] = (), **config: Any) -> Source:
    """A checkout with the results of a study in it.

    Args:
        folder: empty or absent.
        missing: point's last part and run, which failed and left no log.
        config: keys of the study that are other than `CONFIG`.
    """
    top = checkout(folder)
    given = top / "study.yaml"
    settings = {**CONFIG, **config}
    given.write_text(json.dumps(settings))  # JSON is YAML
    study = load_study(settings, config_dir=top / "config")
    results = top / "results" / study.name
    results.mkdir(parents=True)
    for point in study.points:
        for run in range(point.num_runs):
            _make_run(results, study, point, run, failed=(point.path.rpartition("/")[2], run) in missing)
    for dataset, spec in study.datasets.items():
        made = {"schema_version": 1, "dataset": spec.name, "format": spec.format, "options": dict(spec.options)}
        write_json({**made, "splits": dict(spec.counts), "files_digest": "0" * 64}, _manifest(top, dataset))
    return source_of(settings, given=given, checkout=top)


def _manifest(top: Path, dataset: str) -> Path:
    return top / f"results/datasets/{dataset}/manifest.json"


def log_of(spec: RunSpec) -> bytes:
    """An MLPerf log of a run: four epochs, and a second more for each run."""
    settings = {
        "seed": spec.seed,
        "global_batch_size": spec.global_batch_size,
        "local_batch_size": spec.local_batch_size,
        "gradient_accumulation_steps": 1,
        "opt_name": "sgd",
        "train_samples": spec.train_samples,
        "eval_samples": spec.eval_samples,
        "target_quality": spec.target,
    }
    qualities = (0.5, 0.8, 0.95, 0.98) if spec.nodes == 1 else (0.5, 0.8, 0.9, 0.95, 0.98)
    lines = [
        *header(platform=spec.system),
        line("cache_clear", True),
        line("init_start", kind="INTERVAL_START"),
        *(line(key, value) for key, value in settings.items()),
        line("init_stop", kind="INTERVAL_END", time_ms=START_MS + 29_000),
        *training(qualities, minutes=10 / spec.nodes + spec.run / 60),
    ]
    return log_bytes([text.replace("train.py", f"{HOME}/workflow/scripts/mlscaling/trainer.py") for text in lines])


def _make_run(results: Path, study: Study, point: Point, run: int, *, failed: bool) -> None:
    spec = run_spec(study, point, run=run)
    folder = results / f"attempts/{point.path}/run_{run}"
    statuses = ["failed"] * (failed or (point.path.rpartition("/")[2], run) == RETRIED) + ["completed"] * (not failed)
    attempts = [
        _make_attempt(folder / f"attempt_{number}", spec, status, number) for number, status in enumerate(statuses)
    ]
    if failed:
        return
    log = log_of(spec)
    path = results / f"runs/{point.path}/result_{run}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log)
    record = {
        "schema_version": 1,
        "spec": json.loads(spec.to_json()),
        "system": dataclasses.asdict(point.system),
        "published_attempt": len(statuses) - 1,
        "attempts": attempts,
        "code": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "packages": {"python": "3.11.7", "numpy": "2.4.6", "nvidia-cublas": "13.1.1.3"},
        "environment": {"OMP_NUM_THREADS": "2", "EDITOR": "vi"},
        "host": {"hostname": HOSTS[0][0], "processor": "a processor", "cores": 2},
        "log_sha256": hashlib.sha256(log).hexdigest(),
    }
    write_json(record, results / f"runs/{point.path}/run_{run}.json")


def _make_attempt(folder: Path, spec: RunSpec, status: str, number: int) -> dict[str, Any]:
    failed = status == "failed"
    hosts = HOSTS[: spec.nodes]
    attempt = Attempt(
        run=spec.run,
        attempt=number,
        status=status,
        failure_class="network" if failed else "",
        message=f"rank 1: connection to {HOSTS[1][0]} reset" if failed else "",
        exit_status=1 if failed else 0,
        started=1_700_000_000.0,
        ended=1_700_000_600.0,
        hostname=hosts[0][0],
        nodes=tuple({"name": name, "address": address} for name, address in hosts),
        ranks=tuple({"rank": rank, "host": name, "address": address} for rank, (name, address) in enumerate(hosts)),
    )
    record: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(attempt)))
    write_json(record, folder / "attempt.json")
    write_text(
        dataclasses.replace(spec, data_dir="/scratch/alice/prepared/images").to_json() + "\n", folder / "spec.json"
    )
    write_json([f"{HOME}/.venv/bin/python", f"{HOME}/workflow/scripts/train.py", "rank"], folder / "command.json")
    write_text(
        f"0: mlscaling rank 0 of {spec.nodes} is on tesla07 10.1.2.7\n"
        "UserId=alice(1234) Account=proj4711 mail jane.doe@hpc.corp.com link a0:36:9f:12:34:56\n"
        "tesla08.hpc.corp.com:123:456 [0] NCCL INFO NCCL version 2.30.7.1\n",
        folder / "ranks.log",
    )
    if not failed:
        (folder / "mlperf.log").write_bytes(log_of(spec))
    return record


class Remembered:
    """The official checkers, asked once about each log; a log that was changed is asked about anew."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], OfficialVerdict] = {}
        self._points: dict[tuple[Any, ...], OfficialVerdict] = {}
        self.checkers = Checkers(compliance=self._compliance, rcp=self._rcp)

    def _compliance(self, logs: Sequence[Path], ruleset: str) -> Sequence[OfficialVerdict]:
        keys = [(_sha256(log), ruleset) for log in logs]
        new = {key: log for key, log in zip(keys, logs, strict=True) if key not in self._logs}
        if new:
            self._logs |= dict(zip(new, OFFICIAL.compliance(list(new.values()), ruleset), strict=True))
        return [self._logs[key] for key in keys]

    def _rcp(self, questions: Sequence[RcpQuestion]) -> Sequence[OfficialVerdict]:
        keys = [
            (*map(_sha256, question.logs), question.rcps and _sha256(question.rcps), question.required_runs)
            for question in questions
        ]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._points}
        if new:
            self._points |= dict(zip(new, OFFICIAL.rcp(list(new.values())), strict=True))
        return [self._points[key] for key in keys]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def repacked(archive: Path, target: Path, change: Callable[[Path], None], *, with_hashes: bool = True) -> Path:
    """A copy of a bundle with something changed, and its manifest written anew as whoever changed it would."""
    folder = target.with_suffix("")
    folder.mkdir()
    unpack(archive, folder)
    change(folder)
    if with_hashes:
        (folder / layout.MANIFEST).write_text(manifest(hashes_below(folder)))
    pack({name: (folder / name).read_bytes() for name in files_below(folder)}, target)
    shutil.rmtree(folder)
    return target
