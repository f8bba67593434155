"""Draw one figure: SVG, PNG, the CSV of what it draws, and its caption."""

from pathlib import Path

from mlscaling import evidence, plots, tables
from mlscaling.planned import Planned

plots.write(
    snakemake.wildcards.plot,
    runs=tables.read_table(snakemake.input.runs, "runs"),
    points=tables.read_table(snakemake.input.points, "points"),
    scaling=tables.read_table(snakemake.input.scaling, "scaling"),
    context=plots.Context(
        planned=Planned.from_file(Path(snakemake.input.planned)),
        rcps=evidence.read_rcp(snakemake.input.rcp),
        network=tables.read_table(snakemake.input.network, "network"),
    ),
    outputs={name: Path(snakemake.output[name]) for name in ("svg", "png", "csv", "caption")},
)
