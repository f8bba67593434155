"""Attempts at a run, with a stand-in for the training that crashes, hangs or finishes on demand; the rest is real."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlscaling.attempt_folders import given_up, read_attempts
from mlscaling.attempts import Paths, run_training, run_trainings
from mlscaling.datasets.preparation import checksums, contents
from mlscaling.seeds import spec_of_run
from mlscaling.spec import RunSpec
from mlscaling.systems import System

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"

# A rank that behaves as the file `fate` beside it says, then writes the log of a short run.
STAND_IN = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {scripts!r})
if sys.argv[1] in ("emulate", "capture", "stage"):
    import train
    sys.exit(train.main(sys.argv[1:]))
if sys.argv[1] == "drop-page-cache":
    from mlscaling.page_cache import drop_here
    here = Path({fate!r}).parent
    sys.exit(drop_here(here / ("drop_caches" if os.environ["RANK"] in (here / "may_drop").read_text() else "data")))
log = Path(sys.argv[3].removeprefix("--log="))
fate = Path({fate!r}).read_text()
rank = os.environ["RANK"]
fails = Path({fate!r}).parent / "fails"
if fails.exists() and fails.read_text() == str(json.loads(Path(sys.argv[2].removeprefix("--spec=")).read_text())["run"]):
    sys.exit("KeyError")
print("hello from", rank, flush=True)
if rank == "1" and fate.startswith("raise"):
    exec(fate)
if fate == "hang" or fate.startswith("raise"):  # as rank 0 hangs in a collective when its peer is gone
    time.sleep(300)
if fate.startswith("wait"):
    time.sleep(float(fate.split()[1]))
if rank == "0":
    def event(key, value, at, **metadata):
        return ":::MLLOG " + json.dumps(dict(namespace="", time_ms=at, event_type="POINT_IN_TIME", key=key, value=value,
                                             metadata=dict(file="x", lineno=1, **metadata)))
    lines = [event("submission_benchmark", "resnet", 1000),
             event("cache_clear", sys.argv[4:] == ["--cache-cleared"], 1000), event("run_start", None, 2000)]
    if fate != "no_stop":
        lines += [event("eval_accuracy", 0.98, 60000, epoch_num=3),
                  event("run_stop", None, 62000, status="aborted" if fate == "aborted" else "success")]
    log.write_text("\\n".join(lines) + "\\n")
if fate == "exit after" and rank == "0":
    sys.exit(5)
if fate == "hang after":
    time.sleep(300)
"""

SYSTEM = System(
    name="unit", title="unit", max_nodes=2, accelerators_per_node=1, cpus_per_accelerator=1, accelerator="CPU core",
    device="cpu", launcher="local", emulated=True, startup_limit_min=1, time_limit_min=1, silence_limit_min=1,
)  # fmt: skip


def make_spec(**changes: object) -> RunSpec:
    values = {field.name: "x" for field in dataclasses.fields(RunSpec)}
    values |= {"nodes": 2, "accelerators_per_node": 1, "cpus_per_accelerator": 1, "run": 3, "seed": 1, "data_dir": ""}
    values |= {"model": {}, "hyperparameters": {}, "options": {}, "command": {}, "system": "unit", "workload": "resnet"}
    return RunSpec(**{**values, **changes})


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "data").mkdir()
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN.format(scripts=str(SCRIPTS), fate=str(tmp_path / "fate")))
    return Paths(
        attempts_dir=tmp_path / "attempts" / "run_3",
        log=tmp_path / "runs" / "result_3.txt",
        record=tmp_path / "runs" / "run_3.json",
        train_script=script,
        data_dir=tmp_path / "data",
    )


def attempt(paths: Paths, fate: str, *, system: System = SYSTEM) -> int:
    (paths.train_script.parent / "fate").write_text(fate)
    return run_training(make_spec(), system, paths)


