"""Draw the three figures of the vendor's study: `python seed_figures.py [--output DIR]`."""

import sys

from mlscaling.seed_figures import main

if __name__ == "__main__":
    sys.exit(main())
