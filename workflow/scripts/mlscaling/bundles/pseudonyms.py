"""Identities replaced by pseudonyms, the same one in every text of a bundle; which is whose stays with its owner.

Pseudonyms depend on the texts alone, so that a study gives the same bundle in whatever folder it lies: identities of a
kind are numbered in their natural order. Addresses become those that are reserved for such use: 198.18.0.0/15
(RFC 2544), 2001:db8::/32 (RFC 3849), 02:… (locally administered) and example.org (RFC 2606).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mlscaling.bundles.identities import KINDS, PLACES, Identity

_MIN_LENGTH: Final = 3
"""Of a name that is replaced wherever it stands; a shorter one only where its place says what it is."""
_NAMES: Final = ("user", "host", "account")
"""Kinds that may also be words."""
WORDS: Final = frozenset({
    "node", "nodes", "rank", "ranks", "host", "hosts", "name", "main", "master", "worker", "local", "cpu", "gpu",
    "cuda", "gloo", "nccl", "mpi", "torch", "python", "train", "data", "run", "runs", "attempt", "slurm", "srun",
    "system", "study", "result", "results", "time", "error", "warning", "info", "note", "value", "log", "file",
    "line", "job",
})  # fmt: skip
"""Words of logs and records, beside those of the study."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pseudonyms:
    """What is replaced by what."""

    names: Mapping[str, str]
    """Identity → pseudonym."""
    everywhere: re.Pattern[str] | None
    """Finds identities that are replaced wherever they stand; None where there are none."""
    in_place: Mapping[str, frozenset[str]]
    """Kind → identities that are replaced only where their place says what they are."""

    def replaced(self, text: str) -> str:
        """The text with pseudonyms."""
        for kind, names in self.in_place.items():
            for pattern in PLACES[kind]:
                text = pattern.sub(partial(self._in_its_place, names=names), text)
        return self.everywhere.sub(lambda match: self._pseudonym(match[0]), text) if self.everywhere else text

    def _in_its_place(self, match: re.Match[str], *, names: frozenset[str]) -> str:
        name = match["name"]
        if name.lower() not in names:
            return match[0]
        start, end = (position - match.start() for position in match.span("name"))
        return match[0][:start] + self._pseudonym(name) + match[0][end:]

    def _pseudonym(self, text: str) -> str:
        return self.names[text if text in self.names else text.lower()]


def pseudonyms_for(found: Iterable[Identity], *, vocabulary: Iterable[str]) -> Pseudonyms:
    """Pseudonyms for identities.

    Args:
        found: what is to be replaced.
        vocabulary: words of the study, which are replaced only where their place says that they name somebody.
    """
    found = set(found)
    words = {word.lower() for word in vocabulary} | WORDS
    by_kind = {kind: {item.text for item in found if item.kind == kind} for kind in KINDS}
    domains = {domain for host in by_kind["host"] if "." in (domain := host.partition(".")[2])}
    by_kind["host"] = {host.partition(".")[0] for host in by_kind["host"]}
    names = dict.fromkeys(domains, "example.org")
    for kind in reversed(KINDS):  # a text of two kinds, e.g. user and host, is what comes first in the list
        names |= {text: _numbered(kind, number) for number, text in enumerate(sorted(by_kind[kind], key=_natural))}
    placed = {
        kind: frozenset(text for text in by_kind[kind] if text in words or len(text) < _MIN_LENGTH) for kind in _NAMES
    }
    free = names.keys() - frozenset().union(*placed.values())
    pattern = "|".join(_bounded(text) for text in sorted(free, key=lambda text: (-len(text), text)))
    return Pseudonyms(
        names=names,
        everywhere=re.compile(pattern, re.IGNORECASE) if free else None,
        in_place={kind: texts for kind, texts in placed.items() if texts},
    )


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """`node2` before `node10`."""
    parts = (part for part in re.split(r"(\d+)", text) if part)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _bounded(text: str) -> str:
    """A folder ends where its name can end, an address is no part of a longer number, a name of no longer word."""
    if text.startswith("/"):
        return rf"(?<![\w.~-]){re.escape(text)}(?![\w.-]*\w)"
    if re.fullmatch(r"[\d.]+", text):
        return rf"(?<![\w.]){re.escape(text)}(?!\w|\.\d)"
    return rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])"


def _numbered(kind: str, number: int) -> str:
    high, low = divmod(number, 250)
    return {
        "user": f"user{number + 1}",
        "host": f"host{number + 1}",
        "account": f"account{number + 1}",
        "email": f"user{number + 1}@example.org",
        "mac": f"02:00:00:{high // 256 % 256:02x}:{high % 256:02x}:{low + 1:02x}",
        "ipv4": f"198.{18 + high // 256 % 2}.{high % 256}.{low + 1}",
        "ipv6": f"2001:db8::{number + 1:x}",
        "device": f"GPU-00000000-0000-0000-0000-{number + 1:012x}",
        "folder": f"/folder{number + 1}",
    }[kind]
