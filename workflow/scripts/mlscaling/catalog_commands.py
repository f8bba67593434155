"""What `config/` says of containers and of implementations that are commands, with what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlscaling import containers, vendor
from mlscaling.configuration import Problem
from mlscaling.spec import CommandSpec, with_tuples


def problems_of_container(data: Mapping[str, Any], *, file: str) -> list[Problem]:
    """What is wrong with the container of a system's file; a tag is a warning."""
    runtime, image = data["container"], data["image"]
    problems = [
        Problem(file=file, key=f"mounts[{number}]", value=mount, message=str(error))
        for number, mount in enumerate(data["mounts"])
        if (error := _error_of(containers.mount_of, mount))
    ]
    if runtime == "none":
        return problems
    if runtime == "pyxis" and data["launcher"] not in ("srun", "torchrun"):
        message = "pyxis is a plugin of srun; launchers that start ranks by it: srun, torchrun"
        problems.append(Problem(file=file, key="launcher", value=data["launcher"], message=message))
    if not image:
        message = f"container {runtime} needs an image"
        problems.append(Problem(file=file, key="image", value="", message=message))
    elif not containers.is_pinned(image) and not data["image_sha256"]:
        message = "is a tag, which can become another image; a path, a digest (name@sha256:…) or image_sha256 pins it"
        problems.append(Problem(file=file, key="image", value=image, message=message, severity="warning"))
    return problems


def _error_of(function: Callable[[str], object], text: str) -> str:
    try:
        function(text)
    except ValueError as error:
        return str(error)
    return ""


def command_of_workload(data: Mapping[str, Any], *, file: str) -> tuple[CommandSpec | None, list[Problem]]:
    """The command of a workload that one implements, and what is wrong with it."""
    given = data.get("command")
    if data["implementation"] == "module" and given:
        message = "is used where implementation is command, not module"
        return None, [Problem(file=file, key="command", value=None, message=message)]
    if data["implementation"] == "module":
        return None, []
    if not given:
        return None, [
            Problem(file=file, key="command", value=None, message="is needed where implementation is command")
        ]
    if (preset := given["preset"]) not in vendor.PRESETS:
        message = f"there is no such preset; legal values: {', '.join(vendor.PRESETS)}"
        return None, [Problem(file=file, key="command.preset", value=preset, message=message)]
    values = with_tuples(given) | {"environment": {**vendor.PRESETS[given["preset"]], **given["environment"]}}
    del values["preset"]
    command = CommandSpec(**values)
    problems = [
        Problem(file=file, key=f"command.{key}", value=text, message=message)
        for key, text, message in vendor.problems_of_texts(command)
    ]
    return command, problems
