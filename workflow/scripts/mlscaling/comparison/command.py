"""Command line of comparisons: `bundle.py compare A B`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mlscaling.comparison.changes import THRESHOLD_PERCENT
from mlscaling.files import write_json, write_text

REGRESSION, INPUT_ERROR = 1, 2
"""Exit status where B is slower, beyond the threshold and significantly; and where nothing could be tested."""
HELP = "compare two studies: what changed, and what it did; ends with 1 where B is slower"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `compare` as its only command."""
    parser = argparse.ArgumentParser(prog="bundle.py", description=__doc__, allow_abbrev=False)
    add_command(parser.add_subparsers(dest="command", required=True))
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


def add_command(commands: Any) -> None:
    """Add `compare` to the commands of a parser; `options.run(options)` runs it."""
    parser = commands.add_parser("compare", help=HELP, description=HELP, allow_abbrev=False)
    parser.add_argument("a", type=Path, metavar="A", help="what to compare with: a bundle or a folder results/<study>")
    parser.add_argument("b", type=Path, metavar="B", help="what to compare")
    parser.add_argument(
        "--threshold",
        type=float,
        default=THRESHOLD_PERCENT,
        metavar="PERCENT",
        help=f"changes below do not matter (default {THRESHOLD_PERCENT:g})",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="A_SYSTEM=B_SYSTEM",
        help="compare this system of A with that of B; may be repeated",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write text, JSON and the figure into this folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare; 0 without a regression, 1 with one, 2 where nothing could be tested, as with wrong input."""
    try:
        mapping = _mapping(options.map)
        if not 0 <= options.threshold < 100:
            raise ValueError(f"--threshold {options.threshold:g}: must be at least 0 and less than 100 percent")
        return _run(options, mapping=mapping)
    except (OSError, ValueError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return INPUT_ERROR


def _run(options: argparse.Namespace, *, mapping: dict[str, str]) -> int:
    from mlscaling.comparison.compare import compare, to_dict
    from mlscaling.comparison.sides import opened_results, read_side
    from mlscaling.comparison.text import comparison_text

    with ExitStack() as stack:
        sides = [
            read_side(stack.enter_context(opened_results(path)), label=label, name=path.resolve().name)
            for label, path in (("A", options.a), ("B", options.b))
        ]
    comparison = compare(*sides, threshold_percent=options.threshold, mapping=mapping)
    text, content = comparison_text(comparison), to_dict(comparison)
    if options.output:
        from mlscaling.comparison.figure import write_figure

        write_text(text, options.output / "comparison.txt")
        write_json(content, options.output / "comparison.json")
        write_figure(comparison, options.output)
    print(json.dumps(content, indent=1, allow_nan=False) if options.json else text, end="\n" if options.json else "")
    if comparison.regressions:
        return REGRESSION
    return 0 if comparison.num_points else INPUT_ERROR


def _mapping(words: Sequence[str]) -> dict[str, str]:
    """System of A → system of B."""
    mapping: dict[str, str] = {}
    for word in words:
        one, sign, other = word.partition("=")
        if not (one and sign and other):
            raise ValueError(f"--map {word}: expected A_SYSTEM=B_SYSTEM")
        if one in mapping or other in mapping.values():
            raise ValueError(f"--map {word}: a system is compared with one other only")
        mapping[one] = other
    return mapping
