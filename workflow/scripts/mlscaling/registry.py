"""Modules of a package by name, imported when asked for."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def module_names(package: str, *, without: tuple[str, ...] = ()) -> list[str]:
    """Sorted names of the plain modules in a package, without importing them."""
    paths = importlib.import_module(package).__path__
    return sorted(found.name for found in pkgutil.iter_modules(paths) if not found.ispkg and found.name not in without)


def module_by_name(package: str, name: str, *, kind: str, without: tuple[str, ...] = ()) -> ModuleType:
    """Import the module `name` of `package`.

    Raises:
        ValueError: for an unknown name, listing what exists.
    """
    names = module_names(package, without=without)
    if name not in names:
        raise ValueError(f"{kind} {name!r} is unknown; known: {', '.join(names)}")
    return importlib.import_module(f"{package}.{name}")
