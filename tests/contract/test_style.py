"""Style, types and lints; each is a command that can be typed by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {
    "ruff check": [sys.executable, "-m", "ruff", "check", "."],
    "ruff format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "mypy": [sys.executable, "-m", "mypy"],
    "snakefmt": [sys.executable, "-m", "snakefmt", "--check", "Snakefile", "rules"],
    "snakemake --lint": [sys.executable, "-m", "snakemake", "--lint"],
}


@pytest.mark.parametrize("name", TOOLS)
def test_clean(name: str) -> None:
    done = subprocess.run(TOOLS[name], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long() -> None:
    """A file past 300 lines usually does two things; tests and their tables of cases may be longer."""
    limits = {"workflow": 300, "rules": 300, "benchmarks": 300, "tests": 450}
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for folder, limit in limits.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".smk") and (lines := len(path.read_text().splitlines())) > limit
    }
    assert long == {}
    assert len((ROOT / "Snakefile").read_text().splitlines()) <= 75
