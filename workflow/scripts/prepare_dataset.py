"""Prepare one dataset: `python prepare_dataset.py --dataset-spec JSON --raw-dir D --data-dir D --manifest FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from mlscaling.datasets.preparation import prepare_dataset
from mlscaling.spec import DatasetSpec


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 1 and one clear message where the user can help."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--dataset-spec", required=True, help="JSON of DatasetSpec")
    parser.add_argument("--raw-dir", required=True, type=Path, help="raw files, as given out")
    parser.add_argument("--data-dir", required=True, type=Path, help="prepared data of this dataset")
    parser.add_argument("--manifest", required=True, type=Path, help="written last")
    parser.add_argument("--num-processes", type=int, default=1, help="processes that prepare in parallel")
    options = parser.parse_args(arguments)
    try:
        prepare_dataset(
            DatasetSpec(**json.loads(options.dataset_spec)),
            raw_dir=options.raw_dir,
            data_dir=options.data_dir,
            manifest=options.manifest,
            num_processes=options.num_processes,
        )
    except (OSError, TypeError, ValueError) as error:
        print(f"prepare_dataset: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
