"""Killing a study in the middle and running it again: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from checkout import Checkout, copy_of_repository

pytestmark = [pytest.mark.workflow, pytest.mark.training]
STUDY = """\
study: trained
title: an interrupted study
round: "1.1.0"
scale: tiny
curves:
  - {workload: resnet, system: emulated_cpu, nodes: [2], weak: {local_batch_size: 64}, runs: 2}
plots: [spread]
"""
TABLE = "results/trained/tables/runs.csv"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    copy = copy_of_repository(tmp_path / "interrupted")
    (copy.path / "study.yaml").write_text(STUDY)
    workload = copy.path / "config/workloads/resnet.yaml"
    text = workload.read_text()
    assert "target: 0.97 " in text
    workload.write_text(text.replace("target: 0.97 ", "target: 0.5 "))  # a training of an epoch or two
    return copy


def start(checkout: Checkout) -> subprocess.Popen[str]:
    """Snakemake as a shell starts it: in its own process group, with SIGINT not ignored."""
    return subprocess.Popen(
        ["env", "--default-signal=INT", *checkout.command(TABLE, "--nolock")],
        cwd=checkout.path,
        env=checkout.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def attempts(checkout: Checkout, run: int) -> list[dict]:
    folder = checkout.results("attempts/emulated_cpu/resnet/n2", f"run_{run}")
    return [json.loads(path.read_text()) for path in sorted(folder.glob("attempt_*/attempt.json"))]


def wait_until_trains(checkout: Checkout, *, besides: Sequence[Path] = ()) -> Path:
    """Folder of an attempt, another than these, in which rank 0 has logged `run_start`."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for log in checkout.results("attempts").rglob("mlperf.log"):
            if log.parent not in besides and "run_start" in log.read_text():
                return log.parent
        time.sleep(0.1)
    raise AssertionError("no training started")


def rank_processes(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            mine = any(str(folder / "spec.json").encode() in word for word in command)
            if mine and b"rank" in command and b"emulate" not in command:
                found.append(int(entry.name))
    return sorted(found)


def completes(checkout: Checkout, *, failed: dict[int, list[str]]) -> None:
    checkout.snakemake(TABLE, "--nolock")
    rows = checkout.results("tables/runs.csv").read_text().splitlines()
    assert len(rows) == 3
    for run in (0, 1):
        assert checkout.results(f"runs/emulated_cpu/resnet/n2/result_{run}.txt").exists()
        tried = attempts(checkout, run)
        assert [a["failure_class"] for a in tried[:-1]] == failed.get(run, []), tried
        assert tried[-1]["status"] == "completed"
    again = checkout.snakemake(TABLE, "--nolock")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_sigint_then_sigkill_of_snakemake(checkout: Checkout) -> None:
    """SIGINT ends the training with it. After SIGKILL it goes on; the next snakemake waits and publishes its result."""
    process = start(checkout)
    folder = wait_until_trains(checkout)
    run = int(folder.parent.name.removeprefix("run_"))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert rank_processes(folder) == []
    assert [a["failure_class"] for a in attempts(checkout, run)] == ["interrupted"]

    process = start(checkout)
    wait_until_trains(checkout, besides=[folder])
    process.kill()
    process.communicate(timeout=60)
    completes(checkout, failed={run: ["interrupted"]})


def test_sigkill_of_a_rank(checkout: Checkout) -> None:
    """The failed run can be accepted, and is counted as missing; without that the next snakemake trains it again."""
    process = start(checkout)
    folder = wait_until_trains(checkout)
    run = int(folder.parent.name.removeprefix("run_"))
    os.kill(rank_processes(folder)[-1], signal.SIGKILL)
    output, _ = process.communicate(timeout=180)
    assert process.returncode != 0
    assert "SIGKILL" in output
    assert not checkout.results(f"runs/emulated_cpu/resnet/n2/result_{run}.txt").exists()
    assert checkout.results(f"runs/emulated_cpu/resnet/n2/result_{1 - run}.txt").exists(), "the other run goes on"

    (checkout.path / "study.yaml").write_text(STUDY + "accept_missing_runs: true\n")
    checkout.snakemake()
    rows = checkout.results("tables/runs.csv").read_text().splitlines()
    (failed,) = [row for row in rows if ",failed," in row]
    assert f",{run},failed,unknown,1," in failed
    assert checkout.results("report.html").exists()

    (checkout.path / "study.yaml").write_text(STUDY)
    completes(checkout, failed={run: ["unknown"]})
