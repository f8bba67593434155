"""MLLOG lines of one run, written by mlperf_logging's own logger into one file by rank 0."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2]


class RunLog:
    """Writer of a run's MLLOG events; each line is in the file when the call returns, so a killed run leaves all of
    its lines.

    Ranks other than the first pass no path: the same calls then do nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._mllog: Any = None
        self._handler: logging.FileHandler | None = None
        if path is None:
            return
        from mlperf_logging.mllog.mllog import MLLogger

        self._handler = logging.FileHandler(path, mode="w", encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        # Not from logging.getLogger: a logger of its own neither propagates nor collects a second run's handler.
        logger = logging.Logger("mllog", level=logging.INFO)
        logger.addHandler(self._handler)
        # Offset 2: the caller of our method, not this file, is the call site; paths are relative to the scripts, as
        # a log is published and must not name the user's folders.
        self._mllog = MLLogger(logger=logger, default_stack_offset=2, root_dir=re.escape(str(SCRIPTS)))

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Log a point in time."""
        if self._mllog is not None:
            self._mllog.event(key=key, value=value, metadata=metadata)

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Log the start of an interval."""
        if self._mllog is not None:
            self._mllog.start(key=key, value=value, metadata=metadata)

    def stop(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Log the end of an interval."""
        if self._mllog is not None:
            self._mllog.end(key=key, value=value, metadata=metadata)

    def events(self, values: Mapping[str, Any]) -> None:
        """Log several points in time, one for each key, in the mapping's order."""
        if self._mllog is not None:
            for key, value in values.items():
                self._mllog.event(key=key, value=value)

    def close(self) -> None:
        """Flush and close the file; later calls do nothing."""
        if self._handler is not None:
            self._handler.close()
        self._mllog = self._handler = None
