"""Stands in for apptainer, docker, podman or a pyxis `srun`: checks its arguments by the tool's documented grammar,
says as JSON what it understood, and runs the command on the host.

Documented in: apptainer exec(1), docker run (docs.docker.com/reference/cli/docker/container/run), podman-run(1), and
pyxis's README (github.com/NVIDIA/pyxis). Installed under the tool's name; a word that the tool does not know is an error.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from pathlib import Path


class Strict(argparse.ArgumentParser):
    """No abbreviations, and an end that names the tool."""

    def __init__(self, tool: str) -> None:
        super().__init__(prog=tool, allow_abbrev=False, add_help=False)

    def error(self, message: str) -> None:  # type: ignore[override]
        sys.exit(f"{self.prog}: {message}")


def colon_mount(text: str) -> dict[str, object]:
    """`src[:dest[:opts]]` of apptainer and pyxis."""
    parts = text.split(":")
    if len(parts) > 3 or "," in text or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        sys.exit(f"bind {text!r} is not src[:dest[:ro|rw]]")
    return {"source": parts[0], "target": parts[1] if len(parts) > 1 else parts[0], "read_only": parts[2:] == ["ro"]}


def field_mount(text: str) -> dict[str, object]:
    """`type=bind,source=…,target=…[,readonly]`, a line of CSV, of docker and podman."""
    (fields,) = csv.reader([text])
    values = dict(field.partition("=")[::2] for field in fields)
    unknown = values.keys() - {"type", "source", "target", "readonly"}
    if unknown or values.get("type") != "bind" or not {"source", "target"} <= values.keys():
        sys.exit(f"mount {text!r} has unknown or missing fields {sorted(unknown)}")
    return {"source": values["source"], "target": values["target"], "read_only": "readonly" in values}


def apptainer(words: list[str]) -> dict[str, object]:
    """`apptainer exec [options] <image> <command>`."""
    parser = Strict("apptainer")
    parser.add_argument("action", choices=["exec"])
    parser.add_argument("--nv", action="store_true")
    parser.add_argument("--bind", "-B", action="append", default=[], type=colon_mount)
    parser.add_argument("--pwd")
    parser.add_argument("--cleanenv", action="store_true")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    if not Path(options.image).exists():
        sys.exit(f"FATAL:   could not open image {options.image}: no such file or directory")
    return {"image": options.image, "mounts": options.bind, "gpus": options.nv, "workdir": options.pwd,
            "command": options.command, "environment": None}  # fmt: skip


def engine(words: list[str]) -> dict[str, object]:
    """`docker|podman run [options] IMAGE COMMAND`."""
    parser = Strict("docker")
    parser.add_argument("action", choices=["run"])
    for flag in ("--rm", "--init"):
        parser.add_argument(flag, action="store_true")
    for option in ("--net", "--ipc", "--uts", "--user", "--workdir", "--gpus", "--security-opt"):
        parser.add_argument(option)
    for option in ("--ulimit", "--env", "--device"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("--mount", action="append", default=[], type=field_mount)
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    if any("=" in name for name in options.env):
        sys.exit("a value on the command line can be read by every user of the host")
    return {"image": options.image, "mounts": options.mount, "gpus": bool(options.gpus or options.device),
            "workdir": options.workdir, "command": options.command, "environment": options.env}  # fmt: skip


def pyxis(words: list[str]) -> dict[str, object]:
    """`srun [options] command` with the options that pyxis adds."""
    parser = Strict("srun")
    for option in ("--jobid", "--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--kill-on-bad-exit",
                   "--wait", "--mpi", "--container-workdir", "--cpu-bind"):  # fmt: skip
        parser.add_argument(option)
    for flag in ("--overlap", "--label", "--no-container-mount-home", "--container-writable"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--container-image", required=True)
    parser.add_argument("--container-mounts", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    mounts = [colon_mount(text) for text in options.container_mounts.split(",") if text]
    return {"image": options.container_image, "mounts": mounts, "gpus": None, "workdir": options.container_workdir,
            "command": options.command, "environment": None, "mpi": options.mpi}  # fmt: skip


TOOLS = {"apptainer": apptainer, "singularity": apptainer, "docker": engine, "podman": engine, "srun": pyxis}


def main() -> None:
    """Understand, say so, and run the command with what the runtime would hand over."""
    understood = TOOLS[Path(sys.argv[0]).name](sys.argv[1:])
    for mount in understood["mounts"]:  # type: ignore[attr-defined]
        if not Path(mount["source"]).exists():
            sys.exit(f"FATAL:   mount source {mount['source']} doesn't exist")
    print("understood " + json.dumps(understood), flush=True)
    names = understood["environment"]
    kept = os.environ if names is None else {n: os.environ[n] for n in [*names, "PATH"] if n in os.environ}  # type: ignore[attr-defined]
    command = understood["command"]
    os.execvpe(command[0], command, dict(kept))  # type: ignore[index]


if __name__ == "__main__":
    main()
