"""Command line behind the rule `prepare_image`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from mlscaling.catalog import load_system
from mlscaling.files import write_json
from mlscaling.images import ImageError, prepare_image
from mlscaling.study import StudyError

CONFIG_DIR = Path(__file__).resolve().parents[3] / "config"


def main(system_name: str, *, image: str, record: Path, config_dir: Path = CONFIG_DIR) -> int:
    """Make or look at the image, write its record; 1 and one clear message where that fails.

    Args:
        image: another image than the system's, as a workload's command may name; it must be there already.
    """
    system, problems = load_system(system_name, config_dir=config_dir)
    if system is None:
        print(StudyError(problems), file=sys.stderr)
        return 1
    if image:
        system = dataclasses.replace(system, image=image, image_source="", image_sha256="")
    try:
        write_json(prepare_image(system), record)
    except ImageError as error:
        print(f"prepare_image: {error}", file=sys.stderr)
        return 1
    return 0
