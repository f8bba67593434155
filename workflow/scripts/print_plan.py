"""Print the plan: points, batch sizes, RCP status, cost, and what will be labelled."""

from pathlib import Path

from mlscaling.plan import aligned_plan, read_plan

rows = read_plan(Path(snakemake.input.plan).read_text(encoding="utf-8"))
print(aligned_plan(rows, warnings=snakemake.params.warnings))
