"""Write the RCP verdict of one point, from the summaries that the compliance verdicts hold."""

import json
from pathlib import Path

from mlscaling.mlperf.rcp import check_point
from mlscaling.mlperf.summary import RunSummary

verdicts = [json.loads(Path(file).read_text(encoding="utf-8")) for file in snakemake.input.compliance]
verdict = check_point(
    [RunSummary.from_dict(verdict["summary"]) for verdict in verdicts],
    benchmark=snakemake.params.benchmark,
    ruleset=snakemake.params.ruleset,
    global_batch_size=snakemake.params.global_batch_size,
    rcps=snakemake.params.rcps,
    num_runs=snakemake.params.num_runs,
    required_runs=snakemake.params.required_runs,
    logs=[Path(file) for file in snakemake.input.logs],
)
Path(snakemake.output.verdict).write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")
