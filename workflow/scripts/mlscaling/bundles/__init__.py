"""Bundles: a study as one archive that others can read, and verify without cluster, dataset or torch."""
