"""Write `runs.csv`: one row for every planned run."""

from pathlib import Path

from mlscaling import evidence, runs, tables
from mlscaling.planned import Planned

tables.write_table(
    runs.runs_table(
        Planned.from_file(Path(snakemake.input.planned)),
        compliance=evidence.read_compliance(snakemake.input.compliance),
        attempts=evidence.read_attempts(snakemake.params.attempts_dir),
    ),
    snakemake.output.table,
)
