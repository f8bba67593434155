"""Seeds of runs: a stable hash of a run's identity, different for each run of each study."""

from __future__ import annotations

import dataclasses
import hashlib

from mlscaling.spec import RunSpec


def seed_of_run(*, study: str, point: str, global_batch_size: int, run: int) -> int:
    """Seed of a run, 1 … 2³¹−1.

    Args:
        point: its path, `{system}/{workload}/n{nodes}`.
    """
    identity = f"{study}/{point}/b{global_batch_size}/run{run}"
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") % (2**31 - 1) + 1


def spec_of_run(spec: RunSpec, *, run: int) -> RunSpec:
    """What another run of the same point consumes: all the same, but for its number and its seed."""
    point = f"{spec.system}/{spec.workload}/n{spec.nodes}"
    seed = seed_of_run(study=spec.study, point=point, global_batch_size=spec.global_batch_size, run=run)
    return dataclasses.replace(spec, run=run, seed=seed)
