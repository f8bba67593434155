"""Containers: the whole command for every runtime and launcher, what a runtime understands of it, images on nodes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlscaling import containers, images, jobs
from mlscaling.catalog import load_system
from mlscaling.containers import ContainerRequest, Mount
from mlscaling.jobs import Job
from mlscaling.slurm import Node
from mlscaling.spec import RunSpec
from mlscaling.systems import System
from test_attempts import make_spec

MOUNTS = [Mount(source="/raw data", target="/data", read_only=True), Mount(source="/out", target="/results")]
REQUEST = ContainerRequest(
    command=["python3", "it's.py", "--a=b c"], image="/i/m.sif", mounts=MOUNTS, variables=["RANK"], workdir="/w", gpus=True,
    user="7:8", options=["--extra"],
)  # fmt: skip
HOST = ["--net=host", "--ipc=host", "--uts=host", "--ulimit=memlock=-1", "--ulimit=stack=67108864"]
BINDS = ["--mount=type=bind,source=/raw data,target=/data,readonly", "--mount=type=bind,source=/out,target=/results"]
WRAPPED = {
    "none": ([], []),
    "apptainer": (
        ["apptainer", "exec", "--nv", "--bind=/raw data:/data:ro", "--bind=/out:/results", "--pwd=/w", "--extra", "/i/m.sif"],
        [],
    ),
    "docker": (
        ["docker", "run", "--rm", "--init", "--gpus=all", *HOST, "--user=7:8", "--env=RANK", *BINDS, "--workdir=/w", "--extra",
         "/i/m.sif"],
        [],
    ),
    "podman": (
        ["podman", "run", "--rm", "--device=nvidia.com/gpu=all", "--security-opt=label=disable", *HOST, "--user=7:8",
         "--env=RANK", *BINDS, "--workdir=/w", "--extra", "/i/m.sif"],
        [],
    ),
    "pyxis": (
        [],
        ["--container-image=/i/m.sif", "--container-mounts=/raw data:/data:ro,/out:/results", "--container-workdir=/w",
         "--no-container-mount-home", "--extra"],
    ),
    "charliecloud": (
        ["ch-run", "--bind=/raw data:/data", "--bind=/out:/results", "--cd=/w", "--extra", "/i/m.sif", "--"],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("runtime", containers.CONTAINERS)
def test_whole_command(runtime: str) -> None:
    before, options = WRAPPED[runtime]
    wrapped = containers.wrap(runtime, REQUEST)
    assert wrapped.command == [*before, "python3", "it's.py", "--a=b c"]
    assert wrapped.step_options == options


@pytest.mark.parametrize(
    ("runtime", "source"),
    [(r, s) for r in ("apptainer", "pyxis") for s in ("/a:b", "/a,b")]
    + [(r, s) for r in ("docker", "podman") for s in ("/a,b", '/a"b')]
    + [("charliecloud", "/a:b")],
)
def test_a_path_with_the_separator_of_mounts_is_refused(runtime: str, source: str) -> None:
    request = dataclasses.replace(REQUEST, mounts=[Mount(source=source, target="/x")])
    with pytest.raises(ValueError, match="separate mounts"):
        containers.wrap(runtime, request)


# --- every runtime with every launcher --------------------------------------------------------------------------------

NODES = [Node(name=f"n{number}", address=f"10.9.9.{number}", port=6818) for number in (1, 2)]


def system(tmp_path: Path, **changes: object) -> System:
    values = {"name": "unit", "title": "unit", "max_nodes": 8, "accelerators_per_node": 4, "cpus_per_accelerator": 2,
              "accelerator": "GPU", "device": "cuda", "launcher": "srun", "image": str(tmp_path / "image")}  # fmt: skip
    return System(**{**values, **changes})


def job(tmp_path: Path, system: System, spec: RunSpec | None = None) -> Job:
    made = spec or make_spec(
        nodes=2, accelerators_per_node=4, cpus_per_accelerator=2, device="cuda", data_dir=str(tmp_path)
    )
    (tmp_path / "image").touch()
    (tmp_path / "attempt").mkdir(exist_ok=True)
    script = Path(jobs.__file__).resolve().parents[1] / "train.py"
    return Job(
        folder=tmp_path / "attempt", spec=made, system=system, train_script=script, job_id="7", nodes=NODES, data_dir=tmp_path
    )  # fmt: skip


@pytest.mark.parametrize("runtime", containers.CONTAINERS)
@pytest.mark.parametrize("launcher", ["local", "srun", "torchrun", "mpirun"])
def test_a_launcher_starts_the_wrapped_command(tmp_path: Path, launcher: str, runtime: str) -> None:
    place = job(tmp_path, system(tmp_path, launcher=launcher, container=runtime, environment={"NCCL_DEBUG": "WARN"}))
    command = jobs.training(place)
    python = sys.executable if runtime == "none" else "python3"
    rank = [
        python,
        str(place.train_script),
        "rank",
        f"--spec={place.spec_file}",
        f"--log={place.folder / 'mlperf.log'}",
    ]
    before, _ = WRAPPED[runtime]
    assert command[-len(rank) :] == rank
    inside = command[: -len(rank)]
    if before:  # variables, then the runtime, then the rank
        assert inside[inside.index("NCCL_DEBUG=WARN", inside.index(before[0]) - 6) :].index(before[0]) > 0
        assert ("/image" in inside[-1]) or inside[-2:] == [str(tmp_path / "image"), "--"]
    if runtime == "pyxis" and launcher in ("srun", "torchrun"):
        assert f"--container-image={tmp_path / 'image'}" in command[: command.index("env")]


# --- what a runtime understands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["apptainer", "singularity", "docker", "podman", "pyxis"])
def test_a_runtime_understands_the_command(tmp_path: Path, runtime: str) -> None:
    tool = "srun" if runtime == "pyxis" else runtime
    stand_in = tmp_path / "bin" / tool
    stand_in.parent.mkdir()
    stand_in.symlink_to(Path(__file__).with_name("runtime_stand_in.py"))
    place = tmp_path / "a place"
    place.mkdir()
    (place / "image").touch()
    request = ContainerRequest(
        command=[sys.executable, "-c", "import os, sys; print(os.environ['RANK'], 'HOME' in os.environ, sys.argv)", "it's", "$X"],
        image=str(place / "image"),
        mounts=[Mount(source=str(place), target="/in side", read_only=True)],
        variables=["RANK", "ABSENT"],
        workdir="/in side",
        gpus=True,
        user="7:8",
        executable=["singularity"] if runtime == "singularity" else [],
    )  # fmt: skip
    wrapped = containers.wrap("apptainer" if runtime == "singularity" else runtime, request)
    command = ["srun", "--mpi=pmix", *wrapped.step_options, *wrapped.command] if runtime == "pyxis" else wrapped.command
    command = [sys.executable, str(stand_in), *command[1:]]
    environment = {**os.environ, "RANK": "3", "HOME": "/root"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said, printed = done.stdout.splitlines()
    understood = json.loads(said.removeprefix("understood "))
    assert understood["image"] == str(place / "image")
    assert understood["mounts"] == [{"source": str(place), "target": "/in side", "read_only": True}]
    assert (understood["workdir"], understood["gpus"]) == ("/in side", None if runtime == "pyxis" else True)
    passes_all = runtime not in ("docker", "podman")
    assert printed == f"3 {passes_all} ['-c', \"it's\", '$X']"


# --- images -----------------------------------------------------------------------------------------------------------


def test_digest_of_a_folder_sees_names_contents_links_and_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/sh").write_text("shell")
    (folder / "lib").symlink_to("bin")
    found = [images.digest_of_path(folder)]
    changes = [
        lambda: (folder / "bin/sh").write_text("shelL"),
        lambda: (folder / "bin/sh").chmod(0o755),
        lambda: (folder / "bin/sh").rename(folder / "bin/bash"),
        lambda: ((folder / "lib").unlink(), (folder / "lib").symlink_to("usr")),
        lambda: (folder / "empty").mkdir(),
    ]
    for change in changes:
        change()
        found.append(images.digest_of_path(folder))
    assert len(set(found)) == len(changes) + 1
    assert images.digest_of_path(folder) == found[-1]


@pytest.mark.parametrize(
    ("has", "problem"),
    [
        ({"digest": "sha256:a", "error": "", "missing_mounts": []}, ""),
        ({"digest": "sha256:b", "error": "", "missing_mounts": []}, "n2: image /i has sha256:b, prepared was sha256:a"),
        ({"digest": "", "error": "there is no image /i", "missing_mounts": []}, "n2: there is no image /i"),
        ({"digest": "sha256:a", "error": "", "missing_mounts": ["/raid"]}, "n2: there is no /raid to mount"),
    ],
)
def test_what_is_wrong_on_which_node(has: dict[str, object], problem: str) -> None:
    good = {"digest": "sha256:a", "error": "", "missing_mounts": []}
    problems = images.problems_of_nodes({"n1": good, "n2": has}, image="/i", expected="sha256:a")
    assert [text.partition(";")[0] for text in problems] == ([problem] if problem else [])


PULLS = [
    ("apptainer", ["singularity"], [["singularity", "pull", "/i/m.partial", "docker://n@sha256:0"]]),
    ("pyxis", [], [["enroot", "import", "--output=/i/m.partial", "docker://n@sha256:0"]]),
    (
        "charliecloud",
        [],
        [["ch-image", "pull", "docker://n@sha256:0"], ["ch-convert", "docker://n@sha256:0", "/i/m.partial"]],
    ),
]


@pytest.mark.parametrize(("runtime", "executable", "commands"), PULLS)
def test_commands_that_make_an_image(
    tmp_path: Path, runtime: str, executable: list[str], commands: list[list[str]]
) -> None:
    made = system(
        tmp_path,
        container=runtime,
        container_command=tuple(executable),
        image="/i/m",
        image_source="docker://n@sha256:0",
    )
    assert images.pull_commands(made, path="/i/m.partial") == commands


def test_an_image_is_made_once_beside_and_renamed(tmp_path: Path) -> None:
    puller = tmp_path / "puller"
    puller.write_text('#!/bin/sh\necho "$@" >> "$0.calls"\necho image of "$3" > "$2"\n')
    puller.chmod(0o755)
    image = tmp_path / "images" / "m.sif"
    made = system(
        tmp_path, container="apptainer", container_command=(str(puller),), image=str(image), image_source="docker://n"
    )
    first, second = images.prepare_image(made), images.prepare_image(made)
    assert first == second
    assert first["digest"] == images.digest_of_path(image)
    assert (tmp_path / "puller.calls").read_text() == f"pull {image}.partial docker://n\n"
    with pytest.raises(images.ImageError, match="image_sha256 says sha256:00"):
        images.prepare_image(dataclasses.replace(made, image_sha256="00"))


@pytest.mark.parametrize(
    ("lines", "key", "message", "severity"),
    [
        ("container: apptainer", "image", "needs an image", "error"),
        ("container: lxc\nimage: /i", "container", "not registered", "error"),
        ("container: pyxis\nimage: /i\nlauncher: mpirun", "launcher", "plugin of srun", "error"),
        ("container: docker\nimage: 'n:latest'", "image", "is a tag", "warning"),
        ("mounts: [data:/data]", "mounts[0]", "absolute paths", "error"),
        ("image_sha256: abc", "image_sha256", "must match", "error"),
        ("container: {runtime: docker}", "container", "must be text: What wraps the command of each rank", "error"),
        ("environment: {A: 1}", "environment.A", 'unless it stands in quotes: "1"', "error"),
        ("environment: {'A B': '1'}", "environment", "must match", "error"),
        ("time_limit_min: .inf", "time_limit_min", "must be a finite number", "error"),
        ("preflight: {max_latency_us: .nan}", "preflight.max_latency_us", "must be a finite number", "error"),
        (
            "samples_per_s_per_accelerator: {reznet: 9}",
            "samples_per_s_per_accelerator.reznet",
            "no workload",
            "warning",
        ),
    ],
)
def test_what_is_wrong_with_a_system(tmp_path: Path, lines: str, key: str, message: str, severity: str) -> None:
    (tmp_path / "systems").mkdir()
    text = "title: t\naccelerator: a\ndevice: cpu\nmax_nodes: 1\naccelerators_per_node: 1\n" + lines + "\n"
    if "launcher" not in lines:
        text += "launcher: srun\n"
    (tmp_path / "systems/s.yaml").write_text(text)
    loaded, problems = load_system("s", config_dir=tmp_path)
    (problem,) = problems
    assert (problem.key, problem.severity) == (key, severity)
    assert message in problem.message
    assert (loaded is None) == (severity == "error")
