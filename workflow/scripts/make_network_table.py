"""Write `network.csv`: what the preflight of each run measured, a row for each message size."""

from pathlib import Path

from mlscaling import evidence, network_table, tables
from mlscaling.planned import Planned

tables.write_table(
    network_table.network_table(
        Planned.from_file(Path(snakemake.input.planned)),
        records=evidence.read_runs(snakemake.input.records),
        attempts=network_table.read_preflights(snakemake.params.attempts_dir),
    ),
    snakemake.output.table,
)
