"""The checked study, and the functions by which rules find their inputs."""

import dataclasses
import json
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

BASEDIR = Path(workflow.basedir)
SCRIPTS = "workflow/scripts"
sys.path.insert(0, str(BASEDIR / "workflow" / "scripts"))

from mlscaling.attempt_folders import given_up
from mlscaling.configuration import read_yaml
from mlscaling.described import described_system
from mlscaling.sources import sources_of
from mlscaling.study import StudyError, expected_log, load_study, planned, run_spec
from mlscaling.submission.plan import SubmissionPlan, reasons_against, refusal

CONFIG_DIR = BASEDIR / "config"
CONFIG_FILE = str(
    workflow.configfiles[-1] if workflow.configfiles else "config/config.yaml"
)

if Path.cwd() != BASEDIR:
    raise WorkflowError(
        f"run snakemake in {BASEDIR}, where the Snakefile is: its rules name files relative to it"
    )

# Snakemake's own reader keeps the last of two equal keys silently.
if misread := [
    problem for file in workflow.configfiles for problem in read_yaml(Path(file))[1]
]:
    raise WorkflowError(str(StudyError(misread)))

try:
    STUDY = load_study(config, config_dir=CONFIG_DIR, file=CONFIG_FILE)
except StudyError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{STUDY.name}"
SUBMISSION = SubmissionPlan.of(STUDY)
TABLES = ["runs", "points", "scaling", "network"]


def point_of(wildcards):
    """The point that these wildcards name."""
    return STUDY.point(
        system=wildcards.system, workload=wildcards.workload, nodes=wildcards.nodes
    )


def prepared_data(name):
    """A file about the data that a run trains on, `ancient` once the run is there: data prepared anew is the same data.

    Not before: of a job whose inputs are all ancient, Snakemake 9.27 does not see that its output is missing when it
    makes those inputs anew, so a study whose preparation was interrupted would not go on.
    """

    def of_runs_to_make(wildcards):
        point = point_of(wildcards)
        file = f"results/datasets/{point.settings.dataset}/{name}"
        runs = [wildcards.run] if hasattr(wildcards, "run") else expected_runs(point)
        logs = [Path(f"{RESULTS}/runs/{point.path}/result_{run}.txt") for run in runs]
        return ancient(file) if all(log.exists() for log in logs) else file

    return of_runs_to_make


def published_log(wildcards):
    """Log of a published run, in the tree that it is imported from; the tree may be one submitter's folder."""
    source = point_of(wildcards).published
    root = Path(STUDY.published_root)
    folder = root if (root / "results").is_dir() else root / source.submitter
    return str(
        folder
        / "results"
        / source.system
        / source.benchmark
        / f"result_{wildcards.run}.txt"
    )


def attempts_dir(wildcards, output):
    """Folder of all attempts at a run, or of those of a point; never an output, so that nothing ever deletes it.

    It takes `output` so that Snakemake does not compare it: whether a job makes a run or a point may change.
    """
    folder = f"{RESULTS}/attempts/{point_of(wildcards).path}"
    return f"{folder}/run_{wildcards.run}" if hasattr(wildcards, "run") else folder


def training(wildcards):
    """Everything that the trainings of a point consume, as JSON: that of run 0, whose number and seed others replace."""
    return run_spec(STUDY, point_of(wildcards), run=0).to_json()


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
    """One path for each expected run of these points; the pattern has `{results}`, `{point}` and `{run}`."""
    return [
        pattern.format(results=RESULTS, point=point.path, run=run)
        for point in points
        for run in expected_runs(point)
    ]


def logs_of_point(wildcards):
    """MLPerf logs of a point."""
    return of_runs("{results}/runs/{point}/result_{run}.txt", [point_of(wildcards)])


def compliance_of_point(wildcards):
    """Compliance verdicts of a point's runs."""
    return of_runs(
        "{results}/validation/{point}/compliance_{run}.json", [point_of(wildcards)]
    )


def compliance_of_study(wildcards):
    """Compliance verdicts of all runs."""
    return of_runs("{results}/validation/{point}/compliance_{run}.json", STUDY.points)


def records_of_study(wildcards):
    """Run records of all runs."""
    return of_runs("{results}/runs/{point}/run_{run}.json", STUDY.points)


def submittable_logs(wildcards):
    """MLPerf logs of all runs, unless the configuration forbids to submit them: said before anything is trained."""
    if (reasons := reasons_against(SUBMISSION)) and not SUBMISSION.rehearsal:
        raise WorkflowError(refusal(reasons, study=STUDY.name))
    return of_runs("{results}/runs/{point}/result_{run}.txt", STUDY.points)


