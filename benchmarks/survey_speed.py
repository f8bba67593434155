"""How fast a results tree is surveyed, from a cold start, against the official result summariser on the same tree.

    python benchmarks/survey_speed.py [TREE] [--round 1.1.0] [--official]

TREE is one submitter's folder or a checkout of a published results repository; without it a small one is generated.
The official summariser writes into the tree that it reads, so it works on a copy. Both are started as commands; the
fastest turn of each counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SURVEY = ROOT / "workflow" / "scripts" / "survey.py"
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests" / "unit")]

from parse_speed import generated_log  # noqa: E402
from published_tree import add_description  # noqa: E402

WANTED = {"host_processor_model_name": "CPU", "host_processor_core_count": "1", "hw_notes": "", "sw_notes": ""}
"""Keys without which the official summariser stops."""


def generated_tree(folder: Path) -> Path:
    """Four systems with five runs of one benchmark each, 2 MB a log."""
    for system in ("box", "2xbox", "4xbox", "8xbox"):
        add_description(folder, system=system, host_processors_per_node="2", **WANTED)
        results = folder / "someone" / "results" / system / "resnet"
        results.mkdir(parents=True)
        (log,) = generated_log(results, megabytes=2)
        for run in range(1, 5):
            shutil.copyfile(log, results / f"result_{run}.txt")
    return folder


def seconds(command: Sequence[str], *, folder: Path) -> float:
    """Wall time of a command."""
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - begin


def copied(tree: Path, scratch: Path) -> list[Path]:
    """Writable copies of the submitters' folders, which the official summariser takes one at a time."""
    folders = [tree] if (tree / "results").is_dir() else [path.parent for path in sorted(tree.glob("*/results"))]
    for folder in folders:
        shutil.copytree(folder, scratch / folder.name, copy_function=shutil.copyfile)
    for path in scratch.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return [scratch / folder.name for folder in folders]


def main() -> None:
    """Print both times, their ratio and our largest process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, help="a submitter's folder, or a checkout")
    parser.add_argument("--round", default="1.1.0", help="MLPerf round (default 1.1.0)")
    parser.add_argument("--turns", type=int, default=1, help="turns of each (default 1)")
    parser.add_argument("--official", action="store_true", help="time our survey with the official checkers, too")
    options = parser.parse_args()
    name = options.round
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as made:
        scratch = Path(folder)
        tree = options.tree.resolve() if options.tree else generated_tree(Path(made))
        ours = [sys.executable, str(SURVEY), str(tree), "--round", name]
        survey_s = min(seconds(ours, folder=scratch) for _ in range(options.turns))
        largest_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        beside_s = seconds([*ours, "--official"], folder=scratch) if options.official else 0.0
        summariser = [sys.executable, "-m", "mlperf_logging.result_summarizer"]
        copies = copied(tree, scratch)
        official_s = min(
            sum(seconds([*summariser, str(copy), "training", name, "-csv", "x.csv"], folder=scratch) for copy in copies)
            for _ in range(options.turns)
        )
    print(f"{os.cpu_count()} cores; largest process of ours {largest_mib:.0f} MiB")
    print(f"survey {survey_s:.1f} s, official summariser {official_s:.1f} s, ratio {official_s / survey_s:.1f}")
    if options.official:
        print(f"survey with the official checkers beside it {beside_s:.1f} s, {beside_s - survey_s:.1f} s more")


if __name__ == "__main__":
    main()
