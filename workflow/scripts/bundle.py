"""Bundles of studies: `python bundle.py write --configfile STUDY`, `verify BUNDLE`, `compare A B`."""

import sys

from mlscaling.bundles.command import main

if __name__ == "__main__":
    sys.exit(main())
