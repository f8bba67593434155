"""What wraps the command of each rank. Each runtime is one registered pure function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CONTAINERS: dict[str, Callable[[ContainerRequest], list[str]]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRequest:
    """What a runtime needs to know."""

    command: Sequence[str]
    """Command of one rank."""
    image: str = ""
    """Image by path or by digest."""
    mounts: Sequence[tuple[str, str]] = field(default=())
    """Folders to bind: (host, container)."""


def register(name: str) -> Callable[[Callable[[ContainerRequest], list[str]]], Callable[[ContainerRequest], list[str]]]:
    """Add a runtime under its configuration name; a second one of that name is an error."""

    def add(function: Callable[[ContainerRequest], list[str]]) -> Callable[[ContainerRequest], list[str]]:
        if name in CONTAINERS:
            raise ValueError(f"container runtime {name} is registered twice")
        CONTAINERS[name] = function
        return function

    return add


def wrap(name: str, request: ContainerRequest) -> list[str]:
    """Command of one rank inside the runtime.

    Raises:
        ValueError: no runtime of that name; lists what exists.
    """
    if name not in CONTAINERS:
        raise ValueError(f"unknown container runtime {name!r}; legal values: {', '.join(sorted(CONTAINERS))}")
    return CONTAINERS[name](request)


@register("none")
def none(request: ContainerRequest) -> list[str]:
    """The command as it is."""
    return list(request.command)


def image_identity(image: str) -> str:
    """Digest by which an image is named, `…@sha256:<64 digits>`; empty where its name does not tell."""
    match = re.search(r"@(sha256:[0-9a-f]{64})$", image)
    return match[1] if match else ""
