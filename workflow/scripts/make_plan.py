"""Write `planned.json`, what is planned, and `plan.tsv`, the same for people with RCP status and cost."""

from pathlib import Path

from mlscaling.files import write_json, write_text
from mlscaling.plan import plan_rows, plan_text

planned = snakemake.params.planned
write_json(planned, snakemake.output.planned)
write_text(plan_text(plan_rows(planned, base=Path.cwd())), snakemake.output.plan)
