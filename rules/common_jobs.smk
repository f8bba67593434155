"""What the rules need to know of jobs: which of them make which runs, what they ask Slurm for, how it is asked of them."""

from mlscaling.aftermath import (
    close_lost,
    name_of_point_rule,
    note_removed,
    removed_jobs,
)
from mlscaling.commands import commands_of_study
from mlscaling.emulation import available_cores
from mlscaling.images import images_of_study
from mlscaling.slurm import geometry

IMAGES = images_of_study(STUDY)

# Executor 2.8.0 asks Slurm 10 s later each time that no job completed, up to every 180 s, and has no option against it:
# an hour's training was noticed minutes late. With this, it asks as often as the profile says.
if executor := getattr(
    sys.modules.get("snakemake_executor_plugin_slurm"), "Executor", None
):
    executor.next_seconds_between_status_checks = property(
        lambda self: self.workflow.executor_settings.init_seconds_before_status_checks,
        lambda self, seconds: None,
    )


def source_of(point):
    """What makes the logs of a point: an `import`, or jobs that train a `run` or all runs of the `point` each."""
    return point.allocation if point.published is None else "import"


def points_from(source):
    """Points whose logs this makes."""
    return [point for point in STUDY.points if source_of(point) == source]


def runs_in_one_job():
    """Points whose runs one job makes, each with the runs that are asked for.

    A job parses this again. Where it started a second time, a run that it had begun may count as given up meanwhile, so
    a job finds the rule for all runs, too; it was told which rule it is.
    """
    for point in points_from("point"):
        asked_for = [expected_runs(point)]
        if not workflow.is_main_process and asked_for[0] != list(range(point.num_runs)):
            asked_for.append(list(range(point.num_runs)))
        yield from ((point, runs) for runs in asked_for if runs)


def systems_of_points(points):
    """Constraint of the wildcard `system` that holds for these points only: it looks ahead at the ones behind it."""
    paths = "|".join(re.escape(point.path) for point in points)
    return rf"(?=(?:{paths})/)[^/]+" if points else "(?!)"


def shape_of_job(name):
    """One of the resources of a training job."""

    def of_job(wildcards):
        point = point_of(wildcards)
        num_runs = 1 if hasattr(wildcards, "run") else len(expected_runs(point))
        return getattr(geometry(point, num_runs=num_runs), name)

    return of_job


def failures_found_out():
    """A line for each run that failed where nobody was left to say why; its attempt now says it."""
    notes = []
    jobs = removed_jobs(Path.cwd())
    for point in STUDY.points:
        for run in range(point.num_runs):
            attempts = Path(f"{RESULTS}/attempts/{point.path}/run_{run}")
            if not Path(f"{RESULTS}/runs/{point.path}/result_{run}.txt").exists():
                notes.append(close_lost(attempts, run=run))
                notes.append(
                    note_removed(point, run=run, attempts_dir=attempts, jobs=jobs)
                )
    return "".join(notes)


def prepared_image(wildcards):
    """Record of the container image that runs start in; nothing without one. `ancient` as the data are."""
    point = point_of(wildcards)
    records = [
        f"results/images/{name}.json"
        for name, image in IMAGES.items()
        if point.path in image.points
    ]
    runs = [wildcards.run] if hasattr(wildcards, "run") else expected_runs(point)
    logs = [Path(f"{RESULTS}/runs/{point.path}/result_{run}.txt") for run in runs]
    trained = all(log.exists() for log in logs)
    return [ancient(record) if trained else record for record in records]


def commands_of_points():
    """What each point would start, found when somebody asks."""
    return lambda wildcards: commands_of_study(
        STUDY, attempts=Path(f"{RESULTS}/attempts")
    )


def threads_of_training(wildcards):
    """Cores of a training: those of a rank under Slurm; all of a host that plays several nodes, so that none disturbs."""
    system = point_of(wildcards).system
    return (
        len(available_cores())
        if system.launcher == "local"
        else system.cpus_per_accelerator
    )
