"""Secrets that must not leave: searched for in every text before a bundle is written; one found stops it.

The patterns are those that the issuers document, so that tools of theirs and others find them too. What is found is
named by file, line and kind, never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

PATTERNS: Final[Mapping[str, str]] = {
    "an AWS access key": r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA)[A-Z0-9]{16}\b",
    "an AWS secret key": r"(?i:aws_?secret_?access_?key)[\"']?\s*[:=]\s*[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "a GitLab token": r"\bgl(?:pat|rt|dt|cbt)-[A-Za-z0-9_-]{20,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "an NGC or NVIDIA API key": r"\bnvapi-[A-Za-z0-9_-]{20,}",
    "a Weights & Biases key": r"(?i:wandb[\w.: -]{0,24}(?:key|token|login))[\"']?\s*[:= ]\s*[\"']?[0-9a-f]{40}\b",
    "an API key (sk-…)": r"\bsk-(?:proj-|ant-|live_|test_)?[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    "a Google API key": r"\bAIza[A-Za-z0-9_-]{35}\b",
    "a package index's token": r"\b(?:pypi-AgEI[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36})",
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "a password in a URL": r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']+:(?!\$|\*|<|%s)[^\s/@\"']+@[A-Za-z0-9]",
    "a bearer token": r"(?i:\bbearer)\s+[A-Za-z0-9._~+/-]{20,}=*",
    "credentials of HTTP": r"(?i:\bauthorization)[\"']?\s*[:=]\s*[\"']?(?i:basic)\s+[A-Za-z0-9+/]{8,}=*",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password or key": (
        r"(?i:(?:password|passwd|passphrase|secret(?:_?key)?|api[-_]?key|access_?token|auth_?token|private_token))"
        r"[\"']?\s*[:=]\s*[\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[A-Za-z0-9+/_.~!@#%^&*=-]{8,}(?![\w(\[{])"
    ),
}
"""What it is → regular expression; `(?i:…)` where the issuer's own spelling is not fixed."""
_ANY: Final = re.compile("|".join(f"(?P<_{number}>{pattern})" for number, pattern in enumerate(PATTERNS.values())))
_HINTS: Final = (
    *(b"akia", b"asia", b"agpa", b"aida", b"aroa", b"anpa", b"anva", b"secret", b"ghp_", b"gho_", b"ghu_", b"ghs_"),
    *(b"ghr_", b"github_pat", b"glpat-", b"glrt-", b"gldt-", b"glcbt-", b"hf_", b"nvapi", b"wandb", b"sk-", b"xox"),
    *(b"aiza", b"pypi-", b"npm_", b"private key", b"://", b"bearer", b"authorization", b"eyj", b"passw", b"passphrase"),
    *(
        b"api_key",
        b"api-key",
        b"apikey",
        b"access_token",
        b"accesstoken",
        b"auth_token",
        b"authtoken",
        b"private_token",
    ),
)
"""Of these, in lower case, every pattern has one: what has none is passed over at the speed of a byte search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """A place where something looks like a secret."""

    file: str
    """File."""
    line: int
    """Line, from one."""
    kind: str
    """What it looks like."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: looks like {self.kind}"


def secrets_in(texts: Iterable[tuple[str, bytes]]) -> Iterator[Secret]:
    """Places in these files, by name and content, at most one for each line."""
    for file, content in texts:
        line, position = 1, 0
        for start, end in _suspicious_lines(content):
            line += content.count(b"\n", position, start)
            position = start
            if found := _ANY.search(content[start:end].decode("utf-8", errors="replace")):
                kind = list(PATTERNS)[int((found.lastgroup or "_0")[1:])]
                yield Secret(file=file, line=line, kind=kind)


def _suspicious_lines(content: bytes) -> list[tuple[int, int]]:
    """Start and end of each line with a hint, in the order of the file."""
    lowered = content.lower()
    lines: set[tuple[int, int]] = set()
    for hint in _HINTS:
        position = lowered.find(hint)
        while position >= 0:
            end = lowered.find(b"\n", position)
            end = len(lowered) if end < 0 else end
            lines.add((lowered.rfind(b"\n", 0, position) + 1, end))
            position = lowered.find(hint, end)
    return sorted(lines)


class SecretError(ValueError):
    """Texts of a study hold what looks like a secret; the message names the places, not what stands there."""

    def __init__(self, found: list[Secret]) -> None:
        shown = [f"  {secret}" for secret in found[:20]] + [f"  and {len(found) - 20} more"] * (len(found) > 20)
        super().__init__(
            "nothing was written, since texts of the study may hold secrets:\n" + "\n".join(shown) + "\n"
            "  take them out where they come from, or name a place that is none: --no-secret FILE:LINE"
        )
