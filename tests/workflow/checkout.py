"""A copy of the repository in which snakemake runs with a small study."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUDY = """\
study: trained
title: a study that the tests train
round: "1.1.0"
scale: tiny
curves:
  - {workload: resnet, system: emulated_cpu, nodes: [1, 2], weak: {local_batch_size: 64}, runs: 3}
  - {workload: bert, system: emulated_cpu, nodes: [1], weak: {local_batch_size: 32}, runs: 3}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A copy of the repository in which snakemake runs."""

    path: Path
    """Its top folder."""

    def snakemake(self, *arguments: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run snakemake with the local profile and the study of the tests."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.path,
            env=self.environment(variables),
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def command(self, *arguments: str) -> list[str]:
        """The command that `snakemake` runs. Targets come first: `--configfile` takes all words behind it for files."""
        configfile = [] if "--configfile" in arguments else ["--configfile", "study.yaml"]
        return [sys.executable, "-m", "snakemake", *arguments, "--profile", "profiles/local", *configfile]

    def environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment in which `python` is the tests' own."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, **(variables or {})}

    def planned_jobs(self, *arguments: str) -> dict[str, int]:
        """Rule → number of jobs that a dry run would start."""
        done = self.snakemake("--dry-run", *arguments)
        jobs: dict[str, int] = {}
        for line in (done.stdout + done.stderr).splitlines():
            words = line.split()
            if len(words) >= 2 and words[-1].isdigit() and words[0] != "total":
                jobs["_".join(words[:-1])] = int(words[-1])
        jobs.pop("all", None)
        return jobs

    def results(self, *parts: str) -> Path:
        """Path below the study's results."""
        return self.path.joinpath("results", "trained", *parts)


def copy_of_repository(target: Path) -> Checkout:
    """The files that git knows or would add, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            destination = target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, destination)
    (target / "study.yaml").write_text(STUDY)
    return Checkout(path=target)
