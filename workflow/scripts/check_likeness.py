"""Write the likeness verdict of one curve: what differs between its points, and an alarm above 100 % efficiency."""

from mlscaling.files import write_json
from mlscaling.likeness import likeness, read_curve

points = read_curve(
    scaling=snakemake.input.scaling,
    compliance=snakemake.input.compliance,
    records=snakemake.input.records,
    system=snakemake.wildcards.system,
    workload=snakemake.wildcards.workload,
)
verdict = likeness(points, system=snakemake.wildcards.system, workload=snakemake.wildcards.workload)
write_json(verdict, snakemake.output.verdict)
