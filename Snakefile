"""Multi-node scaling studies of MLPerf-style training: how fast, is it valid, and why is it not linear?"""

from snakemake.utils import min_version

min_version("9.12")


# --- configuration -----------------------------------------------------------

# A study given by --configfile stands alone: merged with the default one, it would inherit what it does not name.
if not workflow.configfiles:

    configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/common_jobs.smk"


pathvars:
    results=f"results/{STUDY.name}",
    point="{system}/{workload}/n{nodes}",


wildcard_constraints:
    system=r"[^/]+",
    workload=r"[^/]+",
    dataset=r"[^/]+",
    nodes=r"[1-9]\d*",
    run=r"\d+",
    plot=r"[a-z_]+",


report: "workflow/report/study.rst"


# --- rules -------------------------------------------------------------------


include: "rules/datasets.smk"
include: "rules/images.smk"
include: "rules/train.smk"
include: "rules/validate.smk"
include: "rules/analyze.smk"
include: "rules/share.smk"


# --- targets -----------------------------------------------------------------


rule all:
    default_target: True
    input:
        # The logs and verdicts are named too: Snakemake does not miss a deleted file that only other files need.
        of_runs("{results}/runs/{point}/result_{run}.txt", STUDY.points),
        of_runs("{results}/runs/{point}/run_{run}.json", STUDY.points),
        of_runs("{results}/validation/{point}/compliance_{run}.json", STUDY.points),
        rcp_of_study,
        likeness_of_study(),
        systems_of_study("{results}/systems/{system}_n{nodes}.json"),
        "<results>/plan.tsv",
        "<results>/tables/summary.txt",
        "<results>/report.html",


onsuccess:
    print(where_results_are(), end="")


onerror:
    print(failures_found_out(), end="")
