"""Bytes of a log as text and back, whatever encoding a cluster wrote; no byte is lost on the way."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""What PowerShell's redirection writes."""
_PROBE: Final = 1 << 16
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\x1b\b\f\v"))
_MAX_ODD: Final = 0.05
"""Share of control characters up to which something is text: a log may hold a few, a binary file holds many."""


def encoding_of(content: bytes) -> str:
    """`utf-8`, a flavour of UTF-16, or empty for what is no text."""
    wide = _MARKS.get(content[:2], "")
    if wide or b"\0" not in content:
        return wide or "utf-8"
    probe = content[: _PROBE - _PROBE % 2]
    for name, zeros in (("utf-16-le", probe[1::2]), ("utf-16-be", probe[0::2])):
        if zeros.count(0) > 0.9 * len(zeros) and len(content) % 2 == 0:
            return name
    odd = len(content) - len(content.translate(None, _CONTROLS))
    return "utf-8" if odd <= _MAX_ODD * len(content) else ""


def decoded(content: bytes, encoding: str) -> str:
    """As text; bytes that are none of the encoding's are kept as surrogates."""
    return content.decode(encoding, errors="surrogateescape" if encoding == "utf-8" else "surrogatepass")


def encoded(text: str, encoding: str) -> bytes:
    """Inverse of `decoded`."""
    return text.encode(encoding, errors="surrogateescape" if encoding == "utf-8" else "surrogatepass")
