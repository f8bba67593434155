"""Library of the scaling-study workflow. It never imports snakemake; heavy imports happen where they are used."""
