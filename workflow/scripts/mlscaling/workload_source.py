"""What a workload's module declares, read from its source: names are checked where a study is, without PyTorch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from mlscaling.sources import PACKAGE, SCRIPTS, sources_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """Names that a workload knows."""

    sizes: frozenset[str] | None
    """Keys of `full_scale`; None where its module does not spell them out."""
    hyperparameters: frozenset[str]
    """Names that it asks `hyperparameter()` for."""
    static_shapes: bool
    """Whether every training batch has the same shapes."""


@cache
def declared(name: str) -> Declared:
    """What the module of a workload, and those of the library that it imports, declare.

    Raises:
        ValueError: there is no such module.
    """
    own = f"{PACKAGE}/workloads/{name}.py"
    trees = [_tree(own), *(_tree(file) for file in sources_of(own) if file != own)]
    sizes, shapes = (_class_value(trees, attribute) for attribute in ("full_scale", "static_shapes"))
    return Declared(
        sizes=_keys(sizes) if isinstance(sizes, ast.Dict) else None,
        hyperparameters=frozenset(found for tree in trees for found in _asked_for(tree)),
        static_shapes=isinstance(shapes, ast.Constant) and shapes.value is True,
    )


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((SCRIPTS / file).read_text(encoding="utf-8"), filename=file)


def _asked_for(tree: ast.Module) -> Iterator[str]:
    """Names in calls of `hyperparameter`; where some are variables, also those in the module's lists of names."""
    asked = list(_arguments_of(tree, "hyperparameter"))
    yield from (value.value for value in asked if _is_text(value))  # type: ignore[attr-defined]
    if not all(_is_text(argument) for argument in asked):
        for node in ast.walk(tree):
            if isinstance(node, ast.Tuple | ast.List) and all(_is_text(value) for value in node.elts):
                yield from (value.value for value in node.elts)  # type: ignore[attr-defined]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _arguments_of(tree: ast.AST, method: str) -> Iterator[ast.expr]:
    """First argument of every call of a method of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield (node.args or [keyword.value for keyword in node.keywords])[0]


def _class_value(trees: Sequence[ast.Module], name: str) -> ast.expr | None:
    """Value of a class attribute, of the first class that has it."""
    classes = (found for tree in trees for found in ast.walk(tree) if isinstance(found, ast.ClassDef))
    for node in (node for found in classes for node in found.body):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and node.value is not None:
            return node.value
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            return node.value
    return None


def _keys(mapping: ast.Dict) -> frozenset[str] | None:
    keys = [key.value for key in mapping.keys if isinstance(key, ast.Constant)]
    return frozenset(map(str, keys)) if len(keys) == len(mapping.keys) else None
