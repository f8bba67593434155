"""What the executor asks for is what Slurm gives: shapes of 1 to 8 nodes with 4 and 8 (fake) GPUs each."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster
from mlscaling.launchers import LaunchRequest, launch_command
from mlscaling.slurm import geometry
from slurm_requests import point, submission
from slurm_study import wait_for

pytestmark = pytest.mark.slurm
REPORT = ["sh", "-c", 'echo "$SLURM_PROCID $SLURM_LOCALID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"']
# Snakemake's executor leaves a job no more of Slurm's variables than this.
STRIP = "for name in $(env | grep -oE '^S(LURM|RUN|BATCH)_[A-Z_]+' | grep -v '^SLURM_JOB_ID$'); do unset $name; done"


def slurm(cluster: Cluster, command: str) -> str:
    variables = {**os.environ, **cluster.environment}
    done = subprocess.run(command, shell=True, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout.strip()


@pytest.mark.parametrize(("nodes", "accelerators"), [(n, a) for n in (1, 2, 4, 8) for a in (4, 8)])
def test_request_is_granted_and_every_rank_starts(
    cluster: Cluster, tmp_path: Path, nodes: int, accelerators: int
) -> None:
    asked = point(nodes=nodes, accelerators=accelerators)
    request = LaunchRequest(
        command=REPORT, nodes=nodes, ranks_per_node=accelerators, cpus_per_rank=asked.system.cpus_per_accelerator,
        train_script="", job_id="JOB",
    )  # fmt: skip
    step = shlex.join(launch_command("srun", request)).replace("--jobid=JOB", "--jobid=$SLURM_JOB_ID")
    script = f"{STRIP}\nscontrol show job --details --oneliner $SLURM_JOB_ID\n{step}"
    log = tmp_path / "job.log"
    job = slurm(cluster, f"{submission(asked, log=str(log))} --wrap {shlex.quote(script)}")
    wait_for(lambda: not slurm(cluster, f"squeue -h -j {job}") or None, what="the job is over", seconds=60)

    granted, *lines = log.read_text().splitlines()
    ranks = nodes * accelerators
    cpus = geometry(asked).cpus_per_task * ranks
    for expected in (f"NumNodes={nodes}", f"NumCPUs={cpus}", f"NumTasks={ranks}", "MinMemoryNode=9000M"):
        assert f" {expected} " in granted
    groups = re.findall(r" Nodes=\S+ CPU_IDs=\S+ Mem=(\d+) GRES=gpu:fake:(\d+)", granted)
    assert set(groups) == {("9000", str(accelerators))}

    said = sorted(
        (line.partition(": ")[2].split() for line in lines if line.strip()[0].isdigit()),
        key=lambda words: int(words[0]),
    )
    assert [int(words[0]) for words in said] == list(range(ranks))
    assert [int(words[1]) for words in said] == list(range(accelerators)) * nodes
    assert len({words[2] for words in said}) == nodes
    assert {words[3] for words in said} == {",".join(map(str, range(accelerators)))}
