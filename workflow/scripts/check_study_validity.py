"""Write `validated.json`, or fail and list every point that is not valid and why."""

import json
import sys
from pathlib import Path

from mlscaling import tables
from mlscaling.gate import gate, gate_message

verdict = gate(
    tables.read_table(snakemake.input.points, "points"),
    tables.read_table(snakemake.input.runs, "runs"),
)
Path(snakemake.log[0]).write_text(gate_message(verdict) + "\n", encoding="utf-8")
if not verdict["passed"]:
    sys.exit(gate_message(verdict))
Path(snakemake.output.gate).write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")
