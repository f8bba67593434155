"""Implementations that are commands: what reaches them, and the log that is made of what they print."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlscaling import images, jobs, vendor
from mlscaling.attempts import Paths, run_training, run_trainings
from mlscaling.catalog import load_system, load_workload
from mlscaling.datasets import external
from mlscaling.mlperf.parse import summarize
from mlscaling.spec import CommandSpec, DatasetSpec, RunSpec
from mlscaling.study import load_study, run_spec
from test_attempts import make_spec

EXAMPLE = Path(__file__).resolve().parents[1] / "vendor_example"
CONFIG = Path(__file__).resolve().parents[2] / "config"
SCRIPT = Path(jobs.__file__).resolve().parents[1] / "train.py"
SYSTEM = """\
title: emulated
accelerator: CPU core
device: cpu
launcher: local
emulated: true
max_nodes: 4
accelerators_per_node: 2
"""


@pytest.fixture
def config_dir(tmp_path: Path) -> Path:
    """A configuration with the example, whose program is where this repository is."""
    folder = tmp_path / "config"
    for name, text in (
        ("workloads/resnet_vendor.yaml", (EXAMPLE / "workload.yaml").read_text().replace("CODE", str(EXAMPLE))),
        ("datasets/vendor_data.yaml", (EXAMPLE / "dataset.yaml").read_text()),
        ("systems/emulated.yaml", SYSTEM),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    shutil.copytree(CONFIG / "rounds", folder / "rounds")
    return folder


def spec_of(config_dir: Path, nodes: int = 2) -> RunSpec:
    curve = {
        "workload": "resnet_vendor",
        "system": "emulated",
        "nodes": [nodes],
        "runs": 1,
        "weak": {"local_batch_size": 8},
    }
    study = load_study({"study": "s", "round": "1.1.0", "scale": "tiny", "curves": [curve]}, config_dir=config_dir)
    assert images.images_of_study(study) == {}
    return run_spec(study, study.points[0], run=0)


def test_what_reaches_the_command(config_dir: Path, tmp_path: Path) -> None:
    spec = dataclasses.replace(spec_of(config_dir), data_dir="/d")
    assert RunSpec.from_json(spec.to_json()).to_json() == spec.to_json()
    fields = vendor.fields_of(spec, log_dir=tmp_path, image="/i.sif")
    assert vendor.variables_of(spec, fields) == {
        "LR": "0.2", "DGXSYSTEM": "emulated", "DGXNNODES": "2", "DGXNGPU": "2", "BATCHSIZE": "8", "GRADIENT_STEPS": "1",
        "SEED": str(spec.seed), "NEXP": "1", "DATADIR": "/d", "LOGDIR": str(tmp_path), "CONT": "/i.sif",
    }  # fmt: skip


def test_our_own_runs_have_no_command_in_their_spec() -> None:
    assert "command" not in json.loads(make_spec().to_json())


@pytest.fixture
def places(config_dir: Path, tmp_path: Path) -> Callable[..., tuple[RunSpec, Paths]]:
    """Makes spec and paths of a run, whose program ends as `fault` says."""
    raw, data = tmp_path / "raw", tmp_path / "data"
    for folder in (raw, data):
        folder.mkdir()
    (raw / "train.rec").write_text("records")
    external.prepare(DatasetSpec(name="d", title="d", format="external"), raw_dir=raw, out_dir=data, num_processes=1)

    def of_run(run: int = 0, fault: str = "") -> tuple[RunSpec, Paths]:
        spec = spec_of(config_dir)
        program = [sys.executable, *spec.command["program"][1:]]
        environment = {**spec.command["environment"], "FAULT": fault}
        command = {**spec.command, "program": program, "environment": environment}
        paths = Paths(
            attempts_dir=tmp_path / f"attempts/run_{run}", log=tmp_path / f"result_{run}.txt",
            record=tmp_path / f"run_{run}.json", train_script=SCRIPT, data_dir=data,
        )  # fmt: skip
        return dataclasses.replace(spec, command=command, run=run), paths

    return of_run


def attempts_of(paths: Paths) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(paths.attempts_dir.glob("attempt_*/attempt.json"))]


@pytest.mark.training
def test_a_vendors_run_from_launch_to_published_log(config_dir: Path, places) -> None:
    spec, paths = places()
    system, _ = load_system("emulated", config_dir=config_dir)
    assert run_training(spec, system, paths) == 0
    summary = summarize(paths.log)
    assert (summary.status, summary.global_batch_size) == ("success", 32)
    assert f'"key": "seed", "value": {spec.seed},' in paths.log.read_text()
    lines = paths.log.read_text().splitlines()
    assert all(line.startswith(":::MLLOG {") for line in lines)
    assert sum('"submission_benchmark"' in line for line in lines) == 2  # each node's header
    assert sum('"init_start"' in line for line in lines) == 4  # each rank's


@pytest.mark.training
def test_one_launch_makes_the_runs_that_its_job_needs(config_dir: Path, places) -> None:
    system, _ = load_system("emulated", config_dir=config_dir)
    runs = [places(run) for run in range(3)]
    assert run_trainings(runs, system) == 0
    starts = [next(line for line in paths.log.read_text().splitlines() if '"run_start"' in line) for _, paths in runs]
    assert len(set(starts)) == 3
    assert [paths.log.read_text().count('"run_stop"') for _, paths in runs] == [1, 1, 1]
    assert [len(attempts_of(paths)) for _, paths in runs] == [1, 1, 1]
    launched = [(paths.attempts_dir / "attempt_0/command.json").exists() for _, paths in runs]
    assert launched == [True, False, False]
    before = [paths.log.read_text() for _, paths in runs]
    assert run_trainings(runs, system) == 0  # published again, not launched again
    assert [paths.log.read_text() for _, paths in runs] == before
    assert [len(attempts_of(paths)) for _, paths in runs] == [1, 1, 1]


@pytest.mark.training
@pytest.mark.parametrize(
    ("fault", "messages"),
    [
        ("no_stop", ["no run_stop", "which failed", "which failed"]),  # ends with status 0, and is no run all the same
        ("one_trial", ["", "made 1 of 3 runs", "made 1 of 3 runs"]),
    ],
)
def test_a_launch_that_leaves_runs_out(config_dir: Path, places, fault: str, messages: list[str]) -> None:
    system, _ = load_system("emulated", config_dir=config_dir)
    runs = [places(run, fault) for run in range(3)]
    assert run_trainings(runs, system) == 1
    for (_, paths), message in zip(runs, messages, strict=True):
        (attempt,) = attempts_of(paths)
        assert paths.log.exists() == (not message)
        assert attempt["status"] == ("failed" if message else "completed")
        assert attempt["exit_status"] == 0
        assert message in attempt["message"]


def test_lines_among_what_ranks_print(tmp_path: Path) -> None:
    one, two = (f':::MLLOG {{"key": "{name}", "value": "a\\n{{b"}}' for name in ("one", "two"))
    (tmp_path / "a").write_bytes(b"noise\r\n1: " + one.encode() + b"\r\n")
    (tmp_path / "b").write_bytes(f"[1,0]<stdout>:{two} behind it\n0: {one}{two}\n:::MLLOG cut off".encode())
    vendor.collect_log([tmp_path / "a", tmp_path / "b"], tmp_path / "log")
    assert (tmp_path / "log").read_text().splitlines() == [one, two, one, two, ":::MLLOG cut off"]


def test_trials_of_one_launch(tmp_path: Path) -> None:
    def line(key: str) -> str:
        return f':::MLLOG {{"key": "{key}"}}\n'

    runs = [
        ["submission_org", "init_start", "init_start", "run_start", "run_stop", "run_stop", "eval_accuracy"],
        ["cache_clear", "submission_org", "init_start", "run_start", "run_stop"],
        ["run_start", "run_stop"],
    ]
    (tmp_path / "log").write_text("".join(line(key) for run in runs for key in run))
    assert vendor.trials_of(tmp_path / "log") == ["".join(map(line, run)) for run in runs]


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ("  preset: nvida\n", "command.preset", "legal values: none, nvidia, plain"),
        ("  environment: {A: '{node}'}\n", "command.environment.A", "has no field {node}; fields: system"),
        ("  environment: {A: '{nodes'}\n", "command.environment.A", "braces that do not pair"),
        ("  mounts: ['{data}:/data']\n", "command.mounts[0]", "has no field {data}"),
        ("  start: twice\n", "command.start", "legal values"),
    ],
)
def test_what_is_wrong_with_a_command(config_dir: Path, change: str, key: str, message: str) -> None:
    path = config_dir / "workloads/resnet_vendor.yaml"
    path.write_text(path.read_text().replace("  preset: nvidia\n", change))
    workload, problems = load_workload("resnet_vendor", config_dir=config_dir, file="s", key="k", ruleset="1.1.0")
    assert workload is None
    assert problems[0].key == key
    assert message in problems[0].message


def test_implementation_and_command_go_together(config_dir: Path) -> None:
    path = config_dir / "workloads/resnet_vendor.yaml"
    text = path.read_text()
    for old, new, message in (
        ("implementation: command\n", "", "is used where implementation is command"),
        (
            text[text.index("command:\n  program") : text.index("scales:")],
            "",
            "is needed where implementation is command",
        ),
    ):
        path.write_text(text.replace(old, new))
        _, problems = load_workload("resnet_vendor", config_dir=config_dir, file="s", key="k", ruleset="1.1.0")
        assert message in problems[0].message


def test_a_field_for_everything_in_the_plain_preset() -> None:
    command = CommandSpec(program=("x",), environment=vendor.PRESETS["plain"])
    assert list(vendor.problems_of_texts(command)) == []
    assert vendor.PRESETS["plain"]["GLOBAL_BATCH_SIZE"] == "{global_batch_size}"
