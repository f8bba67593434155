"""What Snakemake's Slurm executor submits for a point, without a cluster."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from mlscaling.slurm import geometry
from mlscaling.spec import Point, ScaleSpec, WorkloadSpec
from mlscaling.systems import System
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

SYSTEM = System(
    name="unit", title="unit", max_nodes=8, accelerators_per_node=4, cpus_per_accelerator=2, accelerator="GPU",
    device="cuda", launcher="srun", mem_mib_per_node=9000, time_limit_min=240,
)  # fmt: skip
SCALE = ScaleSpec(
    dataset="", target=1.0, train_samples=1, eval_samples=1, evaluate_every_samples=1, model={}, hyperparameters={}
)
WORKLOAD = WorkloadSpec(
    name="resnet", title="", mlperf_benchmark="resnet", quality_name="", quality_mode="max", convergence_unit="epochs",
    scales={"tiny": SCALE},
)  # fmt: skip


def point(*, nodes: int, accelerators: int, device: str = "cuda") -> Point:
    """A point of that shape."""
    system = dataclasses.replace(SYSTEM, accelerators_per_node=accelerators, device=device)
    return Point(
        study="unit", system=system, workload=WORKLOAD, scale="tiny", nodes=nodes, batch_policy="weak",
        global_batch_size=nodes * accelerators, gradient_accumulation_steps=1, num_runs=1, required_runs=1,
        trimmed_runs=1,
    )  # fmt: skip


class Resources(dict[str, Any]):
    """As a job of Snakemake offers its resources."""

    __getattr__ = dict.__getitem__


def submission(of: Point, *, log: str = "job.log") -> str:
    """The `sbatch` call, up to what the job runs, for the resources that rule `train` declares."""
    shape = geometry(of)
    resources = Resources(
        mpi="", nodes=shape.nodes, tasks=shape.tasks, gres=shape.gres, slurm_extra=shape.slurm_extra,
        mem_mb=shape.mem_mb, runtime=shape.runtime_min,
    )  # fmt: skip
    job = SimpleNamespace(resources=resources, threads=shape.cpus_per_task)
    params = {
        "run_uuid": "run", "slurm_logfile": log, "comment_str": "rule_train", "account": "-A 'mlperf'",
        "partition": "-p 'main'", "workdir": "",
    }  # fmt: skip
    return str(get_submit_command(job, params) + set_gres_string(job))
