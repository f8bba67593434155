"""Bundles of studies: `python bundle.py compare A B`."""

import sys

from mlscaling.comparison.command import main

if __name__ == "__main__":
    sys.exit(main())
