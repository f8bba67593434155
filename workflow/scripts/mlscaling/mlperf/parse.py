"""One pass over an MLPerf log: from its events to the summary of the run.

Several ranks may print the same event; the first counts. Facts about published logs that shape this module: eight
nodes print the submission header eight times; minigo logs evaluations with times after `run_stop`; BERT logs
`epoch_num` 1 throughout and its samples in `train_samples`, or in `epoch_num`, depending on the submitter.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlscaling.mlperf.convergence import with_convergence
from mlscaling.mlperf.reader import Event, Notes, number, read_events
from mlscaling.mlperf.summary import NAN, Evaluation, RunSummary, Setting, Status

__all__ = ["Event", "Notes", "read_events", "summarize"]

SAME_EVENT_MS: Final = 2000.0
"""Ranks that print one event print it within this span: clocks of a cluster agree to milliseconds, buffers do not."""
_NOT_SETTINGS = frozenset(
    {"seed", "throughput", "cache_clear", "eval_accuracy", "eval_error", "weights_initialization"}
)
_HEADER = {
    "submission_benchmark": "benchmark",
    "submission_org": "organization",
    "submission_division": "division",
    "submission_status": "status_availability",
    "submission_platform": "platform",
}
_STATUSES: Mapping[Any, Status] = {"success": "success", "aborted": "aborted"}
_TARGETS = ("target_quality", "target_accuracy", "quality_target", "target")


def summarize(path: Path) -> RunSummary:
    """Read a log once and summarise its run.

    Raises:
        OSError: where the file cannot be read. No content raises.
    """
    notes = Notes()
    collector = _Collector(notes)
    for event in read_events(path, notes):
        collector.add(event)
    return collector.result()


class _Collector:
    """The state of one pass; `add` is called for each event, `result` once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._findings = notes.findings
        self._counts: Counter[str] = Counter()
        self._settings: dict[str, Setting] = {}
        self._series: set[str] = set()
        self._seeds: dict[Setting, None] = {}
        self._first: dict[str, Event] = {}
        self._last: dict[str, Event] = {}
        self._evaluations: list[Evaluation] = []
        self._seen: dict[tuple[float | str, ...], float] = {}
        self._after_stop = 0
        self._eval_started = NAN
        self._eval_ms = NAN

    def add(self, event: Event) -> None:
        """Take one event into account."""
        key = event.key
        self._counts[key] += 1
        if key in ("eval_accuracy", "eval_error"):
            self._add_evaluation(event)
        elif key in ("run_start", "run_stop", "init_start", "init_stop"):
            self._add_boundary(event)
        elif key in ("eval_start", "eval_stop"):
            self._add_eval_span(event)
        elif key == "seed":
            self._seeds.setdefault(_setting(event.value))
        elif event.event_type == "POINT_IN_TIME" and key not in self._series and key not in _NOT_SETTINGS:
            self._add_setting(event)

    def _add_boundary(self, event: Event) -> None:
        """Keep the first of each; a later one from another rank is a note, a contradicting one an error."""
        key = event.key
        first = self._first.setdefault(key, event)
        if first is event or key == "init_start":
            return
        status, first_status = event.metadata.get("status"), first.metadata.get("status")
        apart = abs(event.time_ms - first.time_ms)
        if status == first_status and apart <= SAME_EVENT_MS:
            self._findings.add(f"{key}_repeated", "note", f"{key} again, as in line {first.line}", line=event.line)
            return
        message = (
            f"{key} again, {apart / 1000:.1f} s apart and with status {status!r} where line {first.line} "
            f"has {first_status!r}; two runs in one log, or a run that went on"
        )
        self._findings.add(f"{key}_repeated", "error", message, line=event.line)

    def _add_evaluation(self, event: Event) -> None:
        metadata = event.metadata
        epoch, samples = number(metadata.get("epoch_num")), number(metadata.get("samples_count"))
        if math.isnan(samples):
            samples = number(metadata.get("step_num"))
        if math.isnan(epoch) and math.isnan(samples):
            message = f"{event.key} has neither epoch_num nor samples_count"
            self._findings.add("evaluation_without_position", "error", message, line=event.line)
        for metric, value in _metrics(event).items():
            if self._is_copy((epoch, samples, metric, value), event):
                continue
            if math.isnan(value):
                self._findings.add(
                    "evaluation_not_finite", "warning", f"{event.key} is {event.value!r}", line=event.line
                )
            self._evaluations.append(Evaluation(epoch, samples, value, event.time_ms, metric))
            self._after_stop += "run_stop" in self._first

    def _is_copy(self, identity: tuple[float | str, ...], event: Event) -> bool:
        """Another rank's copy of an evaluation, told by position, value and time: BERT repeats `epoch_num` 1."""
        identity = tuple("" if part != part else part for part in identity)
        before = self._seen.get(identity, NAN)
        self._seen[identity] = event.time_ms
        if not abs(event.time_ms - before) <= SAME_EVENT_MS:
            return False
        self._findings.add("evaluation_repeated", "note", f"{event.key} again from another rank", line=event.line)
        return True

    def _add_eval_span(self, event: Event) -> None:
        """Sum evaluation time inside the run; copies from other ranks fall into an open or a closed span."""
        if "run_start" not in self._first or "run_stop" in self._first:
            return
        if event.key == "eval_start":
            self._eval_started = event.time_ms if math.isnan(self._eval_started) else self._eval_started
        elif not math.isnan(self._eval_started):
            span = max(0.0, event.time_ms - self._eval_started)
            self._eval_ms = span if math.isnan(self._eval_ms) else self._eval_ms + span
            self._eval_started = NAN

    def _add_setting(self, event: Event) -> None:
        """Keep a scalar, or a list as its JSON, as a setting until a second value shows that it is a series."""
        key, value = event.key, json.dumps(event.value) if isinstance(event.value, list) else event.value
        if not isinstance(value, bool | int | float | str):
            return
        known = self._settings.setdefault(key, value)
        self._last[key] = event
        if key not in self._first:
            self._first[key] = event
            return
        same = known == value or (known != known and value != value)
        if key in _HEADER or key == "global_batch_size":
            self._report_repeated(key, event, same=same)
        elif not same and key not in ("train_samples", "eval_samples"):
            self._series.add(key)
            del self._settings[key]

    def _report_repeated(self, key: str, event: Event, *, same: bool) -> None:
        first = self._first[key]
        if same and key in _HEADER:
            message = f"{key} again, as in line {first.line}; each node prints the header"
            self._findings.add("header_repeated", "warning", message, line=event.line)
        elif same:
            self._findings.add("setting_repeated", "note", f"{key} again, as in line {first.line}", line=event.line)
        else:
            message = f"{key} is {event.value!r}, but {first.value!r} in line {first.line}"
            self._findings.add("setting_contradicts", "error", message, line=event.line)

    def result(self) -> RunSummary:
        """The summary; the pass must have ended."""
        settings = self._settings
        header: dict[str, Any] = {name: str(settings.pop(key, "")) for key, name in _HEADER.items()}
        start, stop = self._time("run_start"), self._time("run_stop")
        minutes = (stop - start) / 60_000
        summary = RunSummary(
            **header,
            seeds=tuple(self._seeds),
            global_batch_size=self._global_batch_size(),
            hyperparameters=settings,
            run_start_ms=start,
            run_stop_ms=stop,
            status=self._status(),
            time_to_train_min=minutes if minutes > 0 else NAN,
            init_min=(start - self._time("init_start")) / 60_000,
            eval_min=self._eval_ms / 60_000,
            evaluations=tuple(self._evaluations),
            num_evaluations_after_stop=self._after_stop,
            train_samples=number(self._last["train_samples"].value) if "train_samples" in self._last else NAN,
            eval_samples=number(settings.get("eval_samples")),
            target=next((number(settings[name]) for name in _TARGETS if name in settings), NAN),
            event_counts=dict(self._counts),
            findings=self._findings.result(),
            sha256=self._notes.sha256,
            size_bytes=self._notes.size_bytes,
        )
        return with_convergence(summary)

    def _time(self, key: str) -> float:
        return self._first[key].time_ms if key in self._first else NAN

    def _status(self) -> Status:
        if "run_stop" not in self._first:
            return "missing"
        stop = self._first["run_stop"]
        status = stop.metadata.get("status")
        if isinstance(status, str) and status in _STATUSES:
            return _STATUSES[status]
        message = f"run_stop has status {status!r}; legal: {sorted(_STATUSES)}"
        self._findings.add("run_stop_status", "error", message, line=stop.line)
        return "missing"

    def _global_batch_size(self) -> float:
        if "global_batch_size" not in self._settings:
            return NAN
        value = self._settings["global_batch_size"]
        if isinstance(value, str | bool):
            message = f"global_batch_size is {value!r}; it must be a number"
            self._findings.add("setting_type", "error", message, line=self._first["global_batch_size"].line)
        return number(value)


def _metrics(event: Event) -> dict[str, float]:
    """Metric name → value: Mask R-CNN logs both metrics in one event, Stable Diffusion one event for each."""
    if isinstance(event.value, dict):
        return {str(metric): number(value) for metric, value in event.value.items()}
    metric = event.metadata.get("metric", "")
    return {metric if isinstance(metric, str) else "": number(event.value)}


def _setting(value: Any) -> Setting:
    return value if isinstance(value, bool | int | float | str) else str(value)
