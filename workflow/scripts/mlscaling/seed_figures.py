"""The three figures of the vendor's study, from committed facts: nothing is downloaded, nothing is trained."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlscaling import mlcommons

if TYPE_CHECKING:
    import pandas as pd

    from mlscaling.published_study import PublishedStudy
    from mlscaling.seed_text import VendorText

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCE: Final = "github.com/mlcommons/training_results_v1.1"
CURVES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "r750xa_resnet": ("R750xax4A100-PCIE-80GB", "PowerEdge R750xa, 4 A100 PCIe 80 GB each", ("resnet",)),
    "xe8545": ("XE8545x4A100-SXM-80GB", "PowerEdge XE8545, 4 A100 SXM 80 GB each", ()),
    "rnnt_revised": ("XE8545x4A100-SXM-80GB", "PowerEdge XE8545, 4 A100 SXM 80 GB each", ()),
}
"""Module of the figure, in their order → one-node system, its title, benchmarks (all five where empty)."""
FIVE: Final = ("bert", "maskrcnn", "resnet", "rnnt", "ssd")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 and one clear message where the user can help."""
    parser = argparse.ArgumentParser(prog="seed_figures.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--facts", type=Path, default=ROOT / "config" / "published" / "dell_v1.1.csv")
    parser.add_argument("--text", type=Path, default=ROOT / "config" / "published" / "seed_text.yaml")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "seed", help="folder of the figures")
    options = parser.parse_args(arguments)
    try:
        for path in write_figures(facts=options.facts, text=options.text, output=options.output):
            print(path)
    except (OSError, ValueError) as error:
        print(f"seed_figures: {error}", file=sys.stderr)
        return 1
    return 0


def write_figures(*, facts: Path, text: Path, output: Path) -> Iterator[Path]:
    """Write `figure_{1,2,3}.{svg,png,csv,rst}`; the same facts give the same bytes.

    Raises:
        ValueError: facts or text are not as they should be; names file, line or key.
    """
    from mlscaling.facts import read_facts
    from mlscaling.files import write_text
    from mlscaling.plots import style
    from mlscaling.seed_text import read_text
    from mlscaling.tables import write_table

    table, claims = read_facts(facts), read_text(text)
    output.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CURVES, start=1):
        module = importlib.import_module(f"mlscaling.plots.seed.{name}")
        keywords = keywords_of(name, facts=table, text=claims)
        paths = {form: output / f"figure_{number}.{form}" for form in ("svg", "png", "csv", "rst")}
        figure = module.draw(**keywords)
        style.save(figure, paths["svg"], form="svg")
        style.save(figure, paths["png"], form="png")
        write_table(module.data(**keywords), paths["csv"])
        write_text(module.caption(**keywords), paths["rst"])
        yield from paths.values()


def keywords_of(name: str, *, facts: pd.DataFrame, text: VendorText) -> dict[str, Any]:
    """What a figure's functions take."""
    from mlscaling.plots import Context

    study = study_of_figure(name, facts=facts, text=text)
    keywords: dict[str, Any] = {"runs": study.runs, "points": study.points, "scaling": study.scaling}
    keywords["context"] = Context(planned=study.planned, rcps=study.rcps)
    return keywords | ({"claims": text.claims} if name == "rnnt_revised" else {})


def study_of_figure(name: str, *, facts: pd.DataFrame, text: VendorText) -> PublishedStudy:
    """The curves of a figure, with the footnotes that its content asks for."""
    from mlscaling.published_study import study_of

    system, title, benchmarks = CURVES[name]
    unverified = _unverified(text) if name == "rnnt_revised" else ()
    notes = mlcommons.footnotes(
        facts["round"].iloc[0],
        facts["division"].iloc[0],
        submitters=sorted(set(facts["submitter"])),
        source=SOURCE,
        unverified=unverified,
    )
    return study_of(
        facts,
        study="seed",
        title="Published multi-node results",
        system=system,
        benchmarks=benchmarks or FIVE,
        system_title=title,
        notes=notes,
    )


def _unverified(text: VendorText) -> list[str]:
    """Times that nobody but the text vouches for."""
    from mlscaling.published_study import TITLES

    claims = [claim for claim in text.claims if not claim.verified]
    shown = [f"{TITLES[claim.benchmark]} {claim.value:g} {claim.unit} on {claim.nodes} node" for claim in claims]
    host = text.url.split("/")[2] if "//" in text.url else text.url
    return [f"{', '.join(shown)}, from “{text.title}” ({host}, {text.date})"] if shown else []
