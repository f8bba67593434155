"""Limits of an attempt: what counts is the MLPerf log, whatever the ranks print."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from mlscaling.supervision import supervise
from mlscaling.systems import System

PRELUDE = """
import sys, time
log = open(sys.argv[1], "w")
def event(key, end="\\n"):
    log.write(':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "X", "key": "%s", "value": null}%s' % (key, end))
    log.flush()
def chatter(key=""):
    while True:
        print("still here", flush=True)
        key and event(key)
        time.sleep(0.05)
"""
START, STOP = "event('run_start');", "event('run_stop');"


def supervised(tmp_path: Path, code: str, *, started: float | None = None, **limits_s: float) -> tuple[int, str]:
    limits = {"startup": 60.0, "time": 60.0, "silence": 60.0, **limits_s}
    system = System(
        name="unit", title="unit", max_nodes=1, accelerators_per_node=1, cpus_per_accelerator=1, device="cpu",
        accelerator="CPU core", launcher="local", **{f"{name}_limit_min": s / 60 for name, s in limits.items()},
    )  # fmt: skip
    command = [sys.executable, "-c", PRELUDE + code, str(tmp_path / "mlperf.log")]
    files = {"output": tmp_path / "ranks.log", "progress": tmp_path / "mlperf.log"}
    return supervise(command, **files, system=system, started=started)


@pytest.mark.parametrize(
    ("code", "limits_s", "message"),
    [
        ("chatter('init_start')", {"startup": 0.8, "silence": 0.1}, "no run_start within .*startup_limit_min"),
        (f"{START} chatter()", {"silence": 0.8}, "no MLLOG event for .*silence_limit_min.* was run_start"),
        (f"{START} event('x', end=''); chatter()", {"silence": 0.8}, "no MLLOG event .*the last one was run_start"),
        (f"{START} {STOP} chatter()", {"silence": 0.8, "time": 0.4}, "no MLLOG event .*the last one was run_stop"),
        (f"{START} chatter('epoch_stop')", {"time": 0.8}, "longer than .*time_limit_min.* since run_start"),
    ],
    ids=["start-up", "silence", "half an event", "after run_stop", "timed region"],
)
def test_each_limit_ends_it_and_is_named(tmp_path: Path, code: str, limits_s: dict[str, float], message: str) -> None:
    status, ended_by = supervised(tmp_path, code, **limits_s)
    assert status < 0
    assert re.match(f"timeout: {message}", ended_by), ended_by


def test_the_timed_region_begins_with_run_start_and_silence_does_not_count_before(tmp_path: Path) -> None:
    code = f"time.sleep(1.5); {START} time.sleep(0.1); {STOP} sys.exit(3)"
    assert supervised(tmp_path, code, time=1.2, silence=1.2) == (3, "")


def test_what_came_before_the_command_belongs_to_the_start_up(tmp_path: Path) -> None:
    _, ended_by = supervised(tmp_path, "chatter()", started=time.monotonic() - 100)
    assert "startup_limit_min" in ended_by
