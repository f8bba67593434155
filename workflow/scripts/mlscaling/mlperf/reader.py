"""Streams the MLLOG events of a log, whatever else a cluster has written between, before or behind them.

Only the marker `:::MLLOG` and the JSON object behind it matter: prefixes (`0: ` of srun --label,
`[1,0]<stdout>:` of mpirun), colour codes, carriage returns and foreign text are passed over at the speed of a byte
search. What looks like an event and is none is reported with its physical line number, never raised.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mlscaling.mlperf.findings import FindingList, Severity

MARKER = ":::MLLOG"
_BLOCK_BYTES = 4 << 20
_LONGEST_EVENT = 1 << 16
"""Characters; bounds what one broken marker can cost in a file without line ends."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ESSENTIAL = re.compile(
    r'"(?:run_start|run_stop|eval_accuracy|eval_error|global_batch_size|submission_\w+|seed|train_samples)"'
)
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_decode_json = json.JSONDecoder().raw_decode


class Event(NamedTuple):
    """One MLLOG event; a tuple because a survey makes some hundred thousand of them."""

    key: str
    """MLLOG key."""
    value: Any
    """As logged; Python's NaN and infinities where the log has them."""
    time_ms: float
    """Milliseconds since 1970, NaN where the event carries no usable time."""
    event_type: str
    """POINT_IN_TIME, INTERVAL_START or INTERVAL_END."""
    metadata: dict[str, Any]
    """Empty where the event has none."""
    line: int
    """Physical line, from one."""


@dataclass(kw_only=True, slots=True)
class Notes:
    """What reading a file leaves behind beside its events; filled while the events are consumed."""

    findings: FindingList = field(default_factory=FindingList)
    """What was skipped or is unusual."""
    sha256: str = ""
    """Of the file's bytes, once the last event has been read."""
    size_bytes: int = 0
    """Of the file, once the last event has been read."""


def read_events(path: Path, notes: Notes) -> Iterator[Event]:
    """Yield the events of a log in the order of the file, in one pass over its bytes.

    Raises:
        OSError: where the file cannot be opened or read. No content raises.
    """
    line = 1
    with path.open("rb", buffering=0) as file:
        for text, ended in _texts(file, notes):
            position = 0
            while (start := text.find(MARKER, position)) >= 0:
                line += text.count("\n", position, start)
                position, event = _event_at(text, start, line, cut=not ended, findings=notes.findings)
                if event is not None:
                    yield event
            line += text.count("\n", position)


def _texts(file: BinaryIO, notes: Notes) -> Iterator[tuple[str, bool]]:
    """Whole lines as latin-1 text, in large blocks, and whether the last of them was ended by a line feed.

    Latin-1 maps every byte, so nothing can fail and positions are those of the bytes; `_text_of` repairs UTF-8.
    """
    digest = hashlib.sha256()
    carry = b""
    encoding = ""
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
        if notes.size_bytes == 0:
            encoding = _wide_encoding(block, notes.findings)
            decoder = codecs.getincrementaldecoder(encoding or "utf-8")(errors="replace")
        notes.size_bytes += len(block)
        data = carry + (decoder.decode(block).encode("utf-8") if encoding else block)
        cut = _end_of_lines(data)
        yield data[:cut].decode("latin-1"), True
        carry = data[cut:]
    if carry:
        yield carry.decode("latin-1"), False
    notes.sha256 = digest.hexdigest()


def _wide_encoding(block: bytes, findings: FindingList) -> str:
    """The UTF-16 flavour of a file that was redirected by PowerShell, or empty."""
    wide = MARKER[:4].encode("utf-16-le")
    found = next((name for mark, name in _BYTE_ORDER_MARKS if block.startswith(mark)), "")
    if not found and wide in block:
        found = "utf-16-le" if block.find(wide) % 2 == 0 else "utf-16-be"
    if found:
        message = f"the file is encoded as {found.upper()}; MLPerf's own tools find no event in it"
        findings.add("encoding", "warning", message, line=1)
    return found


