"""Copy one published log into its place, with a run record that says where it comes from."""

from pathlib import Path

from mlscaling.published_import import import_run

import_run(
    Path(snakemake.input.log),
    root=Path(snakemake.params.root),
    submitter=snakemake.params.submitter,
    system=snakemake.params.system,
    benchmark=snakemake.params.benchmark,
    log_output=Path(snakemake.output.log),
    record_output=Path(snakemake.output.record),
)
