"""The answer in one screen: `summary.txt` for the terminal, `summary.rst` for the front page of the report."""

from __future__ import annotations

import math
import string
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from mlscaling import network_table, wording
from mlscaling.evidence import Record
from mlscaling.network import SLOW
from mlscaling.planned import Planned
from mlscaling.tables import table
from mlscaling.wording import MISSING, rst

HEADERS = (
    ("workload", ""),
    ("nodes", ""),
    ("runs", ""),
    ("time-to-", "train min"),
    ("speed-up", "± 95 %"),
    ("throughput", "efficiency"),
    ("convergence", "efficiency"),
    ("MLPerf", "logs"),
    ("RCP:", "margin, p-value"),
    ("verdict", ""),
)
RST_TABLES = {
    "Time to train": ("workload", "nodes", "runs", "time-to-", "speed-up", "verdict"),
    "Why not linear, and is it valid": (
        "workload",
        "nodes",
        "throughput",
        "convergence",
        "MLPerf",
        "RCP:",
    ),
}
"""The report's page leaves half its width to the text, so the columns stand in two tables, by first line of header."""
LEFT_ALIGNED = (0, 7, 8, 9)
MAX_COLUMNS = 120
KEY = ["system", "workload", "nodes"]
LOW_THROUGHPUT = 0.8
"""Throughput efficiency below which a point's bus bandwidth is told, if it was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One point in the summary."""

    system: str
    """System name."""
    cells: tuple[str, ...]
    """One for each of `HEADERS`."""
    notes: tuple[str, ...]
    """What a reader must know beside the numbers."""


def text_summary(
    points: pd.DataFrame,
    scaling: pd.DataFrame,
    planned: Planned,
    *,
    likeness: Sequence[Record] = (),
    descriptions: Sequence[Record] = (),
    network: pd.DataFrame | None = None,
) -> str:
    """The terminal's table, at most 120 columns, with footnotes.

    Args:
        points, scaling: the tables.
        planned: what was planned.
        likeness: verdicts of `likeness.json`.
        descriptions: verdicts of `description_n{nodes}.json`.
        network: the network table.
    """
    lines = _lines(points, scaling, planned, network=network)
    letters = {note: letter for letter, note in zip(_letters(), _distinct_notes(lines), strict=False)}
    rows = {line: (*line.cells, ",".join(letters[note] for note in line.notes)) for line in lines}
    headers = [(*header, "") for header in zip(*HEADERS, strict=True)]
    widths = [max(map(len, column)) for column in zip(*headers, *rows.values(), strict=True)]
    text = [planned.title, "", *(_aligned(header, widths) for header in headers)]
    for system, title in _systems(planned).items():
        text += ["", title, *(_aligned(cells, widths) for line, cells in rows.items() if line.system == system)]
    footnotes = [f"{letter}  {note}" for note, letter in letters.items()]
    headlines = [f"{name}: {sentence}" for name, sentence in _headlines(points, scaling, planned)]
    alarms = [f"{name}: {sentence}" for name, sentence in _unlike(likeness, planned)]
    wrong = [f"{name}: {sentence}" for name, sentence in _wrongly_described(descriptions)]
    paragraphs_of = ((footnotes, "   "), (headlines, "  "), (alarms, "  "), (wrong, "  "), (_legend(planned), ""))
    for paragraphs, indent in paragraphs_of:
        text += ["", *_wrapped(paragraphs, indent=indent)] if paragraphs else []
    return "\n".join(text) + "\n"


