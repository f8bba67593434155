"""Write `planned.json`, what is planned, and `plan.tsv`, the same for people with RCP status and cost."""

import json
from pathlib import Path

from mlscaling.plan import plan_rows, plan_text

planned = snakemake.params.planned
Path(snakemake.output.planned).write_text(json.dumps(planned, indent=1) + "\n", encoding="utf-8")
Path(snakemake.output.plan).write_text(plan_text(plan_rows(planned, base=Path.cwd())), encoding="utf-8")
