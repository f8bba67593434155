"""Write `summary.txt` for the terminal and `summary.rst` for the report's front page."""

from pathlib import Path

from mlscaling import files, summary, tables
from mlscaling.planned import Planned

evidence = {
    "points": tables.read_table(snakemake.input.points, "points"),
    "scaling": tables.read_table(snakemake.input.scaling, "scaling"),
    "planned": Planned.from_file(Path(snakemake.input.planned)),
    "network": tables.read_table(snakemake.input.network, "network"),
    "likeness": [files.read_json(file) for file in snakemake.input.likeness],
    "descriptions": [files.read_json(file) for file in snakemake.input.descriptions],
}
files.write_text(summary.text_summary(**evidence), snakemake.output.text)
files.write_text(summary.rst_summary(**evidence), snakemake.output.rst)
