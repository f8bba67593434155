"""Write and print what each point of the study would start."""

from pathlib import Path

from mlscaling.files import write_text

write_text(snakemake.params.text, Path(snakemake.output.text))
print(snakemake.params.text)
