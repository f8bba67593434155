"""Hyper-parameters of the reference: a record for each RCP of a round, under the names that a workload reads.

RCPs spell some names otherwise than MLLOG, leave out what never varies, and hold what a workload does not read; the
workload's file says which. Where a run gives up is not the reference's business: it is a multiple of what its slowest
run needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlscaling.mlperf.rcp_records import OFFICIAL, RcpRecord, load_rcps
from mlscaling.systems import Scalar


def records_of_rcps(
    settings: Mapping[str, Any], *, benchmark: str, ruleset: str, convergence_unit: str
) -> dict[int, dict[str, Scalar]]:
    """Global batch size → hyper-parameters; empty where the round has no RCPs of the benchmark.

    Args:
        settings: `hyperparameters_from_rcps` of a workload's scale.
        benchmark: MLPerf's name.
        ruleset: round.
        convergence_unit: `epochs` or `samples`.
    """
    records: dict[int, dict[str, Scalar]] = {}
    for rcp in load_rcps(OFFICIAL, benchmark=benchmark, ruleset=ruleset):
        horizon = {f"max_{convergence_unit}": math.ceil(settings["horizon"] * max(rcp.convergence))}
        # Of two RCPs at one batch size the first counts, as in MLPerf's checker.
        records.setdefault(rcp.global_batch_size, settings["common"] | _renamed(rcp, settings["names"]) | horizon)
    return records


def _renamed(rcp: RcpRecord, names: Mapping[str, str]) -> dict[str, Scalar]:
    """Its hyper-parameters under a workload's names; those with an empty one are left out."""
    renamed = {names.get(name, name): value for name, value in rcp.hyperparameters.items()}
    return {name: value for name, value in renamed.items() if name}
