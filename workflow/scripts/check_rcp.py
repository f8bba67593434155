"""Write the RCP verdict of one point, from the summaries that the compliance verdicts hold."""

from pathlib import Path

from mlscaling.files import read_json, write_json
from mlscaling.mlperf.rcp import check_point
from mlscaling.mlperf.summary import RunSummary

verdicts = [read_json(file) for file in snakemake.input.compliance]
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
write_json(verdict, snakemake.output.verdict)
