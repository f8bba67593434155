"""What MLCommons asks of everybody who shows MLPerf results: round, division, submitter, what is verified, trademarks.

Source: MLPerf Results Messaging Guidelines (mlcommons/policies), sections on unverified results and on footnotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TRADEMARK: Final = (
    "The MLPerf name and logo are registered and unregistered trademarks of MLCommons Association in the United States "
    "and other countries. All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org for more "
    "information."
)
NOT_VERIFIED: Final = "Result not verified by MLCommons Association."
"""The words that the guidelines prescribe."""


def footnotes(
    round_name: str, division: str, *, submitters: Sequence[str], source: str, unverified: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences that a figure of published results must carry.

    Args:
        round_name: e.g. `1.1.0`.
        division: closed or open.
        submitters: whose results they are.
        source: where the logs are.
        unverified: what is shown besides that MLCommons has not verified, in words; the derived ratios always are.
    """
    published = (
        f"MLPerf Training {short_round(round_name)}, {division} division, {', '.join(submitters)}: times from the "
        f"published logs ({source})."
    )
    derived = (
        "Speed-up and efficiency are derived from them here; they are no MLPerf metrics and not verified by MLCommons "
        "Association."
    )
    marked = [f"Unverified: {'; '.join(unverified)}. {NOT_VERIFIED}"] if unverified else []
    return (published, derived, *marked, TRADEMARK)


def short_round(name: str) -> str:
    """A round as MLCommons writes it: `v1.1` for `1.1.0`."""
    return "v" + ".".join(name.split(".")[:2])