@pytest.mark.parametrize(("fate", "noted"), [("", False), ("aborted", False), ("exit after", True)])
def test_a_finished_log_is_published_whatever_its_status_and_the_exit_status(
    paths: Paths, fate: str, noted: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert attempt(paths, fate) == 0
    assert paths.log.read_bytes() == (paths.attempts_dir / "attempt_0" / "mlperf.log").read_bytes()
    record = json.loads(paths.record.read_text())
    assert record["published_attempt"] == 0
    assert record["spec"]["run"] == 3
    (only,) = record["attempts"]
    assert only["status"] == "completed"
    assert any("status 5 after run_stop" in note for note in only["notes"]) == noted
    assert "resnet on 2 nodes, run 3: " in capfd.readouterr().out
    assert not list(paths.log.parent.glob(".*"))


@pytest.mark.parametrize(
    ("fate", "failure_class", "message"),
    [
        ("raise KeyError('lr')", "unknown", "KeyError"),
        ("raise MemoryError('no')", "out_of_memory", "MemoryError"),
        ("raise ConnectionRefusedError('Connection refused')", "network", "refused"),
        ("no_stop", "unknown", "no run_stop"),
    ],
)
def test_a_failed_attempt_is_kept_classified_and_publishes_nothing(
    paths: Paths, fate: str, failure_class: str, message: str
) -> None:
    assert attempt(paths, fate) == 1
    (record,) = read_attempts(paths.attempts_dir)
    assert (record["status"], record["failure_class"]) == ("failed", failure_class)
    assert message in record["message"]
    assert not paths.log.exists()
    assert not paths.record.exists()
    assert given_up(paths.attempts_dir, log=paths.log)


def test_every_attempt_is_kept_and_counted(paths: Paths) -> None:
    fates = ["raise KeyError()", "raise MemoryError()", ""]
    assert [attempt(paths, fate) for fate in fates] == [1, 1, 0]
    attempts = json.loads(paths.record.read_text())["attempts"]
    assert [(a["attempt"], a["failure_class"]) for a in attempts] == [(0, "unknown"), (1, "out_of_memory"), (2, "")]
    assert not given_up(paths.attempts_dir, log=paths.log)


def test_a_limit_ends_an_attempt_as_timeout(paths: Paths) -> None:
    assert attempt(paths, "hang", system=dataclasses.replace(SYSTEM, startup_limit_min=0.03)) == 1
    (record,) = read_attempts(paths.attempts_dir)
    assert record["failure_class"] == "timeout"
    assert "startup_limit_min" in record["message"]


def test_ranks_that_hang_after_run_stop_are_ended_and_their_run_counts(paths: Paths) -> None:
    assert attempt(paths, "hang after", system=dataclasses.replace(SYSTEM, silence_limit_min=0.02)) == 0
    (record,) = json.loads(paths.record.read_text())["attempts"]
    assert any("ended after run_stop (no MLLOG event" in note for note in record["notes"])
    assert ranks_alive(paths) == []


def test_missing_data_is_a_clear_error_and_no_attempt(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    paths.data_dir.rmdir()
    assert attempt(paths, "") == 1
    assert str(paths.data_dir) in capfd.readouterr().err
    assert not paths.attempts_dir.exists()


# --- steps before the training ----------------------------------------------------------------------------------------


def with_data(paths: Paths) -> Paths:
    """With prepared data of one file, and their manifest."""
    (paths.data_dir / "train.bin").write_bytes(b"x" * 1000)
    (paths.data_dir / "SHA256SUMS").write_text(checksums(paths.data_dir))
    manifest = paths.data_dir.parent / "manifest.json"
    manifest.write_text(json.dumps(contents(paths.data_dir)))
    return dataclasses.replace(paths, manifest=manifest)


def test_staged_data_are_what_ranks_read_and_the_time_is_reported(paths: Paths) -> None:
    staged = dataclasses.replace(SYSTEM, stage_data_to=str(paths.data_dir.parent / "local"))
    for number, copied in enumerate([[0, 1], [0, 0]]):
        assert attempt(with_data(paths), "", system=staged) == 0
        folder = paths.attempts_dir / f"attempt_{number}"
        read_from = Path(json.loads((folder / "spec.json").read_text())["data_dir"])
        assert read_from.parent == Path(staged.stage_data_to)
        assert (read_from / "train.bin").read_bytes() == b"x" * 1000
        said = json.loads((folder / "stage.json").read_text())
        assert sorted(node["copied"] for node in said["nodes"]) == copied
        attempts = json.loads(paths.record.read_text())["attempts"]
        assert attempts[number]["staging_s"] == said["seconds"] > 0


def test_damaged_data_end_the_attempt_before_the_training(paths: Paths) -> None:
    paths = with_data(paths)
    (paths.data_dir / "train.bin").write_bytes(b"y" * 1000)
    staged = dataclasses.replace(SYSTEM, stage_data_to=str(paths.data_dir.parent / "local"))
    assert run_training(make_spec(), staged, paths) == 1
    (record,) = read_attempts(paths.attempts_dir)
    assert record["failure_class"] == "data"
    assert f"{paths.data_dir}/train.bin has another checksum" in record["message"]
    assert record["message"].startswith(f"{socket.gethostname()}: ")
    assert not (paths.attempts_dir / "attempt_0" / "command.json").exists()


@pytest.mark.parametrize(
    ("may_drop", "cleared", "noted"),
    [
        ("01", True, []),
        ("0", False, [r"the page cache was not dropped \(\S+: .*data: Is a directory; sudo: --non-inter"]),
    ],
    ids=["every node", "one of two"],
)
def test_the_log_says_that_the_cache_was_dropped_only_if_it_was_everywhere(
    paths: Paths, may_drop: str, cleared: bool, noted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo = paths.data_dir / "sudo"
    sudo.write_text('#!/bin/sh\necho "$1: a password is required" >&2; exit 1\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sudo.parent}{os.pathsep}{os.environ['PATH']}")
    (paths.data_dir.parent / "may_drop").write_text(may_drop)
    assert attempt(paths, "", system=dataclasses.replace(SYSTEM, drop_page_cache=True)) == 0
    assert (paths.data_dir.parent / "drop_caches").read_text() == "3\n"
    (line,) = (line for line in paths.log.read_text().splitlines() if "cache_clear" in line)
    assert json.loads(line.removeprefix(":::MLLOG "))["value"] is cleared
    (record,) = json.loads(paths.record.read_text())["attempts"]
    notes = [note for note in record["notes"] if "page cache" in note]
    assert [bool(re.match(pattern, note)) for pattern, note in zip(noted, notes, strict=True)] == [True] * len(noted)


# --- all runs of a point, one after another ---------------------------------------------------------------------------


def test_a_failed_run_does_not_stop_the_others_and_costs_only_itself_the_next_time(paths: Paths) -> None:
    def places(run: int) -> Paths:
        names = {
            "attempts_dir": f"attempts/run_{run}",
            "log": f"runs/result_{run}.txt",
            "record": f"runs/run_{run}.json",
        }
        here = paths.data_dir.parent
        return dataclasses.replace(paths, **{name: here / place for name, place in names.items()})

    def all_runs(fate: str, *, num_runs: int = 3, **changes: object) -> int:
        (paths.train_script.parent / "fate").write_text(fate)
        runs = [(spec_of_run(make_spec(**changes), run=run), places(run)) for run in range(num_runs)]
        return run_trainings(runs, SYSTEM)

    def tried() -> list[list[str]]:
        every = (read_attempts(places(run).attempts_dir) for run in range(4))
        return [[record["status"] for record in records] for records in every if records]

    (paths.train_script.parent / "fails").write_text("1")
    assert all_runs("") == 1
    assert tried() == [["completed"], ["failed"], ["completed"]]
    for run in range(3):  # as Snakemake does, since one output is missing
        for path in (places(run).log, places(run).record):
            path.unlink(missing_ok=True)
    (paths.train_script.parent / "fails").unlink()
    assert all_runs("", num_runs=4) == 0
    assert tried() == [["completed"], ["failed", "completed"], ["completed"], ["completed"]]
    seeds = [json.loads(places(run).record.read_text())["spec"]["seed"] for run in range(4)]
    assert len(set(seeds)) == 4
    assert all_runs("", target="other") == 0
    assert [len(statuses) for statuses in tried()] == [2, 3, 2, 1], "another spec is another training"


# --- a process of its own, as Snakemake starts it ---------------------------------------------------------------------

DRIVER = """
import sys
sys.path[:0] = [{scripts!r}, {tests!r}]
from pathlib import Path
from test_attempts import SYSTEM, Paths, make_spec, run_training
here = Path({here!r})
sys.exit(run_training(make_spec(), SYSTEM, Paths(
    attempts_dir=here / "attempts" / "run_3", log=here / "runs" / "result_3.txt", record=here / "runs" / "run_3.json",
    train_script=here / "stand_in.py", data_dir=here / "data")))
"""


def start(paths: Paths, fate: str) -> subprocess.Popen[str]:
    here = paths.train_script.parent
    (here / "fate").write_text(fate)
    code = DRIVER.format(scripts=str(SCRIPTS), tests=str(Path(__file__).parent), here=str(here))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_output(paths: Paths, number: int = 0) -> None:
    output = paths.attempts_dir / f"attempt_{number}" / "ranks.log"
    deadline = time.monotonic() + 30
    while not (output.exists() and b"hello from 1" in output.read_bytes()):
        assert time.monotonic() < deadline, "ranks did not start"
        time.sleep(0.05)


def ranks_alive(paths: Paths) -> list[int]:
    """Processes that still run the stand-in of this test."""
    alive = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rsplit(") ", 1)[1][0]
            except OSError:
                continue
            if str(paths.train_script).encode() in command and state != "Z":
                alive.append(int(entry.name))
    return alive


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_ranks_and_is_recorded(paths: Paths, number: signal.Signals) -> None:
    process = start(paths, "hang")
    wait_for_output(paths)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"interrupted): by {number.name}" in errors
    assert read_attempts(paths.attempts_dir)[0]["failure_class"] == "interrupted"
    assert ranks_alive(paths) == []


def test_killed_driver_leaves_no_ranks_and_the_next_attempt_closes_it(paths: Paths) -> None:
    process = start(paths, "hang")
    wait_for_output(paths)
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 20
    while ranks_alive(paths) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ranks_alive(paths) == []
    assert attempt(paths, "") == 0
    first, second = read_attempts(paths.attempts_dir)
    assert (first["status"], first["failure_class"]) == ("failed", "interrupted")
    assert second["status"] == "completed"


def test_a_second_process_waits_for_the_first_and_publishes_its_result(paths: Paths) -> None:
    """As after SIGKILL of snakemake: the training it left behind goes on, and is neither doubled nor lost."""
    first = start(paths, "wait 3")
    wait_for_output(paths)
    second = start(paths, "wait 3")
    outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert "waiting for it" in outputs[1][1]
    assert len(read_attempts(paths.attempts_dir)) == 1
    assert paths.log.exists()


def test_a_result_whose_asker_was_killed_is_published_by_the_next(paths: Paths) -> None:
    """Nobody is left to take the result of the first; the second asks later, and need not train again."""
    here = paths.train_script.parent
    (here / "fate").write_text("wait 2")
    code = DRIVER.format(scripts=str(SCRIPTS), tests=str(Path(__file__).parent), here=str(here))
    asker = subprocess.Popen(["bash", "-c", '"$@"; exit $?', "bash", sys.executable, "-c", code])
    wait_for_output(paths)
    asker.kill()
    asker.wait()
    deadline = time.monotonic() + 30
    while read_attempts(paths.attempts_dir)[0]["status"] == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert read_attempts(paths.attempts_dir)[0]["unclaimed"]
    for path in (paths.log, paths.record):  # as Snakemake removes what an incomplete job left
        path.unlink(missing_ok=True)
    assert attempt(paths, "") == 0
    (only,) = read_attempts(paths.attempts_dir)
    assert not only["unclaimed"]
    os.remove(paths.log)
    assert attempt(paths, "") == 0
    assert len(read_attempts(paths.attempts_dir)) == 2


def test_deleting_the_log_trains_again(paths: Paths) -> None:
    assert attempt(paths, "") == 0
    os.remove(paths.log)
    assert attempt(paths, "") == 0
    assert len(read_attempts(paths.attempts_dir)) == 2
