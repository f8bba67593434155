"""Write `summary.txt` for the terminal and `summary.rst` for the report's front page."""

from pathlib import Path

from mlscaling import summary, tables
from mlscaling.planned import Planned

points = tables.read_table(snakemake.input.points, "points")
scaling = tables.read_table(snakemake.input.scaling, "scaling")
planned = Planned.from_file(Path(snakemake.input.planned))
summary.write_text(summary.text_summary(points, scaling, planned), snakemake.output.text)
summary.write_text(summary.rst_summary(points, scaling, planned), snakemake.output.rst)
