"""What every figure must keep, whatever it draws (tests only)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def check_legible(figure: Any, texts: Sequence[Any]) -> None:
    """Print width, fonts of 8 pt or more, and texts that neither leave the figure nor cover each other."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    assert figure.get_size_inches()[0] == 6.5
    assert all(text.get_fontsize() >= 8 for text in texts)
    for content, box in boxes:
        assert box.x0 >= 0, content
        assert box.y0 >= 0, content
        assert box.x1 <= figure.bbox.x1, content
        assert box.y1 <= figure.bbox.y1, content
    for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
        assert not box.overlaps(other_box), f"{one!r} covers {other!r}"
