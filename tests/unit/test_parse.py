"""The reader never raises, says what it skipped and where, and the summary holds what the log says."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from mllog_samples import MARKER, START_MS, damages, edited, header, line, log_bytes, log_lines, with_key
from mlscaling.mlperf import reader
from mlscaling.mlperf.parse import Event, Notes, read_events, summarize
from mlscaling.mlperf.summary import Evaluation, RunSummary
from published_tree import sampled

CLEAN = log_bytes(log_lines())
NAN = math.nan


def written(folder: Path, content: bytes) -> Path:
    path = folder / "result_0.txt"
    path.write_bytes(content)
    return path


def events_of(folder: Path, content: bytes) -> tuple[list[Event], list[tuple[str, int | None]]]:
    notes = Notes()
    events = list(read_events(written(folder, content), notes))
    return events, [(finding.check, finding.line) for finding in notes.findings.result()]


def same(one: Any, other: Any) -> bool:
    """Equality for which NaN equals NaN."""
    return repr(one) == repr(other)


def test_summary_of_a_clean_log(tmp_path: Path) -> None:
    summary = summarize(written(tmp_path, CLEAN))
    assert summary == RunSummary(
        benchmark="resnet",
        organization="someone",
        division="open",
        status_availability="onprem",
        platform="box",
        seeds=(1,),
        global_batch_size=64.0,
        hyperparameters={
            "global_batch_size": 64,
            "local_batch_size": 32,
            "gradient_accumulation_steps": 1,
            "opt_name": "sgd",
            "opt_base_learning_rate": 0.1,
            "train_samples": 1000,
            "eval_samples": 100,
        },
        run_start_ms=START_MS + 30_000,
        run_stop_ms=START_MS + 630_000,
        status="success",
        time_to_train_min=10.0,
        init_min=0.5,
        eval_min=2.5,
        evaluations=tuple(
            Evaluation(epoch, epoch * 1000, value, START_MS + 30_000 + epoch * 120_000)
            for epoch, value in enumerate((0.2, 0.5, 0.7, 0.85, 0.91), start=1)
        ),
        train_samples=1000.0,
        eval_samples=100.0,
        convergence=5.0,
        convergence_unit="epochs",
        samples_to_converge=5000.0,
        throughput_samples_per_s=5000 / 600,
        target=summary.target,
        event_counts=summary.event_counts,
        sha256=hashlib.sha256(CLEAN).hexdigest(),
        size_bytes=len(CLEAN),
    )
    assert math.isnan(summary.target)
    assert sum(summary.event_counts.values()) == CLEAN.count(b"\n")
    assert summary.quality == 0.91


@pytest.mark.parametrize(
    ("content", "values", "findings"),
    [
        (line("a", "one\ntwo"), ["one\ntwo"], []),
        (f"0: {line('a', 1)}", [1], []),
        (f"[1,0]<stdout>:{line('a', 1)}", [1], []),
        (f"x\x1b[1;31m{MARKER.strip()}\x1b[m {line('a', 1)[9:]}\x1b[0m", [1], []),
        (f"{line('a', 1)}\r", [1], []),
        (line("a", 1) + line("a", 2), [1, 2], []),
        (f"{line('a', 1)} 3: {line('a', 2)}", [1, 2], []),
        (line("a", 1)[:30] + line("a", 2), [2], [("malformed_event", 2)]),
        (line("a", 1) + " and more", [1], [("text_after_event", 2)]),
        (line("a", MARKER + "{"), [MARKER + "{"], []),
        (f"{MARKER}is the marker", [], [("marker_without_event", 2)]),
        (f"{MARKER}[1, 2]", [], [("malformed_event", 2)]),
        (f'{MARKER}{{"value": 1}}', [], [("malformed_event", 2)]),
        (f'{MARKER}{{"key": 3, "value": 1}}', [], [("malformed_event", 2)]),
        (f'{MARKER}{{"key": "a", "value": {"9" * 9999}}}', [], [("malformed_event", 2)]),
        (MARKER + '{"key": ' + "[" * 60_000, [], [("malformed_event", 2)]),
        ('"global_batch_size": 4096 is text that mentions a key', [], []),
        (line("a", NAN), [NAN], []),
        (line("a", -math.inf), [-math.inf], []),
        (edited(line("a", 1), time_ms="1e3"), [1], []),
        (edited(line("a", 1), time_ms=None), [1], [("event_without_time", 2)]),
        (edited(line("a", 1), time_ms=10**400), [1], [("event_without_time", 2)]),
        (edited(line("a", 1), metadata=None), [1], [("event_without_metadata", 2)]),
        (MARKER.strip() + line("a", 1)[9:], [1], []),
    ],
)
def test_reader_takes_events_from_whatever_surrounds_them(
    content: str, values: list[Any], findings: list[Any], tmp_path: Path
) -> None:
    events, found = events_of(tmp_path, f"first line\n{content}\n{line('b', 'end')}\n".encode())
    assert same([event.value for event in events], [*values, "end"])
    assert found == findings
    assert events[-1].line == 3
    assert {event.line for event in events[:-1]} <= {2}


@pytest.mark.parametrize(
    ("encoded", "value"),
    [(b"Gr\xc3\xb6\xc3\x9fe", "Größe"), (b"Gr\xf6\xdfe", "Größe"), (b"\xff\xfe\x80", "ÿþ\x80")],
)
def test_reader_decodes_utf_8_and_else_latin_1(encoded: bytes, value: str, tmp_path: Path) -> None:
    content = line("a", "WORD").encode().replace(b"WORD", encoded) + b" tail\n" + line("b").encode()
    events, found = events_of(tmp_path, content)
    assert [event.value for event in events] == [value, None]
    assert found == [("text_after_event", 1)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_reader_reads_utf_16_and_says_so(encoding: str, tmp_path: Path) -> None:
    events, found = events_of(tmp_path, CLEAN.decode().encode(encoding))
    assert len(events) == CLEAN.count(b"\n")
    assert found == [("encoding", 1)]


@pytest.mark.parametrize("block", [300, 301, 1000, 4096])
def test_block_borders_do_not_matter(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = events_of(tmp_path, CLEAN)
    monkeypatch.setattr(reader, "_BLOCK_BYTES", block)
    assert events_of(tmp_path, CLEAN) == whole


def test_endless_line_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_BLOCK_BYTES", 1 << 16)
    content = (b"#" * 40_000 + line("a", 1).encode()) * 40
    events, _ = events_of(tmp_path, content)
    assert [event.value for event in events] == [1] * 40
    assert {event.line for event in events} == {1}


def test_flood_of_broken_events_is_counted_not_listed(tmp_path: Path) -> None:
    events, found = events_of(tmp_path, f"{MARKER}{{broken\n".encode() * 5000)
    assert (events, len(found)) == ([], 21)


def test_no_byte_sequence_raises(tmp_path: Path) -> None:
    choose = random.Random(7)
    for damage in damages():
        content = bytearray(damage.content)
        for _ in range(8):
            if content:
                content[choose.randrange(len(content))] = choose.randrange(256)
        summary = summarize(written(tmp_path, bytes(content)))
        json.dumps(summary.to_dict(), allow_nan=False)
        assert summary.size_bytes == len(content)


@pytest.mark.parametrize("length", range(0, len(CLEAN), 331))
def test_cut_at_any_place(length: int, tmp_path: Path) -> None:
    summary = summarize(written(tmp_path, CLEAN[:length]))
    assert summary.status == "missing"
    assert math.isnan(summary.time_to_train_min)
    assert {finding.check for finding in summary.findings} <= {"cut_line", "marker_without_event"}


def test_summary_survives_json(tmp_path: Path) -> None:
    lines = log_lines(qualities=(0.1, NAN, 0.95))
    lines.insert(0, line("opt_epsilon", NAN))
    summary = summarize(written(tmp_path, log_bytes([*header(), *lines])))
    text = json.dumps(summary.to_dict(), allow_nan=False)
    assert same(RunSummary.from_dict(json.loads(text)), summary)
    assert summary.findings


def test_summary_with_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown fields \['colour'\]; known: \['benchmark'"):
        RunSummary.from_dict({"colour": "red"})


def evaluation_lines(benchmark: str, rows: list[dict[str, Any]], **values: Any) -> bytes:
    evaluations = [
        line(row.pop("key", "eval_accuracy"), row.pop("value", 0.5), time_ms=START_MS + 60_000 * (n + 1), **row)
        for n, row in enumerate([dict(row) for row in rows])
    ]
    return log_bytes(
        [
            *header(benchmark=benchmark),
            line("run_start", time_ms=START_MS, kind="INTERVAL_START"),
            *evaluations,
            *(line(key, value) for key, value in values.items()),
            line("run_stop", time_ms=START_MS + 600_000, kind="INTERVAL_END", status="success"),
        ]
    )


@pytest.mark.parametrize(
    ("benchmark", "rows", "values", "convergence", "unit"),
    [
        ("resnet", [{"epoch_num": 3}, {"epoch_num": 7}], {"train_samples": 10}, 7, "epochs"),
        ("resnet", [{"epoch_num": 7, "samples_count": 70}], {"train_samples": 10}, 7, "epochs"),
        ("dlrm", [{"epoch_num": 0.94999999}], {}, 0.95, "epochs"),
        ("llama2_70b_lora", [{"samples_count": 1536, "key": "eval_error"}], {}, 1536, "samples"),
        ("bert", [{"epoch_num": 1}, {"epoch_num": 1}], {"train_samples": 2_850_176}, 2_850_176, "samples"),
        ("bert", [{"epoch_num": 2_400_000}], {"train_samples": 1_751_040}, 2_400_000, "samples"),
        ("bert", [{"epoch_num": 512, "samples_count": 512}], {"train_samples": 4000}, 512, "samples"),
        ("bert", [{"epoch_num": 3}], {}, 3, "epochs"),
        (
            "stable_diffusion",
            [
                {"samples_count": 512, "metric": "FID", "value": 95},
                {"samples_count": 1024, "metric": "FID", "value": 89},
                {"samples_count": 2048, "metric": "FID", "value": 80},
                {"samples_count": 1024, "metric": "CLIP", "value": 0.14},
                {"samples_count": 2048, "metric": "CLIP", "value": 0.16},
            ],
            {},
            2048,
            "samples",
        ),
    ],
)
def test_convergence_is_what_the_rcp_checker_takes(
    benchmark: str, rows: list[dict[str, Any]], values: dict[str, Any], convergence: float, unit: str, tmp_path: Path
) -> None:
    summary = summarize(written(tmp_path, evaluation_lines(benchmark, rows, **values)))
    assert (summary.convergence, summary.convergence_unit) == (convergence, unit)
    samples = convergence * summary.train_samples if unit == "epochs" else convergence
    found = (summary.samples_to_converge, summary.throughput_samples_per_s)
    assert found == pytest.approx((samples, samples / 600), nan_ok=True)
    assert summary.converged


def test_two_metrics_in_one_event_are_two_evaluations(tmp_path: Path) -> None:
    rows = [
        {"epoch_num": 1, "value": {"BBOX": 0.37, "SEGM": 0.3}},
        {"epoch_num": 2, "value": {"BBOX": 0.38, "SEGM": 0.34}},
    ]
    summary = summarize(written(tmp_path, evaluation_lines("maskrcnn", rows)))
    assert summary.final_quality == {"BBOX": 0.38, "SEGM": 0.34}
    assert len(summary.evaluations) == 4


def test_aborted_run_has_no_convergence_but_a_throughput(tmp_path: Path) -> None:
    summary = summarize(written(tmp_path, log_bytes(log_lines(status="aborted"))))
    assert (summary.status, summary.converged, summary.time_to_train_min) == ("aborted", False, 10.0)
    assert math.isnan(summary.convergence)
    assert summary.throughput_samples_per_s == pytest.approx(5000 / 600)


def test_events_of_several_ranks_count_once(tmp_path: Path) -> None:
    clean = summarize(written(tmp_path, CLEAN))
    several = [
        edited(text, time_ms=json.loads(text[9:])["time_ms"] + rank) for text in log_lines() for rank in range(8)
    ]
    summary = summarize(written(tmp_path, log_bytes(several)))
    for name in ("time_to_train_min", "evaluations", "convergence", "seeds", "hyperparameters", "eval_min", "init_min"):
        assert getattr(summary, name) == getattr(clean, name), name
    repeated = {finding.check: finding.severity for finding in summary.findings}
    assert repeated == {
        "header_repeated": "warning",
        "setting_repeated": "note",
        "init_stop_repeated": "note",
        "run_start_repeated": "note",
        "evaluation_repeated": "note",
        "run_stop_repeated": "note",
    }


def test_series_is_no_setting(tmp_path: Path) -> None:
    lines = [
        line("current_lr", 0.1),
        line("current_lr", 0.2),
        line("current_lr", 0.1),
        line("opt_x", 3),
        line("opt_x", 3),
        line("opt_falls", [40, 50]),
        line("opt_falls", [40, 50]),
    ]
    summary = summarize(written(tmp_path, log_bytes(lines)))
    assert summary.hyperparameters == {"opt_x": 3, "opt_falls": "[40, 50]"}


def test_findings_name_the_physical_line(tmp_path: Path) -> None:
    lines = ["noise", "", *with_key(log_lines(), "eval_samples", lambda text: [text[:60]])]
    summary = summarize(written(tmp_path, log_bytes(lines)))
    broken = next(number for number, text in enumerate(lines, start=1) if len(text) == 60)
    assert [(finding.check, finding.line) for finding in summary.findings] == [("malformed_event", broken)]


def test_published_logs_agree_with_an_independent_parser(shared_data: Path) -> None:
    root = shared_data / "training_results_v1.1" / "Dell" / "results"
    with (shared_data / "dell_v1.1_runs.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 440
    for row in sampled(rows, every=4):
        log = root / row["system"] / row["benchmark"] / row["file"]
        summary = summarize(log)
        number = {key: float(value) if value else NAN for key, value in row.items() if key in _COMPARED}
        found = {
            "ttt_min": summary.time_to_train_min,
            "run_start_ms": summary.run_start_ms,
            "run_stop_ms": summary.run_stop_ms,
            "epochs_last_eval": summary.evaluations[-1].epoch_num,
            "global_batch_size": summary.global_batch_size,
            "train_samples_last": summary.train_samples,
            "eval_samples": summary.eval_samples,
        }
        assert found == pytest.approx(number, abs=1e-3, nan_ok=True), log
        assert ";".join(map(str, summary.seeds)) == row["seeds"], log
        assert (summary.status, summary.benchmark, summary.division) == (row["status"], row["benchmark"], "closed"), log
        assert summary.platform == row["submission_platform"], log
        assert not [finding for finding in summary.findings if finding.severity == "error"], log


_COMPARED = (
    "ttt_min",
    "run_start_ms",
    "run_stop_ms",
    "epochs_last_eval",
    "global_batch_size",
    "train_samples_last",
    "eval_samples",
)


def test_header_of_eight_nodes(shared_data: Path) -> None:
    folder = shared_data / "training_results_v1.1" / "Dell" / "results" / "8xR750xax4A100-PCIE-80GB" / "resnet"
    summary = summarize(folder / "result_0.txt")
    assert summary.event_counts["submission_org"] == 8
    assert {(f.check, f.severity) for f in summary.findings} == {("header_repeated", "warning")}
    assert summary.benchmark == "resnet"
