"""Write the likeness verdict of one curve: what differs between its points, and an alarm above 100 % efficiency."""

import json
from pathlib import Path

from mlscaling.likeness import likeness, read_curve

points = read_curve(
    scaling=snakemake.input.scaling,
    compliance=snakemake.input.compliance,
    records=snakemake.input.records,
    system=snakemake.wildcards.system,
    workload=snakemake.wildcards.workload,
)
verdict = likeness(points, system=snakemake.wildcards.system, workload=snakemake.wildcards.workload)
Path(snakemake.output.verdict).write_text(json.dumps(verdict, indent=1, allow_nan=False) + "\n", encoding="utf-8")
