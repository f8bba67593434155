"""The official checkers answer, and nothing else that they do reaches the caller."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from mllog_samples import header, log_bytes, log_lines
from mlscaling.mlperf import official, rounds


def results(
    folder: Path, *, seeds: tuple[int | None, ...] = (1, 2, 3, 4, 5), epochs: int = 5, batch: int = 64
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    logs = []
    for run, seed in enumerate(seeds):
        log = folder / f"result_{run}.txt"
        log.write_bytes(
            log_bytes(log_lines(seed=seed, qualities=[0.5] * (epochs - 1) + [0.91], global_batch_size=batch))
        )
        logs.append(log)
    return logs


def ask(logs: list[Path], **values: Any) -> official.OfficialVerdict:
    arguments: dict[str, Any] = {"ruleset": "1.1.0", "benchmark": "resnet", "required_runs": 5, **values}
    (answer,) = official.rcp([official.RcpQuestion(logs=logs, **arguments)])
    return answer


def state(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_compliance_is_fresh_for_each_log(tmp_path: Path) -> None:
    clean, *_ = results(tmp_path)
    broken = tmp_path / "broken.txt"
    # An unknown benchmark makes the checker raise with rules queued; the next log must not be checked with them.
    broken.write_bytes(log_bytes([*header(benchmark="resnet50"), *log_lines()[5:]]))
    answers = official.compliance([clean, broken, clean, clean], ruleset="1.1.0")
    assert [answer.passed for answer in answers] == [True, None, True, True]
    assert answers[1].messages[0].startswith("crashed: ")
    assert {(answer.tool, answer.version, answer.ruleset) for answer in answers} == {
        ("mlperf_logging compliance_checker", rounds.tool_version(), "1.1.0")
    }


def test_nothing_is_written_into_the_tree_or_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    logs = results(tmp_path / "tree", epochs=35, batch=3264)
    before = state(tmp_path)
    assert official.compliance(logs, ruleset="1.1.0")[0].passed
    answer = ask(logs)
    assert (answer.passed, answer.messages) == (True, ("RCP found", "normalisation factor 1.0043956043956044"))
    assert official.seeds(logs, ruleset="1.1.0").passed
    assert state(tmp_path) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("records", "passed"), [("pruned", True), ("full", False)])
def test_rcp_with_both_sets_of_records(records: official.Records, passed: bool, tmp_path: Path) -> None:
    logs = results(tmp_path, epochs=35, batch=4080)
    answer = ask(logs, records=records)
    assert (answer.passed, answer.messages[0]) == (passed, "RCP Interpolation")


def test_rcp_with_records_of_our_own(tmp_path: Path) -> None:
    record = {"Benchmark": "resnet", "BS": 64, "Hyperparams": {}, "Epochs to converge": [5, 6] * 5}
    rcps = tmp_path / "rcps.json"
    rcps.write_text(json.dumps({"resnet_ref_64": record}))
    for epochs, passed in ((6, True), (4, False)):
        logs = results(tmp_path / f"{epochs}", epochs=epochs)
        answer = ask(logs, rcps=rcps)
        assert (answer.passed, answer.messages[0]) == (passed, "RCP found")


@pytest.mark.parametrize(
    ("logs", "message"), [(0, "crashed: KeyError"), (5, "crashed: FileNotFoundError")], ids=["no logs", "no records"]
)
def test_crash_is_an_answer_without_a_verdict(logs: int, message: str, tmp_path: Path) -> None:
    files = results(tmp_path)[:logs]
    if logs:
        for file in files:
            file.write_bytes(file.read_bytes().replace(b'"resnet"', b'"minigo"'))
    answer = ask(files, benchmark="minigo", required_runs=10)
    assert answer.passed is None
    assert answer.messages[0].startswith(message)


@pytest.mark.parametrize(
    ("seeds", "passed", "message"),
    [
        ((1, 2, 3), True, ""),
        ((1, 2, 1), False, "Result file result_2.txt logs seed 1 on train.py:7. However, result file result_0.txt"),
        ((1, None), False, "Result file result_1.txt logs no seed."),
    ],
)
def test_seeds(seeds: tuple[int | None, ...], passed: bool, message: str, tmp_path: Path) -> None:
    answer = official.seeds(results(tmp_path, seeds=seeds), ruleset="1.1.0")
    assert answer.passed == passed
    assert message in " ".join(answer.messages)


def test_system_description(tmp_path: Path, shared_data: Path) -> None:
    source = shared_data / "training_results_v1.1" / "Dell" / "systems" / "8xR750xax4A100-PCIE-80GB.json"
    assert official.system_description(source, ruleset="1.1.0").passed is True
    values = json.loads(source.read_text())
    del values["framework"]
    damaged = tmp_path / "system.json"
    damaged.write_text(json.dumps(values))
    answer = official.system_description(damaged, ruleset="1.1.0")
    assert answer.passed is False
    assert "framework" in " ".join(answer.messages)


def test_no_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "TIMEOUT_S", 0.01)
    answers = official.compliance(results(tmp_path)[:2], ruleset="1.1.0")
    assert [(answer.passed, answer.messages) for answer in answers] == [(None, ("no answer within 0.01 s",))] * 2


def test_a_driver_that_dies_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "_DRIVER", tmp_path / "absent.py")
    answer = official.compliance(results(tmp_path)[:1], ruleset="1.1.0")[0]
    assert answer.passed is None
    assert "ended with status 2" in answer.messages[0]
