"""Write `points.csv`: one row for each point, with its score, intervals, RCP and verdict."""

from pathlib import Path

from mlscaling import evidence, scoring, tables
from mlscaling.planned import Planned

tables.write_table(
    scoring.points_table(
        tables.read_table(snakemake.input.runs, "runs"),
        Planned.from_file(Path(snakemake.input.planned)),
        rcps=evidence.read_rcp(snakemake.input.rcp),
    ),
    snakemake.output.table,
)