def _end_of_lines(data: bytes) -> int:
    """Where to cut a block: behind its last line feed, or before the last marker of an endless line."""
    cut = data.rfind(b"\n") + 1
    if cut or len(data) < _BLOCK_BYTES:
        return cut
    marker = data.rfind(MARKER.encode(), len(data) - _LONGEST_EVENT)
    return marker if marker > 0 else len(data) - len(MARKER)


def _event_at(text: str, start: int, line: int, *, cut: bool, findings: FindingList) -> tuple[int, Event | None]:
    """The event behind the marker at `start`, and where to search on: two ranks may share one physical line."""
    begin = start + len(MARKER)
    end = text.find("\n", begin)
    cut = cut and end < 0
    end = len(text) if end < 0 else end
    segment = text[begin : min(end, begin + _LONGEST_EVENT)]
    content, used = _object_in(segment)
    if content is None:
        _report_skipped(segment, line, cut=cut, findings=findings)
        return begin, None
    rest = text[begin + used : end]
    if rest and not rest.isspace():
        if MARKER in rest:
            end = begin + used
        elif _COLOUR.sub("", rest).strip():
            findings.add(
                "text_after_event", "warning", f"text behind the event is ignored: {rest.strip()[:60]!r}", line=line
            )
    return end, _event(content, line, findings)


def _object_in(segment: str) -> tuple[Any, int]:
    """The JSON value at the start of a segment and the characters it takes; None where there is none."""
    if segment.isascii():
        try:
            return _decode_json(segment, len(segment) - len(segment.lstrip()))
        except (ValueError, RecursionError):
            if "\x1b" not in segment:
                return None, 0
    part = segment.split(MARKER, 1)[0]
    try:
        cleaned = _COLOUR.sub("", _text_of(part)).lstrip()
        content, used = _decode_json(cleaned)
    except (ValueError, RecursionError):
        return None, 0
    # Characters may be fewer than bytes here: what is left is counted from the end, and only where it is ASCII.
    rest = cleaned[used:]
    return content, len(part) - len(rest) if part.endswith(rest) else len(part)


def _text_of(segment: str) -> str:
    """Latin-1 text as the UTF-8 that it most likely is, else unchanged."""
    try:
        return segment.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return segment


def _report_skipped(segment: str, line: int, *, cut: bool, findings: FindingList) -> None:
    """Say what was skipped. It is an error where the text mentions a key that a verdict or a score rests on."""
    shown = segment[:60].strip()
    if not segment.lstrip().startswith(("{", "\x1b")):
        findings.add("marker_without_event", "note", f"text mentions {MARKER} but is no event: {shown!r}", line=line)
        return
    severity: Severity = "error" if _ESSENTIAL.search(segment.split(MARKER, 1)[0]) else "warning"
    what = "the last line is cut off" if cut else "an event is not readable as JSON"
    findings.add("cut_line" if cut else "malformed_event", severity, f"{what}; skipped: {shown!r}", line=line)


def _event(content: Any, line: int, findings: FindingList) -> Event | None:
    """The event that a JSON value is; None where it has no key."""
    key = content.get("key") if isinstance(content, dict) else None
    if not isinstance(key, str):
        findings.add("malformed_event", "warning", "an event without a key is skipped", line=line)
        return None
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        message = f"{key} has no metadata object; MLPerf's own tools crash on it"
        findings.add("event_without_metadata", "warning", message, line=line)
        metadata = {}
    time_ms = number(content.get("time_ms"))
    if math.isnan(time_ms):
        findings.add("event_without_time", "warning", f"{key} has no usable time_ms", line=line)
    return Event(key, content.get("value"), time_ms, str(content.get("event_type", "")), metadata, line)


def number(value: Any) -> float:
    """A finite number as logged, also as text; NaN for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return result if math.isfinite(result) else math.nan