def points_of_workload(wildcards):
    """The study's points of a workload."""
    return [
        point for point in STUDY.points if point.workload.name == wildcards.workload
    ]


def compliance_of_workload(wildcards):
    """Compliance verdicts of all runs of a workload."""
    return of_runs(
        "{results}/validation/{point}/compliance_{run}.json",
        points_of_workload(wildcards),
    )


def records_of_workload(wildcards):
    """Run records of all runs of a workload."""
    return of_runs(
        "{results}/runs/{point}/run_{run}.json", points_of_workload(wildcards)
    )


def hyperparameters_of_workload(wildcards):
    """Hyper-parameters of a workload by global batch size, as its RCPs record them."""
    points = points_of_workload(wildcards)
    return {
        point.global_batch_size: dict(
            point.settings.hyperparameters[point.global_batch_size]
        )
        for point in points
    }


def points_of_curve(wildcards):
    """The points of a workload on a system."""
    return [
        point
        for point in points_of_workload(wildcards)
        if point.system.name == wildcards.system
    ]


def compliance_of_curve(wildcards):
    """Compliance verdicts of all runs of a curve."""
    return of_runs(
        "{results}/validation/{point}/compliance_{run}.json", points_of_curve(wildcards)
    )


def records_of_curve(wildcards):
    """Run records of all runs of a curve."""
    return of_runs("{results}/runs/{point}/run_{run}.json", points_of_curve(wildcards))


def likeness_of_study():
    """Likeness verdicts of all curves."""
    curves = dict.fromkeys(point.path.rpartition("/")[0] for point in STUDY.points)
    return [f"{RESULTS}/validation/{curve}/likeness.json" for curve in curves]


def points_of_system(wildcards):
    """The points of a system at a node count, of all workloads."""
    return [
        point
        for point in STUDY.points
        if point.system.name == wildcards.system and point.nodes == int(wildcards.nodes)
    ]


def of_system(pattern):
    """Input function: one path for each expected run of a system at a node count; the pattern as in `of_runs`."""
    return lambda wildcards: of_runs(pattern, points_of_system(wildcards))


def systems_of_study(pattern):
    """One path for each system at each node count; the pattern has `{results}`, `{system}` and `{nodes}`."""
    systems = dict.fromkeys((point.system.name, point.nodes) for point in STUDY.points)
    return [
        pattern.format(results=RESULTS, system=system, nodes=nodes)
        for system, nodes in systems
    ]


def target_of(wildcards):
    """Quality that a run of ours must reach; published logs are held to the official target of their benchmark."""
    point = point_of(wildcards)
    return point.settings.target if point.published is None else None


def rcp_of_study(wildcards):
    """RCP verdicts of all points."""
    return [f"{RESULTS}/validation/{point.path}/rcp.json" for point in STUDY.points]


def rcps_of_point(wildcards):
    """Where a point's RCPs are: a file that exists, `official`, or nothing."""
    rcps = point_of(wildcards).settings.rcps
    return rcps if rcps == "official" or rcps in rcp_files_of_study() else ""


def rcp_file(wildcards):
    """The file of a point's RCPs as an input; none where mlperf_logging's own are used, or there are none."""
    rcps = rcps_of_point(wildcards)
    return [rcps] if rcps not in ("", "official") else []


def workloads_of_study():
    """Workloads, in the order of the study's curves."""
    return list(dict.fromkeys(point.workload.name for point in STUDY.points))


def library(*files):
    """A script and the library modules it imports, as inputs: editing one re-runs only what it makes.

    A function, since reading their imports takes time that a training job, whose rule has none, need not spend.
    """
    return lambda wildcards: [f"{SCRIPTS}/{file}" for file in sources_of(*files)]


def library_of_figure(wildcards):
    """The same for a figure, whose module is imported by name."""
    return library("plot.py", f"mlscaling/plots/{wildcards.plot}.py")(wildcards)


def library_of_bundle():
    """The same for a bundle, which has all figures of the study."""
    return library("bundle.py", *(f"mlscaling/plots/{plot}.py" for plot in STUDY.plots))


def rcp_files_of_study():
    """Files of RCPs that the study's points are compared with, as far as they exist."""
    files = {point.settings.rcps for point in STUDY.points}
    return sorted(
        file
        for file in files
        if file not in ("", "official") and (BASEDIR / file).exists()
    )


def where_results_are():
    """Where to look after a run of the whole study; nothing where other targets were asked for."""
    if set(workflow.dag_settings.targets) - {"all"}:
        return ""
    files = [f"{RESULTS}/tables/summary.txt", f"{RESULTS}/report.html"]
    return "".join(f"{file}\n" for file in files if Path(file).exists())
