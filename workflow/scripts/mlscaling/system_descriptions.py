"""MLPerf system descriptions of a study's systems, one for each node count, with a verdict on each.

A trained system is described by its nodes; a published one keeps the description of its tree, as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlscaling import evidence
from mlscaling.described import Described
from mlscaling.files import read_json, write_json, written_beside
from mlscaling.mlperf.description import describe
from mlscaling.mlperf.description_checks import check_nodes
from mlscaling.mlperf.findings import Finding
from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import description_verdict


def describe_system(
    whose: Described,
    *,
    records: Sequence[Path],
    compliance: Sequence[Path],
    ruleset: str,
    published_root: str,
    description: Path,
    verdict: Path,
) -> None:
    """Write the description and the verdict on it.

    Args:
        whose: what is described.
        records: run records of all its runs at this node count, of every workload.
        compliance: their compliance verdicts, which hold what the logs say.
        ruleset: round whose checker is asked.
        published_root: tree of published results; empty where nothing is imported.
        description: file to write, `systems/{system}_n{nodes}.json`.
        verdict: file to write.
    """
    contents = [read_json(path) for path in records]
    if (published := _published(contents)) is not None:
        _keep(published, root=Path(published_root), description=description)
    else:
        write_json(describe(whose, contents), description)
    summaries = [RunSummary.from_dict(answer["summary"]) for answer in evidence.read_compliance(compliance).values()]
    made = verdict_on(whose, contents=contents, summaries=summaries, ruleset=ruleset, description=description)
    write_json(made, verdict)


def verdict_on(
    whose: Described,
    *,
    contents: Sequence[Mapping[str, Any]],
    summaries: Sequence[RunSummary],
    ruleset: str,
    description: Path,
) -> dict[str, Any]:
    """Verdict on a description that is there, from the run records and what the logs say."""
    published, folder = _published(contents), ""
    if published is not None:
        folder = Path(published["source"]["log"]).parts[-3]
        found: tuple[Finding, ...] = () if published["source"]["description"] else (_missing(published),)
    else:
        found = check_nodes(whose, contents, read_json(description))
    answer = description_verdict(description, summaries, ruleset=ruleset, folder=folder, found=found)
    named = {"schema_version": answer["schema_version"], "system": whose.system, "nodes": whose.nodes}
    return named | answer


def _published(contents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((content for content in contents if "source" in content), None)


def _missing(record: Mapping[str, Any]) -> Finding:
    message = f"there is no description of {record['source']['log']} in the tree"
    return Finding(check="description_missing", severity="warning", message=message)


def _keep(record: Mapping[str, Any], *, root: Path, description: Path) -> None:
    """Copy the description of a published run's tree; an empty one where it has none."""
    source = record["source"]
    if not source["description"]:
        write_json({}, description)
        return
    submitter = (root / source["log"]).parents[3]
    with written_beside(description) as beside:
        shutil.copyfile(submitter / "systems" / source["description"], beside)
