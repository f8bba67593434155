"""Where ranks really ran: each prints one line about itself, and the attempt keeps what they said."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

_LINE = re.compile(r"mlscaling rank (?P<rank>\d+) of \d+ is on (?P<host>\S+) (?P<address>\S+)$")


def line_of_rank(rank: int, *, world_size: int) -> str:
    """What a rank prints when it starts."""
    host = socket.gethostname()
    return f"mlscaling rank {rank} of {world_size} is on {host} {own_address()}"


def said_by_ranks(lines: Iterable[str]) -> tuple[dict[str, int | str], ...]:
    """Rank, host and address of every rank that said so, in order of ranks."""
    found = [match.groupdict() for line in lines if (match := _LINE.search(line.rstrip()))]
    places = ({"rank": int(place["rank"]), "host": place["host"], "address": place["address"]} for place in found)
    return tuple(sorted(places, key=lambda place: place["rank"]))


def own_address() -> str:
    """Address that this host has for its own name, which is also where gloo listens; `unknown` if it has none."""
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0])
    except OSError:
        return "unknown"
