"""Every node of an allocation says what it is: through the real srun, with GPUs that only a stand-in shows."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import node_samples as samples
import pytest
from cluster import Cluster
from slurm_study import wait_for

pytestmark = pytest.mark.slurm
UNIT = Path(__file__).resolve().parents[1] / "unit"
STEP = """
import dataclasses, os, sys
from pathlib import Path
sys.path[:0] = [{scripts!r}, {unit!r}]
from mlscaling import slurm
from mlscaling.capture import capture_nodes
from mlscaling.jobs import Job
from test_attempts import SYSTEM, make_spec
folder, job_id = Path({folder!r}), os.environ["SLURM_JOB_ID"]
system = dataclasses.replace(SYSTEM, launcher={launcher!r})
spec = make_spec(data_dir=str(folder), emulated=True, nodes=2, accelerators_per_node=2)
print(capture_nodes(Job(folder=folder, spec=spec, system=system, train_script=Path({scripts!r}) / "train.py",
                        job_id=job_id, nodes=slurm.allocation(job_id), data_dir=folder)))
"""


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_nodes_with_different_drivers_are_told_apart(cluster: Cluster, tmp_path: Path, launcher: str) -> None:
    tools = tmp_path / "bin"
    for name, driver in (("node3", "535.104.05"), ("node4", "550.54.15")):
        samples.stand_in_nvidia_smi(tools / name, driver=driver)
    samples.stand_in(tools, "nvidia-smi", f'exec "{tools}/$(hostname)/nvidia-smi" "$@"')
    scripts = UNIT.parents[1] / "workflow" / "scripts"
    step = tmp_path / "step.py"
    step.write_text(STEP.format(scripts=str(scripts), unit=str(UNIT), folder=str(tmp_path), launcher=launcher))
    variables = {**os.environ, **cluster.environment, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    options = ["--parsable", "--nodes=2", "--nodelist=node3,node4", "--ntasks-per-node=2", "--mem=1000"]
    submit = ["sbatch", *options, f"--output={tmp_path}/job.log", "--wrap", shlex.join([sys.executable, str(step)])]
    done = subprocess.run(submit, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    def read() -> dict | None:
        file = tmp_path / "nodes.json"
        return json.loads(file.read_text()) if file.exists() else None

    found = wait_for(read, what="nodes.json is there", seconds=60)
    assert [(host["hostname"], host["accelerators"]["driver"]) for host in found["captured"]] == [
        ("node3", "535.104.05"),
        ("node4", "550.54.15"),
    ]
    assert len({host["address"] for host in found["captured"]}) == 2
    assert [(item["setting"], item["values"]) for item in found["differences"]] == [
        ("accelerator_driver", {"535.104.05": ["node3"], "550.54.15": ["node4"]})
    ]
    assert (found["silent"], found["problem"]) == ([], "")
    assert found["slurm"].items() >= {
        ("job_id", done.stdout.strip()),
        ("partition", "main"),
        ("node_list", "node[3-4]"),
    }
    assert found["seconds"] < 10
