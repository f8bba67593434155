"""Write the compliance verdict of one run: ours and the official checker's."""

import json
from pathlib import Path

from mlscaling.mlperf.compliance import check_compliance
from mlscaling.mlperf.rounds import Target

verdict = check_compliance(
    Path(snakemake.input.log),
    ruleset=snakemake.params.ruleset,
    expected=snakemake.params.expected,
    target=Target(values={"": snakemake.params.target}, mode=snakemake.params.mode),
)
Path(snakemake.output.verdict).write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")
