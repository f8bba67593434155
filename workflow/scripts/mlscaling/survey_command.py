"""Command line of surveys: what a published results tree holds, and the facts of its runs as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mlscaling.mlperf import rounds
from mlscaling.published import survey

DESCRIPTION = """Survey a published MLPerf training results tree: systems, benchmarks, nodes, scores and verdicts. The
tree is only read."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 and one clear message where the user can help."""
    options = _parser().parse_args(arguments)
    try:
        ruleset = _ruleset(options.round)
        if (options.system or options.benchmark) and not options.facts:
            raise ValueError("--system and --benchmark choose rows of --facts, which is not given")
        if options.facts:
            _write_facts(options, ruleset=ruleset)
        else:
            _print_survey(options, ruleset=ruleset)
    except (OSError, ValueError) as error:
        print(f"survey: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="survey.py", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("tree", type=Path, help="checkout of a results repository, or one submitter's folder in it")
    parser.add_argument("--round", required=True, help="MLPerf round of the tree, e.g. 1.1.0")
    parser.add_argument("--submitter", action="append", help="read only this submitter; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--official", action="store_true", help="ask the official checkers, too, on copies")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every column")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="write one row per run of --system instead")
    parser.add_argument("--system", action="append", help="system for --facts; may be repeated")
    parser.add_argument("--benchmark", action="append", help="benchmark for --facts; may be repeated; default all")
    return parser


def _ruleset(text: str) -> str:
    """A round as its rule set is called: `1.1` is `1.1.0`."""
    legal = rounds.rulesets()
    found = next((name for name in (text, f"{text}.0") if name in legal), "")
    if not found:
        raise ValueError(f"--round {text} is unknown; legal: {', '.join(legal)}")
    return found


def _print_survey(options: argparse.Namespace, *, ruleset: str) -> None:
    table = survey(
        options.tree, ruleset, submitters=options.submitter, jobs=max(1, options.jobs), official=options.official
    )
    from mlscaling.survey_text import survey_text
    from mlscaling.tables import write_table

    title = f"MLPerf training results, round {ruleset}, {len(table)} systems × benchmarks in {options.tree}"
    print(survey_text(table, title=title), end="")
    if options.csv:
        write_table(table, options.csv)


def _write_facts(options: argparse.Namespace, *, ruleset: str) -> None:
    from mlscaling.facts import facts_of
    from mlscaling.tables import write_table

    if not options.system:
        raise ValueError("--facts needs at least one --system")
    facts = facts_of(options.tree, ruleset, systems=options.system, benchmarks=options.benchmark)
    write_table(facts, options.facts)
    print(f"{options.facts}: {len(facts)} runs")
