"""Containers and vendors' implementations on the cluster: a real image, a real runtime, a program that is not ours."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from machine_image import make_image
from slurm_study import STUDY, SlurmStudy, curve

pytestmark = [pytest.mark.slurm, pytest.mark.training]
EXAMPLE = Path(__file__).resolve().parents[1] / "vendor_example"
SYSTEM = """\
title: Slurm test cluster, one CPU process per node, in a container
accelerator: CPU core
device: cpu
launcher: srun
emulated: true
max_nodes: 8
accelerators_per_node: 1
mem_mib_per_node: 3000
time_limit_min: 10
silence_limit_min: 5
"""
VENDOR = (
    "  - {{workload: resnet_vendor, system: {system}, nodes: {nodes}, weak: {{local_batch_size: 16}}, runs: {runs},"
    " allocation: point}}"
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("ch-run") is None:
        lacking = "needs Charliecloud (Debian: apt-get install --no-install-recommends charliecloud)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(lacking)
    folder = tmp_path_factory.mktemp("images") / "trainer"
    return make_image(folder, mounts=mounts_of_python())


def mounts_of_python() -> list[str]:
    """Interpreter, packages and all that lies in the folder of temporary files."""
    return [f"{path}:{path}" for path in (sys.base_prefix, str(Path(sys.prefix).resolve()), "/tmp", "/var/tmp")]


@pytest.fixture(scope="module")
def study(prepared: SlurmStudy, image: Path, tmp_path_factory: pytest.TempPathFactory) -> SlurmStudy:
    """The tiny ResNet in a container, and the vendor's program with and without one, at 1, 2 and 4 nodes."""
    program = tmp_path_factory.mktemp("vendor")
    shutil.copy(EXAMPLE / "run_and_time.py", program)
    curves = [
        curve(nodes=[2], runs=1, system="contained"),
        VENDOR.format(system="test_cluster", nodes=[1, 2, 4], runs=2),
        VENDOR.format(system="no_such_mount", nodes=[2], runs=1),
        VENDOR.format(system="other_image", nodes=[2], runs=1),
    ]
    made = prepared.copy(tmp_path_factory.mktemp("slurm") / "containers", study=STUDY.format(curves="\n".join(curves)))
    write_configuration(made, image=image, program=program)
    copy_to_local_storage(image, prepared.cluster)
    assert made.snakemake(check=False).returncode != 0  # for the mount that is not there, and for the other image
    made.snakemake("--config", "accept_missing_runs=True")
    return made


def copy_to_local_storage(image: Path, cluster: Cluster) -> None:
    """The image on this host and on each node's own storage; that of node2 differs by one byte."""
    shutil.copytree(image, cluster.local / "image", symlinks=True)
    for spool in (cluster.state / "spool").glob("node*"):
        shutil.copytree(image, spool / "local" / "image", symlinks=True)
    with (cluster.state / "spool" / "node2" / "local" / "image" / "etc" / "passwd").open("a") as stream:
        stream.write("\n")


def write_configuration(study: SlurmStudy, *, image: Path, program: Path) -> None:
    mounts = mounts_of_python()
    contained = f"{SYSTEM}container: charliecloud\ncontainer_python: {sys.executable}\nmounts: {mounts}\n"
    systems = {
        "contained": f"{contained}image: {image}\n",
        "other_image": f"{contained}image: {study.cluster.local}/image\nexclude_nodes: ['node[3-8]']\n",
        "no_such_image": f"{contained}image: {image}_missing\n",
        "no_such_mount": f"{contained}image: {image}\n".replace("mounts: [", "mounts: ['/no/such:/mnt', "),
    }
    for name, text in systems.items():
        (study.path / f"config/systems/{name}.yaml").write_text(text)
    workload = (
        (EXAMPLE / "workload.yaml").read_text().replace("CODE", str(program)).replace("python3,", f"{sys.executable},")
    )
    (study.path / "config/workloads/resnet_vendor.yaml").write_text(workload)
    ours = study.path / "config/workloads/resnet.yaml"
    ours.write_text(ours.read_text().replace("target: 0.97 ", "target: 0.5 "))  # a few epochs are enough here
    shutil.copy(EXAMPLE / "dataset.yaml", study.path / "config/datasets/vendor_data.yaml")
    data = study.path / "data/raw/vendor_data"
    data.mkdir(parents=True)
    (data / "train.rec").write_text("records of 200 images")


def rows(study: SlurmStudy) -> dict[tuple[str, str, int], dict[str, str]]:
    with study.results("tables/runs.csv").open(newline="") as stream:
        return {(row["system"], row["workload"], int(row["nodes"])): row for row in csv.DictReader(stream)}


def test_a_training_in_a_container_names_its_image(study: SlurmStudy, image: Path) -> None:
    record = json.loads(study.results("runs/contained/resnet/n2/run_0.json").read_text())
    container = record["container"]
    assert container["image"] == str(image)
    assert container["expected"].startswith("sha256:")
    assert {node: has["digest"] for node, has in container["nodes"].items()} == dict.fromkeys(
        [place["name"] for place in record["attempts"][0]["nodes"]], container["expected"]
    )
    command = json.loads(study.results("attempts/contained/resnet/n2/run_0/attempt_0/command.json").read_text())
    assert command[command.index("ch-run") :][-7:-5] == [str(image), "--"]
    assert rows(study)["contained", "resnet", 2]["status"] == "success"


def test_a_vendors_program_is_validated_scored_and_plotted(study: SlurmStudy) -> None:
    for nodes in (1, 2, 4):
        row = rows(study)["test_cluster", "resnet_vendor", nodes]
        assert (row["status"], row["compliance"]) == ("success", "passed"), row
        log = study.results(f"runs/test_cluster/resnet_vendor/n{nodes}/result_0.txt").read_text()
        assert log.count('"submission_benchmark"') == nodes
    with study.results("plots/speedup.csv").open(newline="") as stream:
        drawn = [
            row
            for row in csv.DictReader(stream)
            if row["workload"] == "resnet_vendor" and row["system"] == "test_cluster"
        ]
    assert {int(row["nodes"]) for row in drawn} == {1, 2, 4}


def test_a_mount_that_is_missing_ends_the_attempt_before_it_starts(study: SlurmStudy) -> None:
    assert rows(study)["no_such_mount", "resnet_vendor", 2]["failure_class"] == "config"
    assert "there is no /no/such to mount" in rows(study)["no_such_mount", "resnet_vendor", 2]["finding"]
    assert not study.results("attempts/no_such_mount/resnet_vendor/n2/run_0/attempt_0/command.json").exists()


def test_an_image_that_differs_on_one_node_ends_the_attempt_before_it_starts(study: SlurmStudy) -> None:
    row = rows(study)["other_image", "resnet_vendor", 2]
    assert (row["status"], row["failure_class"]) == ("failed", "config"), row
    assert re.search(r"node2: image \S+/image has sha256:\w+, prepared was sha256:", row["finding"])
    assert "node1" not in row["finding"]
    assert not study.results("attempts/other_image/resnet_vendor/n2/run_0/attempt_0/command.json").exists()


def test_an_image_that_is_missing_starts_no_job(study: SlurmStudy) -> None:
    curves = VENDOR.format(system="no_such_image", nodes=[1], runs=1)
    (study.path / "study.yaml").write_text(STUDY.format(curves=curves))
    done = study.snakemake(check=False)
    assert done.returncode != 0
    assert "there is no image" in done.stdout + done.stderr
    assert not study.results("attempts/no_such_image").exists()
