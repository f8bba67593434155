"""Write MLPerf's description of a system at one node count, and the verdict on it, ours and the official checker's."""

from pathlib import Path

from mlscaling.described import Described
from mlscaling.system_descriptions import describe_system

describe_system(
    Described(**snakemake.params.described),
    records=[Path(file) for file in snakemake.input.records],
    compliance=[Path(file) for file in snakemake.input.compliance],
    ruleset=snakemake.params.ruleset,
    published_root=snakemake.params.published_root,
    description=Path(snakemake.output.description),
    verdict=Path(snakemake.output.verdict),
)
