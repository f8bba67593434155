"""Workloads: one module for each MLPerf benchmark, found by name and imported when it is trained."""

from __future__ import annotations

from mlscaling.registry import module_by_name, module_names
from mlscaling.spec import RunSpec
from mlscaling.workloads.base import Workload

NOT_WORKLOADS = ("base",)


def workload_names() -> list[str]:
    """Names of all workloads that are built in, without importing them."""
    return module_names(__name__, without=NOT_WORKLOADS)


def workload_by_name(name: str, spec: RunSpec) -> Workload:
    """The workload of module `name`, set up for one run.

    Raises:
        ValueError: for an unknown name, listing what exists.
    """
    module = module_by_name(__name__, name, kind="workload", without=NOT_WORKLOADS)
    workload: Workload = module.WORKLOAD(spec)
    return workload
