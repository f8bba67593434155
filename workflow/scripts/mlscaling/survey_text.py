"""The survey of a results tree in a terminal."""

from __future__ import annotations

import itertools
import math
import string
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mlscaling.published import SEPARATOR

if TYPE_CHECKING:
    import pandas as pd

MAX_COLUMNS: Final = 140
NOT_SHOWN: Final = ("header_repeated: ", "setting_repeated: ")
"""Findings of nearly every published log; they stand in the CSV."""
HEADERS: Final = (
    ("system", ""),
    ("nodes", ""),
    ("benchmark", ""),
    ("runs", ""),
    ("global", "batch"),
    ("minutes", "raw"),
    ("minutes", "by RCP"),
    ("epochs or", "samples"),
    ("RCP", "margin"),
    ("logs", "ok"),
    ("verdict", ""),
)
OFFICIAL_HEADER: Final = ("official", "logs ok")
LEFT_ALIGNED: Final = ("system", "benchmark", "verdict", "")
LEGEND: Final = """Minutes: MLPerf's Olympic mean (fastest and slowest runs dropped), raw, and multiplied by the factor
of a passed RCP test. Runs: converged / required. RCP margin: epochs or samples above the limit of the pruned records;
the test is passed unless it says FAILED. Logs ok: by our checks."""


def survey_text(survey: pd.DataFrame, *, title: str) -> str:
    """An aligned table of at most 140 columns with footnotes, each submitter under its name."""
    with_official = bool(survey["official_num_compliant"].notna().any())
    records = [{str(key): value for key, value in row.items()} for row in survey.to_dict("records")]
    letters = dict(zip(dict.fromkeys(note for row in records for note in _notes(row)), _letters(), strict=False))
    rows = [[*_cells(row, with_official=with_official), ",".join(letters[n] for n in _notes(row))] for row in records]
    headers = [*HEADERS[:-1], *([OFFICIAL_HEADER] if with_official else ()), HEADERS[-1], ("", "")]
    widths = [max(map(len, column)) for column in zip(*zip(*headers, strict=True), *rows, strict=True)]
    widths[0] = max(12, min(widths[0], widths[0] + MAX_COLUMNS - sum(widths) - 2 * (len(widths) - 1)))
    lefts = [" ".join(header).strip() in LEFT_ALIGNED for header in headers]
    lines = [title, "", *(_aligned(line, widths, lefts) for line in zip(*headers, strict=True))]
    for submitter, group in itertools.groupby(zip(records, rows, strict=True), key=lambda pair: pair[0]["submitter"]):
        lines += ["", submitter, *(_aligned(cells, widths, lefts) for _, cells in group)]
    notes = [f"{letter}  {note}" for note, letter in letters.items()]
    return "\n".join([*lines, "", *_wrapped(notes), *([""] if notes else []), *_wrapped([LEGEND], indent="")]) + "\n"


def _cells(row: Mapping[str, Any], *, with_official: bool) -> list[str]:
    return [
        row["system"],
        _count(row["nodes"]),
        row["benchmark"],
        f"{row['num_converged']}/{_count(row['required_runs'])}",
        _count(row["global_batch_size"]),
        _decimals(row["time_to_train_min"]),
        _decimals(row["normalized_time_to_train_min"]),
        _amount(row["convergence"]),
        _rcp(row),
        f"{row['num_compliant']}/{row['num_runs']}",
        *([f"{_count(row['official_num_compliant'])}/{row['num_runs']}"] if with_official else ()),
        row["verdict"],
    ]


def _rcp(row: Mapping[str, Any]) -> str:
    if not _known(row["rcp_passed"]):
        return {"no_rcps": "no RCPs"}.get(row["rcp_status"], "–")
    words = "" if row["rcp_passed"] else "FAILED"
    margin = row["rcp_margin"]
    sign = "+" if margin >= 0 else "−"
    return " ".join(filter(None, [words, f"{sign}{_amount(abs(margin))}" if math.isfinite(margin) else ""])) or "passed"


def _notes(row: Mapping[str, Any]) -> list[str]:
    findings = [*row["findings"].split(SEPARATOR), *row["official_findings"].split(SEPARATOR)]
    ours, official = row["rcp_passed"], row["official_rcp_passed"]
    if _known(ours) and _known(official) and ours != official:
        findings.append(f"the official RCP checker {'passes' if official else 'fails'}, ours does not agree")
    return [text for text in (row["reason"], *findings) if text and not text.startswith(NOT_SHOWN)]


def _known(value: Any) -> bool:
    return value is True or value is False


def _count(value: Any) -> str:
    return "–" if value is None or value != value or str(value) == "<NA>" else f"{int(value):,}"


def _decimals(value: float) -> str:
    return f"{value:,.3f}" if math.isfinite(value) else "–"


def _amount(value: float) -> str:
    """Epochs with two decimals at most, samples without."""
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.2f}".rstrip("0").rstrip(".")


def _letters() -> Iterator[str]:
    return (first + second for first in ("", *string.ascii_lowercase) for second in string.ascii_lowercase)


def _aligned(cells: Sequence[str], widths: Sequence[int], lefts: Sequence[bool]) -> str:
    short = [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell, width in zip(cells, widths, strict=True)]
    padded = (
        cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(short, widths, lefts, strict=True)
    )
    return "  ".join(padded).rstrip()


def _wrapped(paragraphs: Iterable[str], *, indent: str = "   ") -> Iterator[str]:
    for paragraph in paragraphs:
        yield from textwrap.wrap(" ".join(paragraph.split()), MAX_COLUMNS, subsequent_indent=indent)
