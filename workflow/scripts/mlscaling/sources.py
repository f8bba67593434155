"""Which files of the library a script uses, read from its imports, so that a rule can declare them as inputs.

A list by hand would drift; with this one, editing a module re-runs what it makes and nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
PACKAGE = Path(__file__).resolve().parent.name


def sources_of(*files: str) -> list[str]:
    """Files below `workflow/scripts/`, relative to it: the given ones and all of the library that they import, sorted.

    Raises:
        ValueError: a given file does not exist.
    """
    missing = [file for file in files if not (SCRIPTS / file).is_file()]
    if missing:
        raise ValueError(f"no such file below {SCRIPTS}: {', '.join(missing)}")
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imports(file)
    return sorted(found)


@cache
def _imports(file: str) -> tuple[str, ...]:
    tree = ast.parse((SCRIPTS / file).read_text(encoding="utf-8"), filename=file)
    return tuple(path for name in _imported_names(tree) for path in _paths(name))


def _imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _paths(name: str) -> Iterator[str]:
    """Files that hold the module of that name; none if it is not ours, or names something inside a module."""
    if name.split(".")[0] != PACKAGE:
        return
    path = Path(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if (SCRIPTS / candidate).is_file():
            yield candidate.as_posix()
