"""Write `summary.txt` for the terminal and `summary.rst` for the report's front page."""

import json
from pathlib import Path

from mlscaling import summary, tables
from mlscaling.planned import Planned

evidence = {
    "points": tables.read_table(snakemake.input.points, "points"),
    "scaling": tables.read_table(snakemake.input.scaling, "scaling"),
    "planned": Planned.from_file(Path(snakemake.input.planned)),
    "likeness": [json.loads(Path(file).read_text(encoding="utf-8")) for file in snakemake.input.likeness],
}
summary.write_text(summary.text_summary(**evidence), snakemake.output.text)
summary.write_text(summary.rst_summary(**evidence), snakemake.output.rst)
