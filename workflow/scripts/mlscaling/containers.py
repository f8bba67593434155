"""What wraps the command of each rank. Each runtime is one registered pure function.

A wrapped command is two lists: what stands before the rank's own command, and options for the Slurm step where the
runtime is a plugin of `srun` (pyxis). Variables are set outside of the container, by the launcher; runtimes that do not
hand the environment through are told the names. Which runtimes were run for real: `docs/containers.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

CONTAINERS: dict[str, Callable[[ContainerRequest], Wrapped]] = {}
EXECUTABLES: dict[str, tuple[str, ...]] = {}
"""Runtime → what starts it, unless the system file names another (`singularity`, `podman --runtime runc`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A folder or file of the host that is seen inside."""

    source: str
    """Absolute path on the host."""
    target: str
    """Absolute path in the container."""
    read_only: bool = False
    """Whether the container may not write to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRequest:
    """What a runtime needs to know."""

    command: Sequence[str]
    """Command of one rank."""
    image: str = ""
    """Image by path, by name and digest, or by name and tag."""
    mounts: Sequence[Mount] = field(default=())
    """What to bind."""
    variables: Sequence[str] = field(default=())
    """Names of variables that the rank needs, for runtimes that hand over only those they are told."""
    workdir: str = ""
    """Folder in the container in which the command starts; empty, the image's."""
    gpus: bool = False
    """Whether the node's GPUs are seen inside."""
    user: str = ""
    """`uid:gid` of the files that are written, for runtimes with a daemon; empty, the image's."""
    executable: Sequence[str] = field(default=())
    """What starts the runtime; empty, its own name."""
    options: Sequence[str] = field(default=())
    """Further options of the runtime, as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapped:
    """A command inside a runtime."""

    command: list[str]
    """What a rank starts."""
    step_options: list[str] = field(default_factory=list)
    """Options of the `srun` that starts the ranks."""


Runtime = Callable[[ContainerRequest], Wrapped]


def register(name: str, *executable: str) -> Callable[[Runtime], Runtime]:
    """Add a runtime under its configuration name; a second one of that name is an error."""

    def add(function: Runtime) -> Runtime:
        if name in CONTAINERS:
            raise ValueError(f"container runtime {name} is registered twice")
        CONTAINERS[name] = function
        EXECUTABLES[name] = executable
        return function

    return add


def wrap(name: str, request: ContainerRequest) -> Wrapped:
    """Command of one rank inside the runtime.

    Raises:
        ValueError: no runtime of that name, lists what exists; or a mount that the runtime cannot express.
    """
    if name not in CONTAINERS:
        raise ValueError(f"unknown container runtime {name!r}; legal values: {', '.join(sorted(CONTAINERS))}")
    return CONTAINERS[name](replace(request, executable=request.executable or EXECUTABLES[name]))


def mount_of(text: str) -> Mount:
    """A mount as configuration writes it, `source:target` or `source:target:ro`.

    Raises:
        ValueError: anything else, or a path that is not absolute.
    """
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not (source.startswith("/") and target.startswith("/") and mode in ("", "ro", "rw")):
        raise ValueError(f"mount {text!r} is not source:target or source:target:ro with absolute paths")
    return Mount(source=source, target=target, read_only=mode == "ro")


def is_pinned(image: str) -> bool:
    """Whether an image is named by a path or a digest, so that it cannot change silently; a tag can."""
    return image.startswith("/") or bool(image_identity(image))


def image_identity(image: str) -> str:
    """Digest by which an image is named, `…@sha256:<64 digits>`; empty where its name does not tell."""
    match = re.search(r"@(sha256:[0-9a-f]{64})$", image)
    return match[1] if match else ""


# --- runtimes ---------------------------------------------------------------------------------------------------------


@register("none")
def none(request: ContainerRequest) -> Wrapped:
    """The command as it is."""
    return Wrapped(command=list(request.command))


@register("apptainer", "apptainer")
def apptainer(request: ContainerRequest) -> Wrapped:
    """`apptainer exec`, or `singularity exec`, which has the same words. The environment is handed through."""
    return Wrapped(
        command=[
            *request.executable,
            "exec",
            *(["--nv"] if request.gpus else []),
            *_pairs("--bind", request.mounts),
            *([f"--pwd={request.workdir}"] if request.workdir else []),
            *request.options,
            request.image,
            *request.command,
        ]
    )


@register("docker", "docker")
def docker(request: ContainerRequest) -> Wrapped:
    """`docker run`, one container for each rank, with the host's network and shared memory, as NCCL needs them."""
    return _run(request, own=["--init", *(["--gpus=all"] if request.gpus else [])])


@register("podman", "podman")
def podman(request: ContainerRequest) -> Wrapped:
    """`podman run`, the same words as Docker's; GPUs by the Container Device Interface."""
    gpus = ["--device=nvidia.com/gpu=all", "--security-opt=label=disable"]
    return _run(request, own=gpus if request.gpus else [])


@register("pyxis")
def pyxis(request: ContainerRequest) -> Wrapped:
    """Options of `srun` for NVIDIA's plugin. The environment is handed through, GPUs come by enroot's hooks.

    `--no-container-mount-home`: a home folder would bring its owner's Python packages into the image.
    """
    mounts = ",".join(_colons(mount) for mount in request.mounts)
    return Wrapped(
        command=list(request.command),
        step_options=[
            f"--container-image={request.image}",
            *([f"--container-mounts={mounts}"] if mounts else []),
            *([f"--container-workdir={request.workdir}"] if request.workdir else []),
            "--no-container-mount-home",
            *request.options,
        ],
    )


@register("charliecloud", "ch-run")
def charliecloud(request: ContainerRequest) -> Wrapped:
    """`ch-run` on an image folder. The environment is handed through; targets of binds must exist in the image, and
    cannot be read-only. GPUs are put into the image when it is made (`ch-fromhost --nvidia`)."""
    return Wrapped(
        command=[
            *request.executable,
            *(f"--bind={_joined(mount)}" for mount in request.mounts),
            *([f"--cd={request.workdir}"] if request.workdir else []),
            *request.options,
            request.image,
            "--",
            *request.command,
        ]
    )


def _run(request: ContainerRequest, *, own: Sequence[str]) -> Wrapped:
    return Wrapped(
        command=[
            *request.executable,
            "run",
            "--rm",
            *own,
            "--net=host",
            "--ipc=host",
            "--uts=host",
            "--ulimit=memlock=-1",
            "--ulimit=stack=67108864",
            *([f"--user={request.user}"] if request.user else []),
            *(f"--env={name}" for name in request.variables),
            *(f"--mount={_fields(mount)}" for mount in request.mounts),
            *([f"--workdir={request.workdir}"] if request.workdir else []),
            *request.options,
            request.image,
            *request.command,
        ]
    )


# --- mounts in the words of a runtime ---------------------------------------------------------------------------------


def _pairs(option: str, mounts: Sequence[Mount]) -> list[str]:
    return [f"{option}={_colons(mount)}" for mount in mounts]


def _joined(mount: Mount) -> str:
    _refuse(mount, ":")
    return f"{mount.source}:{mount.target}"


def _colons(mount: Mount) -> str:
    _refuse(mount, ":,")
    return f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")


def _fields(mount: Mount) -> str:
    _refuse(mount, ',"')
    return f"type=bind,source={mount.source},target={mount.target}" + (",readonly" if mount.read_only else "")


def _refuse(mount: Mount, characters: str) -> None:
    """A separator of the runtime inside a path would mount something else."""
    for path in (mount.source, mount.target):
        if any(character in path for character in characters):
            raise ValueError(
                f"mount path {path!r} has one of the characters {characters!r}, which separate mounts here"
            )
