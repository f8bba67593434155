"""Import budget: each Slurm job parses the Snakefile again, so that must stay light; the library knows no snakemake."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "workflow" / "scripts" / "mlscaling"
HEAVY = ("torch", "torchvision", "seaborn", "matplotlib", "pandas", "scipy", "mlperf_logging", "sklearn", "timm")


def loaded_modules(code: str) -> set[str]:
    """Top-level modules in memory after running code in a new interpreter."""
    script = f"{code}\nimport sys\nprint('\\nLOADED', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "scripts")}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("LOADED", 1)[1].split())


@pytest.mark.workflow
def test_parsing_the_snakefile_imports_nothing_heavy() -> None:
    listed = loaded_modules(
        "from snakemake.cli import main\n"
        "try: main(['--profile', 'none', '--cores', '1', '--list-rules', '--quiet'])\n"
        "except SystemExit as end: assert not end.code, end.code"
    )
    assert "mlscaling" in listed, "the Snakefile was not parsed"
    own = loaded_modules("import snakemake.cli, snakemake.workflow, snakemake.api")
    assert not (listed - own) & set(HEAVY)


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("study", HEAVY),
        ("attempts", HEAVY),
        ("plan", HEAVY),
        ("inventory.node", HEAVY),
        ("system_descriptions", HEAVY),
        ("launchers", HEAVY),
        ("metrics", ("torch", "pandas", "seaborn", "matplotlib")),
        ("tables", ("torch", "seaborn", "matplotlib")),
        ("summary", ("torch", "seaborn", "matplotlib")),
        ("mlperf.parse", HEAVY),
        ("mlperf.compliance", ("torch", "pandas", "scipy", "matplotlib")),
        ("trainer", ("snakemake", "pandas", "seaborn", "matplotlib", "sklearn")),
    ],
)
def test_modules_keep_their_import_budget(module: str, banned: tuple[str, ...]) -> None:
    assert not loaded_modules(f"import mlscaling.{module}") & set(banned)


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda path: path.relative_to(LIBRARY).as_posix())
def test_the_library_never_imports_snakemake(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "snakemake" for name in names)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "workflow" / "scripts").glob("*.py")), ids=lambda path: path.stem
)  # fmt: skip
def test_adapters_are_thin(path: Path) -> None:
    """≤ 25 lines; the two command lines hold their options instead."""
    if path.stem not in ("train", "prepare_dataset"):
        assert len(path.read_text().splitlines()) <= 25
