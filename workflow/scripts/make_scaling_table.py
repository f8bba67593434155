"""Write `scaling.csv`: speed-up and decomposed efficiency of each point over its curve's smallest node count."""

from pathlib import Path

from mlscaling import scoring, tables
from mlscaling.planned import Planned

tables.write_table(
    scoring.scaling_table(
        tables.read_table(snakemake.input.points, "points"),
        tables.read_table(snakemake.input.runs, "runs"),
        Planned.from_file(Path(snakemake.input.planned)),
    ),
    snakemake.output.table,
)
