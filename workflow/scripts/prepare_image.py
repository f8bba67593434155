"""Make a system's container image, or look at one that is there: `prepare_image.py --system NAME --record FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mlscaling.prepare_image import main

parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
parser.add_argument("--system", required=True, help="name of a file in config/systems")
parser.add_argument("--image", default="", help="another image than the system's")
parser.add_argument("--record", required=True, type=Path, help="record to write")
options = parser.parse_args()
sys.exit(main(options.system, image=options.image, record=options.record))
