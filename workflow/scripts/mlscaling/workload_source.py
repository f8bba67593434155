"""What a workload's module declares, read from its source: names are checked where a study is, without PyTorch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "workloads"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """Names that a workload knows; None where its module does not spell them out."""

    sizes: frozenset[str] | None
    """Keys of `full_scale`."""
    hyperparameters: frozenset[str] | None
    """Names that it asks `hyperparameter()` for."""
    static_shapes: bool
    """Whether every training batch has the same shapes."""


@cache
def declared(name: str) -> Declared:
    """What the module of a workload declares.

    Raises:
        FileNotFoundError: there is no such module.
    """
    trees = [ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8")) for module in (name, "base")]
    asked = [argument for tree in trees for argument in _arguments_of(tree, "hyperparameter")]
    names = {argument.value for argument in asked if isinstance(argument, ast.Constant)}
    complete = all(isinstance(argument, ast.Constant) for argument in asked)
    shapes = _class_value(trees[0], "static_shapes")
    sizes = _class_value(trees[0], "full_scale")
    return Declared(
        sizes=_keys(sizes) if isinstance(sizes, ast.Dict) else None,
        hyperparameters=frozenset(str(name) for name in names) if complete else None,
        static_shapes=isinstance(shapes, ast.Constant) and shapes.value is True,
    )


def _arguments_of(tree: ast.AST, method: str) -> Iterator[ast.expr]:
    """First argument of every call of a method of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield (node.args or [keyword.value for keyword in node.keywords])[0]


def _class_value(tree: ast.AST, name: str) -> ast.expr | None:
    """Value of a class attribute, of whichever class has it."""
    for found in ast.walk(tree):
        for node in found.body if isinstance(found, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return node.value
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
                return node.value
    return None


def _keys(mapping: ast.Dict) -> frozenset[str] | None:
    keys = [key.value for key in mapping.keys if isinstance(key, ast.Constant)]
    return frozenset(map(str, keys)) if len(keys) == len(mapping.keys) else None
