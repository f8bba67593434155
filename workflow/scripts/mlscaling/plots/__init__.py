"""Figures: one module each, with `draw`, `data` and `caption`; its docstring starts the caption.

All three take the keywords `runs`, `points`, `scaling` (the tables) and `context`. `data` returns exactly the rows that
`draw` draws. Adding a figure is adding a module; modules that start with an underscore and `style` are no figures.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pandas as pd

from mlscaling.evidence import Record
from mlscaling.planned import Planned
from mlscaling.tables import table

NO_FIGURES = ("style",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What a figure needs beside the tables."""

    planned: Planned
    """Titles, emulation, notes."""
    rcps: Mapping[str, Record] = field(default_factory=dict)
    """Point path → `rcp.json`."""
    network: pd.DataFrame = field(default_factory=lambda: table([], kind="network"))
    """The network table."""


def names() -> list[str]:
    """All figures there are."""
    found = (module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return sorted(name for name in found if name not in NO_FIGURES and not name.startswith("_"))


def module_of(name: str) -> ModuleType:
    """The figure's module; imports no other figure.

    Raises:
        ValueError: there is no such figure; lists those there are.
    """
    if name not in names():
        raise ValueError(f"there is no figure {name!r}; legal values: {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def write(
    name: str,
    *,
    runs: pd.DataFrame,
    points: pd.DataFrame,
    scaling: pd.DataFrame,
    context: Context,
    outputs: Mapping[str, Path],
) -> None:
    """Draw a figure into files; the same tables give the same bytes.

    Args:
        name: figure.
        runs, points, scaling: the tables.
        context: titles, RCP verdicts and network table.
        outputs: paths by `svg`, `png`, `csv`, `caption`.
    """
    from mlscaling.files import write_text
    from mlscaling.plots import style
    from mlscaling.tables import write_table

    module = module_of(name)
    figure = module.draw(runs=runs, points=points, scaling=scaling, context=context)
    for form in ("svg", "png"):
        style.save(figure, outputs[form], form=form)
    write_table(module.data(runs=runs, points=points, scaling=scaling, context=context), outputs["csv"])
    caption = module.caption(runs=runs, points=points, scaling=scaling, context=context)
    write_text(caption, outputs["caption"])
