"""Write the compliance verdict of one run: ours and the official checker's."""

from pathlib import Path

from mlscaling.files import read_json, write_json
from mlscaling.mlperf.compliance import check_compliance
from mlscaling.mlperf.rounds import Target

target, mode = snakemake.params.target, snakemake.params.mode
verdict = check_compliance(
    Path(snakemake.input.log),
    ruleset=snakemake.params.ruleset,
    expected=snakemake.params.expected,
    published_sha256=read_json(snakemake.input.record)["log_sha256"],
    target=None if target is None else Target.of(target, mode=mode),
)
write_json(verdict, snakemake.output.verdict)