def rst_summary(
    points: pd.DataFrame,
    scaling: pd.DataFrame,
    planned: Planned,
    *,
    likeness: Sequence[Record] = (),
    descriptions: Sequence[Record] = (),
    network: pd.DataFrame | None = None,
) -> str:
    """The same for the report: systems, headlines, table, verdicts; without section titles, to be embedded."""
    lines = _lines(points, scaling, planned, network=network)
    systems = [f"* {rst(title)}" for title in _systems(planned).values()]
    headlines = [f"* **{rst(name)}**: {rst(text)}" for name, text in _headlines(points, scaling, planned)]
    parts = [f"**{rst(planned.title)}**", "\n".join(systems)]
    if headlines:
        parts += ["**Efficiency at the largest measured node count**", "\n".join(headlines)]
    for title, columns in RST_TABLES.items():
        parts += [f"**{title}**", _rst_table(lines, columns=columns)]
    parts += ["**Verdicts**", "\n".join(_rst_verdicts(lines))]
    if unlike := [f"* **{rst(name)}**: {rst(text)}" for name, text in _unlike(likeness, planned)]:
        parts += ["**Points of a curve that are not alike**", "\n".join(unlike)]
    if wrong := [f"* **{rst(name)}**: {rst(text)}" for name, text in _wrongly_described(descriptions)]:
        parts += ["**System descriptions with findings**", "\n".join(wrong)]
    return "\n\n".join([*parts, *map(rst, _legend(planned))]) + "\n"


def _lines(
    points: pd.DataFrame, scaling: pd.DataFrame, planned: Planned, *, network: pd.DataFrame | None
) -> list[Line]:  # fmt: skip
    merged = points.merge(scaling.drop(columns=["study", "global_batch_size", "verdict"]), on=KEY, how="left")
    measured = network_table.by_point(table([], kind="network") if network is None else network)
    merged = merged.merge(measured, on=KEY, how="left")
    titles = {point.workload: point.workload_title for point in planned.points}
    return [
        Line(system=row["system"], cells=_cells(row, title=titles[row["workload"]]), notes=_notes(row))
        for _, row in merged.iterrows()
    ]


def _cells(row: pd.Series, *, title: str) -> tuple[str, ...]:
    return (
        title,
        str(row["nodes"]),
        f"{row['num_converged']}/{row['required_runs']}",
        wording.significant(row["time_to_train_min"], 4),
        _plus_minus(row),
        wording.percent(row["throughput_efficiency"]),
        wording.percent(row["convergence_efficiency"]),
        row["compliance"] or MISSING,
        wording.rcp(row),
        row["verdict"],
    )


def _plus_minus(row: pd.Series) -> str:
    if not math.isfinite(row["speedup"]):
        return MISSING
    half_width = max(row["speedup_high"] - row["speedup"], row["speedup"] - row["speedup_low"])
    if not half_width > 0:
        return f"{row['speedup']:.2f}"
    return f"{row['speedup']:.2f} ± " + (f"{half_width:.2f}" if half_width >= 0.005 else "<0.01")


def _notes(row: pd.Series) -> tuple[str, ...]:
    findings = {"not significant": "speed-up not significant: its 95 % interval includes 1"}
    notes = [row["reason"], findings.get(row["finding"], row["finding"])]
    if math.isfinite(row["speedup"]) and row["reference_nodes"] > 1:
        notes.append(f"relative to {wording.nodes(row['reference_nodes'])}")
    if row["throughput_efficiency"] < LOW_THROUGHPUT and math.isfinite(row["bus_bandwidth_gb_per_s"]):
        notes.append(_network_note(row))
    return tuple(filter(None, notes))


def _network_note(row: pd.Series) -> str:
    """What the preflight measured, beside a low throughput efficiency."""
    bandwidth, best = row["bus_bandwidth_gb_per_s"], row["best_of_system_gb_per_s"]
    text = f"throughput efficiency {wording.percent(row['throughput_efficiency'])}: the network's bus bandwidth was "
    text += f"{wording.significant(bandwidth)} GB/s"
    if bandwidth < SLOW * best:
        text += f", that of another point of the system {wording.significant(best)}"
    return text + (f", slow node {row['slow_node']}" if row["slow_node"] else "")


def _distinct_notes(lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(note for line in lines for note in line.notes))


def _letters() -> Iterable[str]:
    return (first + second for first in ("", *string.ascii_lowercase) for second in string.ascii_lowercase)


