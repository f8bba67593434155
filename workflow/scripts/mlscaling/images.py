"""Container images: making one once, its digest, and whether every node has the same."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlscaling.containers import EXECUTABLES, image_identity, is_pinned, mount_of
from mlscaling.study import Study
from mlscaling.systems import System

_BLOCK = 8 << 20


class ImageError(ValueError):
    """An image is missing or is not the one that it should be; says which and what to do."""


def image_name(runtime: str, image: str) -> str:
    """Name of an image's record: readable, and different for each image of each runtime."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", image).strip("-.")[-60:]
    return f"{readable}-{hashlib.sha256(f'{runtime} {image}'.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyImage:
    """An image that a study uses."""

    system: str
    """A system that runs it."""
    other: str
    """The image, where it is not the system's own but that of a workload's command; else empty."""
    points: tuple[str, ...]
    """Paths of the points that start in it."""


def images_of_study(study: Study) -> dict[str, StudyImage]:
    """Name of record → image, of every image in which a training of the study starts."""
    found: dict[str, StudyImage] = {}
    for point in study.points:
        command, system = point.workload.command, point.system
        other = command.image if command else ""
        if point.published or system.container == "none" or (command and command.start == "once"):
            continue
        name = image_name(system.container, other or system.image)
        before = found[name].points if name in found else ()
        found[name] = StudyImage(system=system.name, other=other, points=(*before, point.path))
    return found


# --- digests ----------------------------------------------------------------------------------------------------------


def digest_of_path(path: Path) -> str:
    """`sha256:…` of an image file, or of an image folder: names, kinds, permissions, link targets and contents.

    Raises:
        ImageError: there is nothing at the path.
    """
    if path.is_file():
        with path.open("rb") as stream:
            return f"sha256:{_digest(iter(lambda: stream.read(_BLOCK), b''))}"
    if not path.is_dir():
        raise ImageError(f"there is no image {path}")
    return f"sha256:{_digest(_entries(path))}"


def _digest(blocks: Any) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _entries(folder: Path) -> Any:
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *folders]):
            path = Path(root, name)
            mode = path.lstat().st_mode
            yield f"{path.relative_to(folder).as_posix()}\0{stat.S_IFMT(mode):o}\0{stat.S_IMODE(mode):o}\0".encode()
            if stat.S_ISLNK(mode):
                yield os.readlink(path).encode()
            elif stat.S_ISREG(mode):
                with path.open("rb") as stream:
                    while block := stream.read(_BLOCK):
                        yield block


def digest_of(runtime: str, image: str, *, executable: Sequence[str] = ()) -> str:
    """Digest of an image on this host: of the file or folder, of what the runtime's store has, or of its own name.

    Raises:
        ImageError: this host does not have it, or the runtime does not answer.
    """
    if image.startswith("/"):
        return digest_of_path(Path(image))
    if runtime in ("docker", "podman"):
        command = [*(executable or EXECUTABLES[runtime]), "image", "inspect", "--format={{.Id}}", image]
        found = _said(command).strip()
        return found if found.startswith("sha256:") else f"sha256:{found}"
    return image_identity(image)


def _said(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=3600)
    except OSError as error:
        raise ImageError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode:
        raise ImageError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


# --- making one -------------------------------------------------------------------------------------------------------

_PULLS: dict[str, Callable[[Sequence[str], str, str], list[list[str]]]] = {
    "apptainer": lambda runtime, source, path: [[*runtime, "pull", path, source]],
    "pyxis": lambda _runtime, source, path: [["enroot", "import", f"--output={path}", source]],
    "charliecloud": lambda _runtime, source, path: [["ch-image", "pull", source], ["ch-convert", source, path]],
}


def pull_commands(system: System, *, path: str) -> list[list[str]]:
    """Commands that make the image of a system at a path, or bring it into the runtime's own store."""
    runtime = list(system.container_command or EXECUTABLES[system.container])
    if not system.image.startswith("/"):
        return [[*runtime, "pull", system.image]] if system.container in ("docker", "podman") else []
    return _PULLS[system.container](runtime, system.image_source, path) if system.container in _PULLS else []


def prepare_image(system: System) -> dict[str, Any]:
    """Make an image unless it is there, and return its record: runtime, image, source, digest, whether it is pinned.

    Raises:
        ImageError: it is not there and cannot be made, or has another digest than the system file says.
    """
    path = Path(system.image)
    is_path = system.image.startswith("/")
    if is_path and not path.exists():
        if not system.image_source:
            raise ImageError(f"system {system.name}: there is no image {path}, and no image_source to make it from")
        _make(system, path)
    elif not is_path:
        for command in pull_commands(system, path=""):
            _said(command)
    digest = digest_of(system.container, system.image, executable=system.container_command)
    expected = f"sha256:{system.image_sha256}" if system.image_sha256 else digest
    if digest != expected:
        raise ImageError(f"system {system.name}: image {system.image} has {digest}, image_sha256 says {expected}")
    return {
        "schema_version": 1,
        "runtime": system.container,
        "image": system.image,
        "source": system.image_source,
        "digest": digest,
        "pinned": is_pinned(system.image) or bool(system.image_sha256),
    }


def _make(system: System, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.partial")
    for command in pull_commands(system, path=str(beside)):
        _said(command)
    if not beside.exists():
        raise ImageError(f"system {system.name}: making {path} from {system.image_source} left nothing")
    beside.replace(path)


# --- what a node has --------------------------------------------------------------------------------------------------


def found_on_node(runtime: str, image: str, *, executable: Sequence[str], mounts: Sequence[str]) -> dict[str, Any]:
    """What this node has of a container: the image's digest or what is wrong with it, and sources of mounts that are
    missing."""
    try:
        found = {"digest": digest_of(runtime, image, executable=executable), "error": ""}
    except ImageError as error:
        found = {"digest": "", "error": str(error)}
    missing = [mount_of(mount).source for mount in mounts if not Path(mount_of(mount).source).exists()]
    return {**found, "missing_mounts": missing}


def problems_of_nodes(found: dict[str, dict[str, Any]], *, image: str, expected: str) -> list[str]:
    """What is wrong on which node: image missing or another one, a mount whose source is not there."""
    problems = []
    for node, has in found.items():
        if has["error"]:
            problems.append(f"{node}: {has['error']}")
        elif expected and has["digest"] != expected:
            advice = "if the new one is meant, run with --forcerun prepare_image"
            problems.append(f"{node}: image {image} has {has['digest']}, prepared was {expected}; {advice}")
        problems += [f"{node}: there is no {source} to mount" for source in has["missing_mounts"]]
    return problems
