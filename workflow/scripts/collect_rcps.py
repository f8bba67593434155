"""Write a workload's reference runs as RCPs in MLPerf's format, with where they come from."""

from pathlib import Path

from mlscaling.files import read_json
from mlscaling.mlperf.rcp import write_rcps
from mlscaling.mlperf.summary import RunSummary
from mlscaling.provenance import origin_of_runs

verdicts = [read_json(file) for file in snakemake.input.compliance]
records = [read_json(file) for file in snakemake.input.records]
write_rcps(
    [RunSummary.from_dict(verdict["summary"]) for verdict in verdicts],
    Path(snakemake.output.rcps),
    benchmark=snakemake.params.benchmark,
    required_runs=snakemake.params.required_runs,
    hyperparameters=snakemake.params.hyperparameters,
    **origin_of_runs(records),
)
