"""Our MLLOG files: one event a line, written at once, and nothing from ranks that do not log."""

from __future__ import annotations

from pathlib import Path

import tiny_runs
from mlscaling.mlperf.log import RunLog


def test_every_event_is_in_the_file_when_the_call_returns(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.txt")
    calls = [
        (lambda: log.start("run_start"), "run_start", "INTERVAL_START", None, {}),
        (lambda: log.event("eval_accuracy", 0.5, epoch_num=3), "eval_accuracy", "POINT_IN_TIME", 0.5, {"epoch_num": 3}),
        (lambda: log.events({"seed": 7}), "seed", "POINT_IN_TIME", 7, {}),
        (lambda: log.stop("run_stop", None, status="success"), "run_stop", "INTERVAL_END", None, {"status": "success"}),
    ]
    for number, (call, key, kind, value, metadata) in enumerate(calls, start=1):
        call()
        found = tiny_runs.events(tmp_path / "log.txt")
        assert len(found) == number
        event = found[-1]
        place = {name: event["metadata"].pop(name) for name in ("file", "lineno")}
        assert (event["key"], event["event_type"], event["value"], event["metadata"]) == (key, kind, value, metadata)
        assert Path(place["file"]).name == "test_log.py", "the call site is the caller's, not the logger's"
    log.close()


def test_call_sites_in_the_library_name_no_folder_of_the_user(tmp_path: Path, monkeypatch) -> None:
    log = RunLog(tmp_path / "log.txt")
    source = str(tiny_runs.SCRIPTS / "mlscaling" / "trainer.py")
    exec(compile("log.event('seed', 1)", source, "exec"), {"log": log})
    assert tiny_runs.events(tmp_path / "log.txt")[0]["metadata"]["file"] == "mlscaling/trainer.py"
    log.close()


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    log = RunLog(None)
    log.start("run_start")
    log.events({"seed": 7})
    log.stop("run_stop", None, status="success")
    log.close()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_two_logs_do_not_mix_and_a_closed_log_stays_as_it_is(tmp_path: Path, capfd) -> None:
    first, second = RunLog(tmp_path / "1.txt"), RunLog(tmp_path / "2.txt")
    first.event("seed", 1)
    second.event("seed", 2)
    first.close()
    first.event("seed", 3)
    second.close()
    values = [[event["value"] for event in tiny_runs.events(tmp_path / name)] for name in ("1.txt", "2.txt")]
    assert values == [[1], [2]]
    assert capfd.readouterr() == ("", "")
