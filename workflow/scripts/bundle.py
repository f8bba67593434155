"""Bundles of studies: `python bundle.py write --configfile STUDY`, `python bundle.py verify BUNDLE`."""

import sys

from mlscaling.bundles.command import main

if __name__ == "__main__":
    sys.exit(main())
