"""Survey a published MLPerf results tree: `python survey.py TREE --round 1.1.0 [--official] [--csv FILE]`."""

import sys

from mlscaling.survey_command import main

if __name__ == "__main__":
    sys.exit(main())
