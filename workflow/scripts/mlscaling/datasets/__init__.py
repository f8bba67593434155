"""Preparation of datasets: raw archive in its upstream layout → data in the loader's format and a manifest."""
