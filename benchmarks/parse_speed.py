"""How fast our reader summarises MLPerf logs, against the official parser on the same files, in one process.

    python benchmarks/parse_speed.py [TREE]

TREE is any folder with `result_*.txt` files, e.g. a published results repository; without it a log is generated.
Both are timed in turns and the fastest turn of each counts, so that the ratio does not depend on the machine's mood.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests" / "unit")]

from mllog_samples import line, log_lines  # noqa: E402
from mlscaling.mlperf.parse import summarize  # noqa: E402


def generated_log(folder: Path, *, megabytes: int) -> list[Path]:
    """A log with two thirds of foreign text and one of events, as the published ones have on average."""
    choose = random.Random(0)
    head, *rest = log_lines()
    size, lines = 0, [head]
    while size < megabytes * 1_000_000:
        noise = " ".join(f"{choose.random():.6f}" for _ in range(60))
        lines += [noise, line("throughput", choose.random() * 1e4, step=size)]
        size += len(lines[-1]) + len(noise) + 2
    log = folder / "result_0.txt"
    log.write_text("\n".join([*lines, *rest]) + "\n", encoding="utf-8")
    return [log]


def official(log: Path) -> object:
    """The official parser alone: it reads events and judges nothing."""
    from mlperf_logging.compliance_checker import mlp_parser

    return mlp_parser.parse_file(str(log), ruleset="1.1.0")


def megabytes_per_s(read: Callable[[Path], object], logs: Sequence[Path]) -> float:
    """One turn over all files."""
    begin = time.perf_counter()
    for log in logs:
        read(log)
    return sum(log.stat().st_size for log in logs) / 1e6 / (time.perf_counter() - begin)


def main() -> None:
    """Print both speeds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, help="folder with result_*.txt files")
    parser.add_argument("--turns", type=int, default=3, help="turns of each reader (default 3)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tree = arguments.tree
        logs = sorted(tree.rglob("result_*.txt")) if tree else generated_log(Path(scratch), megabytes=20)
        if not logs:
            parser.error(f"{tree} holds no result_*.txt")
        official(logs[0])
        turns = [(megabytes_per_s(summarize, logs), megabytes_per_s(official, logs)) for _ in range(arguments.turns)]
    ours, theirs = (max(speeds) for speeds in zip(*turns, strict=True))
    print(f"{len(logs)} logs: summarize {ours:.1f} MB/s, official parser {theirs:.1f} MB/s, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
