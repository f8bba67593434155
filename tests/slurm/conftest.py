"""The cluster of the session. Elsewhere than in continuous integration its tests skip where it cannot be brought up."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster import Cluster, missing
from slurm_study import STUDY, SlurmStudy, copy_of_repository, curve


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster, up; one that was up before is used and left up."""
    cluster = Cluster()
    mine = not cluster.is_up()
    if mine and (lacking := missing()):
        if os.environ.get("CI") == "true":
            pytest.fail(lacking)
        pytest.skip(lacking)
    cluster.up()
    yield cluster
    if mine:
        cluster.down()


@pytest.fixture(scope="session")
def prepared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> SlurmStudy:
    """A study whose data are prepared, by a job, and nothing else."""
    study = STUDY.format(curves=curve(nodes=[1], runs=1))
    prepared = copy_of_repository(tmp_path_factory.mktemp("slurm") / "prepared", cluster=cluster, study=study)
    prepared.snakemake("data")
    return prepared