def _headlines(points: pd.DataFrame, scaling: pd.DataFrame, planned: Planned) -> list[tuple[str, str]]:
    """Name and decomposition of each curve's largest measured node count."""
    units = points.set_index(KEY)["convergence_unit"]
    several_systems = len(_systems(planned)) > 1
    headlines = []
    for (system, workload), curve in scaling.groupby(["system", "workload"], sort=False):
        measured = curve[curve["efficiency"].notna() & (curve["nodes"] != curve["reference_nodes"])]
        if measured.empty:
            continue
        row = measured.loc[measured["nodes"].idxmax()]
        point = planned.point(f"{system}/{workload}/n{row['nodes']}")
        name = f"{point.workload_title}{f' on {system}' * several_systems}, {wording.nodes(row['nodes'])}"
        headlines.append((name, wording.headline(row, unit=units[system, workload, row["nodes"]])))
    return headlines


def _unlike(likeness: Sequence[Record], planned: Planned) -> list[tuple[str, str]]:
    """Name and differences of each curve whose points are not alike, alarms first."""
    titles = {(point.system, point.workload): point.workload_title for point in planned.points}
    found = []
    for verdict in sorted(likeness, key=lambda verdict: verdict["alarm"] is None):
        name = f"{titles[verdict['system'], verdict['workload']]} on {verdict['system']}"
        warnings = [finding["message"] for finding in verdict["findings"] if finding["severity"] != "note"]
        if verdict["alarm"]:
            found.append((name, f"ALARM, {verdict['alarm']['message']}"))
        elif warnings:
            found.append((name, f"the points differ: {'; '.join(warnings)}"))
    return found


def _wrongly_described(descriptions: Sequence[Record]) -> list[tuple[str, str]]:
    """Name and findings of each system description that is contradicted, or that the official checker refuses."""
    found = []
    for verdict in descriptions:
        sentences = [finding["message"] for finding in verdict["findings"] if finding["severity"] != "note"]
        official = verdict["official"] or {"passed": True}
        if official["passed"] is not True:
            said = "; ".join(official["messages"]) or "it gives no reason"
            words = "refuses it" if official["passed"] is False else "gives no verdict"
            sentences.append(f"the official system_desc_checker {words}: {said}")
        if sentences:
            found.append((f"{verdict['system']}, {wording.nodes(verdict['nodes'])}", "; ".join(sentences)))
    return [(f"description of {name}", text) for name, text in found]


def _systems(planned: Planned) -> dict[str, str]:
    """System → `name: title (emulated nodes on one host)`."""
    return {
        point.system: f"{point.system}: {point.system_title}" + f" ({wording.EMULATED})" * point.emulated
        for point in planned.points
    }


def _legend(planned: Planned) -> list[str]:
    return [
        f"Time-to-train is MLPerf's {wording.OLYMPIC_MEAN}. Runs: converged and compliant / required. Speed-up is over "
        "the smallest measured node count, ± the wider side of its 95 % bootstrap interval over runs.",
        *planned.notes,
    ]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        cell.ljust(width) if number in LEFT_ALIGNED else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(aligned).rstrip()


def _wrapped(paragraphs: Iterable[str], *, indent: str = "") -> Iterable[str]:
    for paragraph in paragraphs:
        yield from textwrap.wrap(paragraph, MAX_COLUMNS, subsequent_indent=indent)


def _rst_table(lines: Sequence[Line], *, columns: Sequence[str]) -> str:
    chosen = [number for number, header in enumerate(HEADERS) if header[0] in columns]
    several_systems = len({line.system for line in lines}) > 1
    rows = [["system"] * several_systems + [_one_line(HEADERS[number]) for number in chosen]]
    rows += [[line.system] * several_systems + [line.cells[number] for number in chosen] for line in lines]
    body = [f"   {'* -' if number == 0 else '  -'} {rst(cell)}" for row in rows for number, cell in enumerate(row)]
    return "\n".join([".. list-table::", "   :header-rows: 1", "", *body])


def _one_line(header: tuple[str, str]) -> str:
    return " ".join(header).strip().replace("- ", "-")


def _rst_verdicts(lines: Sequence[Line]) -> list[str]:
    verdicts = []
    for line in lines:
        workload, nodes, *_, verdict = line.cells
        notes = "; ".join(line.notes).replace(f"{verdict}, ", "")
        name = f"{line.system}, {workload}, {wording.nodes(int(nodes))}"
        verdicts.append(f"* {rst(name)}: **{verdict}**" + (f" ({rst(notes)})" if notes else ""))
    return verdicts
