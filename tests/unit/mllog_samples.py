"""Small MLPerf logs of our own, and the ways in which logs come out damaged (tests only)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

START_MS = 1_700_000_000_000
MARKER = ":::MLLOG "


def line(
    key: str, value: Any = None, *, time_ms: float = START_MS, kind: str = "POINT_IN_TIME", **metadata: Any
) -> str:
    """One event as mlperf_logging writes it."""
    event = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }
    return MARKER + json.dumps(event)


def header(*, benchmark: str = "resnet", division: str = "open", platform: str = "box") -> list[str]:
    """The submission header."""
    values = {
        "submission_benchmark": benchmark,
        "submission_org": "someone",
        "submission_division": division,
        "submission_status": "onprem",
        "submission_platform": platform,
    }
    return [line(key, value) for key, value in values.items()]


def settings(*, seed: int | None = 1, global_batch_size: Any = 64, local_batch_size: int = 32) -> list[str]:
    """What is logged once."""
    values = {
        "global_batch_size": global_batch_size,
        "local_batch_size": local_batch_size,
        "gradient_accumulation_steps": 1,
        "opt_name": "sgd",
        "opt_base_learning_rate": 0.1,
        "train_samples": 1000,
        "eval_samples": 100,
        **({} if seed is None else {"seed": seed}),
    }
    return [line(key, value) for key, value in values.items()]


def training(qualities: Sequence[float], *, minutes: float, status: str = "success") -> list[str]:
    """From `run_start` to `run_stop`: one epoch and one evaluation for each quality, evenly over the time."""
    step = minutes * 60_000 / len(qualities)
    lines = [line("run_start", kind="INTERVAL_START", time_ms=START_MS + 30_000)]
    for epoch, quality in enumerate(qualities, start=1):
        begin, end = (START_MS + 30_000 + step * (epoch - share) for share in (1, 0))
        lines += [
            line("epoch_start", kind="INTERVAL_START", time_ms=begin, epoch_num=epoch),
            line("epoch_stop", kind="INTERVAL_END", time_ms=end - step / 4, epoch_num=epoch),
            line("eval_start", kind="INTERVAL_START", time_ms=end - step / 4, epoch_num=epoch),
            line("eval_accuracy", quality, time_ms=end, epoch_num=epoch, samples_count=epoch * 1000),
            line("eval_stop", kind="INTERVAL_END", time_ms=end, epoch_num=epoch),
        ]
    stop = START_MS + 30_000 + minutes * 60_000
    return [*lines, line("run_stop", kind="INTERVAL_END", time_ms=stop, status=status)]


def log_lines(
    *,
    qualities: Sequence[float] = (0.2, 0.5, 0.7, 0.85, 0.91),
    minutes: float = 10,
    status: str = "success",
    seed: int | None = 1,
    global_batch_size: Any = 64,
    benchmark: str = "resnet",
    division: str = "open",
) -> list[str]:
    """A whole log: header, settings, initialisation, training."""
    return [
        *header(benchmark=benchmark, division=division),
        line("cache_clear", True),
        line("init_start", kind="INTERVAL_START"),
        *settings(seed=seed, global_batch_size=global_batch_size),
        line("init_stop", kind="INTERVAL_END", time_ms=START_MS + 29_000),
        *training(qualities, minutes=minutes, status=status),
    ]


def log_bytes(lines: Sequence[str]) -> bytes:
    """Lines as a file."""
    return "".join(f"{text}\n" for text in lines).encode()


def with_key(lines: Sequence[str], key: str, change: Callable[[str], list[str]]) -> list[str]:
    """Each line of a key replaced by what `change` makes of it."""
    wanted = f'"key": "{key}"'
    return [text for original in lines for text in (change(original) if wanted in original else [original])]


def edited(text: str, **changes: Any) -> str:
    """An event with some fields changed; `metadata` is merged, None as `metadata` removes it."""
    event = json.loads(text.removeprefix(MARKER))
    metadata = changes.pop("metadata", {})
    event |= changes
    if metadata is None:
        del event["metadata"]
    else:
        event["metadata"] |= metadata
    return MARKER + json.dumps(event)


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """One way in which a log differs from a clean one, and the right verdict on it."""

    name: str
    """Test id."""
    content: bytes
    """The log."""
    passed: bool
    """Our verdict."""
    check: str = ""
    """A finding that must be among ours; empty: no finding at all."""
    official: bool | None = True
    """What the official checker says, also where it is wrong; None where it crashes."""


def _moved_run_stop(lines: list[str]) -> list[str]:
    """`run_stop` before the last evaluation, which alone reaches the target."""
    stop = edited(lines[-1], time_ms=START_MS + 30_000 + 8.5 * 60_000)
    return [*lines[:-6], stop, *lines[-6:-1]]


def _interleaved(lines: list[str]) -> list[str]:
    """Noise between all events, some of which mentions keys."""
    noise = ['the global_batch_size": 4096 is not this', "\x00\x1b[31mred\x1b[0m", "tqdm 10%\r 20%\r", "{"]
    return [text for index, original in enumerate(lines) for text in (noise[index % 4], original)]


def damages() -> list[Damage]:
    """The table of damaged logs; target 0.9 (max), ruleset 1.1.0, two accelerators."""
    clean = log_lines()
    missed = log_lines(qualities=(0.2, 0.5, 0.7, 0.85, 0.89))
    day = 86_400_000

    def ending(*last: str) -> bytes:
        return log_bytes([*clean[:-1], *last])

    def changed(key: str, change: Callable[[str], list[str]], lines: list[str] = clean) -> bytes:
        return log_bytes(with_key(lines, key, change))

    def dropped(key: str) -> bytes:
        return changed(key, lambda text: [])

    stop, last = clean[-1], clean[-3]
    nowhere = [text.replace("epoch_num", "e").replace("samples_count", "s") for text in clean]
    aborted = log_lines(qualities=(0.2, 0.3), status="aborted")
    whole = log_bytes(clean)
    cut = log_bytes([*clean, line("power", 1)])[:-20]
    rows: list[tuple[str, bytes, bool, str, bool | None]] = [
        ("clean", whole, True, "", True),
        ("truncated_half", whole[: len(whole) // 2], False, "event_missing", False),
        ("last_line_cut", cut, True, "cut_line", False),
        ("run_stop_missing", ending(), False, "event_missing", False),
        ("aborted_at_the_target", ending(edited(stop, metadata={"status": "aborted"})), False,
         "status_contradicts_quality", True),
        ("aborted_short_of_it", log_bytes(aborted), True, "not_converged", True),
        ("status_unknown", ending(edited(stop, metadata={"status": "great"})), False, "run_stop_status", True),
        ("seed_missing", dropped("seed"), True, "seed_missing", True),
        ("seed_no_integer", changed("seed", lambda text: [edited(text, value="one")]), False, "seed_not_integer", True),
        ("target_missed", log_bytes(missed), False, "quality_not_reached", True),
        ("quality_nan", log_bytes(log_lines(qualities=(0.5, float("nan")))), False, "quality_not_reached", True),
        ("stop_before_start", ending(edited(stop, time_ms=START_MS - 570_000)), False, "time_backwards", True),
        ("no_time_at_all", ending(edited(stop, time_ms=START_MS + 30_000)), False, "time_backwards", True),
        ("evaluation_a_day_back", log_bytes([*clean[:-3], edited(last, time_ms=START_MS - day), *clean[-2:]]),
         False, "evaluation_before_run_start", True),
        ("evaluations_out_of_order", log_bytes([*clean[:-3], edited(last, time_ms=START_MS + 60_000), *clean[-2:]]),
         False, "evaluation_time_backwards", True),
        ("noise_between", log_bytes(_interleaved(clean)), True, "", True),
        ("prefix_of_srun", log_bytes([f"0: {text}" for text in clean]), True, "", True),
        ("prefix_of_mpirun", log_bytes([f"[1,0]<stdout>:{text}" for text in clean]), True, "", True),
        ("colours", log_bytes([f"\x1b[32m{text}\x1b[0m" for text in clean]), True, "", False),
        ("crlf", whole.replace(b"\n", b"\r\n"), True, "", True),
        ("latin_1", "Größe µ\n".encode("latin-1") + whole, True, "", True),
        ("utf_16", whole.decode().encode("utf-16"), True, "encoding", False),
        ("text_behind_an_event", changed("eval_accuracy", lambda text: [f"{text} done"]), True, "text_after_event",
         False),
        ("two_events_in_a_line", log_bytes(["".join(clean[:2]), *clean[2:]]), True, "", False),
        ("four_ranks", log_bytes([text for text in clean for _ in range(4)]), True, "evaluation_repeated", True),
        ("eight_headers", log_bytes([*header() * 8, *clean[5:]]), True, "header_repeated", True),
        ("headers_contradict", log_bytes([*header(platform="tub"), *clean]), False, "setting_contradicts", False),
        ("second_run_stop_later", ending(stop, edited(stop, time_ms=START_MS + 3_600_000)), False, "run_stop_repeated",
         True),
        ("second_run_stop_aborted", ending(stop, edited(stop, metadata={"status": "aborted"})), False,
         "run_stop_repeated", True),
        ("two_runs_in_one", log_bytes([*clean, *[edited(text, time_ms=json.loads(text[9:])["time_ms"] + day)
                                                  for text in clean]]), False, "run_start_repeated", False),
        ("evaluation_broken", changed("eval_accuracy", lambda text: [text.replace("value", 'va"lue')]), False,
         "malformed_event", False),
        ("batch_broken", changed("global_batch_size", lambda text: [text[:-30]]), False, "malformed_event", False),
        ("run_stop_broken", changed("run_stop", lambda text: [text[:-4]]), False, "malformed_event", False),
        ("batch_wrong", changed("global_batch_size", lambda text: [edited(text, value=32)]), False, "global_batch_size",
         True),
        ("batch_zero", changed("global_batch_size", lambda text: [edited(text, value=0)]), False, "global_batch_size",
         True),
        ("batch_a_word", changed("global_batch_size", lambda text: [edited(text, value="64")]), False, "setting_type",
         True),
        ("batch_missing", dropped("global_batch_size"), False, "global_batch_size_missing", True),
        ("evaluation_nowhere", log_bytes(nowhere), False, "evaluation_without_position", False),
        ("empty", b"", False, "empty", False),
        ("blank", b"\n" * 9, False, "empty", False),
        ("binary", bytes(range(256)) * 64, False, "empty", False),
        ("time_null", changed("run_start", lambda text: [edited(text, time_ms=None)]), False, "time_missing", None),
        ("metadata_missing", changed("eval_samples", lambda text: [edited(text, metadata=None)]), True,
         "event_without_metadata", None),
        ("status_missing", changed("run_stop", lambda text: [edited(text, metadata=None)]), False, "run_stop_status",
         None),
        ("benchmark_unknown", log_bytes(log_lines(benchmark="resnet50")), False, "benchmark", None),
        ("benchmark_missing", dropped("submission_benchmark"), False, "event_missing", False),
        ("division_unknown", log_bytes(log_lines(division="ajar")), False, "division", None),
        ("init_stop_missing", dropped("init_stop"), False, "event_missing", False),
        ("target_after_run_stop", log_bytes(_moved_run_stop(clean)), False, "quality_not_reached", True),
        ("evaluation_after_run_stop", log_bytes([*clean, edited(last, time_ms=START_MS + day)]), False,
         "evaluation_after_run_stop", True),
    ]  # fmt: skip
    fields = ("name", "content", "passed", "check", "official")
    return [Damage(**dict(zip(fields, row, strict=True))) for row in rows]  # type: ignore[arg-type]
