"""What all rule files share: the checked study, and functions that tell rules their inputs. No rules here."""

import dataclasses
import json
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

BASEDIR = Path(workflow.basedir)
LIBRARY = "workflow/scripts/mlscaling"
sys.path.insert(0, str(BASEDIR / "workflow" / "scripts"))

from mlscaling.attempts import given_up
from mlscaling.emulation import available_cores
from mlscaling.slurm import geometry
from mlscaling.study import StudyError, load_study, planned, run_spec

CONFIG_DIR = BASEDIR / "config"
CONFIG_FILE = str(workflow.configfiles[-1] if workflow.configfiles else "config/config.yaml")

try:
    STUDY = load_study(config, config_dir=CONFIG_DIR, file=CONFIG_FILE)
except StudyError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{STUDY.name}"


def point_of(wildcards):
    """The point that a rule's wildcards name."""
    return STUDY.point(system=wildcards.system, workload=wildcards.workload, nodes=wildcards.nodes)


def dataset_manifest(wildcards):
    """Manifest of the data that a point trains on; `ancient`, since data prepared anew is the same data."""
    return ancient(f"results/datasets/{point_of(wildcards).settings.dataset}/manifest.json")


def attempts_dir(wildcards):
    """Folder of all attempts at a run; never declared as output, so that nothing ever deletes it."""
    return f"{RESULTS}/attempts/{point_of(wildcards).path}/run_{wildcards.run}"


def training(wildcards):
    """Everything that one training consumes, as JSON."""
    return run_spec(STUDY, point_of(wildcards), run=int(wildcards.run)).to_json()


def threads_of_training(wildcards):
    """Cores of a training: those of a rank under Slurm; all of a host that plays several nodes, so that none disturbs."""
    system = point_of(wildcards).system
    return len(available_cores()) if system.launcher == "local" else system.cpus_per_accelerator


def expected_runs(point):
    """Runs whose log is asked for: all that are planned, less those that failed if the study accepts that."""
    runs = range(point.num_runs)
    if not STUDY.accept_missing_runs:
        return list(runs)
    return [
        run
        for run in runs
        if not given_up(
            Path(f"{RESULTS}/attempts/{point.path}/run_{run}"),
            log=Path(f"{RESULTS}/runs/{point.path}/result_{run}.txt"),
        )
    ]


def of_runs(pattern, points):
    """One path for each expected run of these points; the pattern has `{point}` and `{run}`."""
    return [
        f"{RESULTS}/" + pattern.format(point=point.path, run=run) for point in points for run in expected_runs(point)
    ]


def logs_of_point(wildcards):
    """MLPerf logs of a point."""
    return of_runs("runs/{point}/result_{run}.txt", [point_of(wildcards)])


def compliance_of_point(wildcards):
    """Compliance verdicts of a point's runs."""
    return of_runs("validation/{point}/compliance_{run}.json", [point_of(wildcards)])


def compliance_of_study(wildcards):
    """Compliance verdicts of all runs."""
    return of_runs("validation/{point}/compliance_{run}.json", STUDY.points)


def compliance_of_workload(wildcards):
    """Compliance verdicts of all runs of a workload."""
    points = [point for point in STUDY.points if point.workload.name == wildcards.workload]
    return of_runs("validation/{point}/compliance_{run}.json", points)


def rcp_of_study(wildcards):
    """RCP verdicts of all points."""
    return [f"{RESULTS}/validation/{point.path}/rcp.json" for point in STUDY.points]


def rcp_file(wildcards):
    """File of the point's RCPs; empty where mlperf_logging's own are used, or none."""
    rcps = point_of(wildcards).settings.rcps
    return [] if rcps in ("", "official") or not (BASEDIR / rcps).exists() else rcps


def workloads_of_study():
    """Workloads, in the order of the study's curves."""
    return list(dict.fromkeys(point.workload.name for point in STUDY.points))


def library(*modules):
    """Modules of the library as inputs, so that editing one re-runs only what it makes."""
    return [f"{LIBRARY}/{module}.py" for module in modules]


def print_summary():
    """The study's table and where the report is, after a run that made them."""
    summary = Path(RESULTS, "tables", "summary.txt")
    if summary.exists():
        print(summary.read_text(encoding="utf-8"))
        print(f"report: {RESULTS}/report.html", flush=True)
