"""Write `validated.json`, or fail and list every point that is not valid and why."""

import sys

from mlscaling import files, tables
from mlscaling.gate import gate, gate_message

verdict = gate(
    tables.read_table(snakemake.input.points, "points"),
    tables.read_table(snakemake.input.runs, "runs"),
)
files.write_text(gate_message(verdict) + "\n", snakemake.log[0])
if not verdict["passed"]:
    sys.exit(gate_message(verdict))
files.write_json(verdict, snakemake.output.gate)
