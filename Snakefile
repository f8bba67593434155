"""Multi-node scaling studies of MLPerf-style training: how fast, is it valid, and why is it not linear?"""

from snakemake.utils import min_version

min_version("9.12")


# --- configuration -----------------------------------------------------------


configfile: "config/config.yaml"


include: "rules/common.smk"


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
include: "rules/train.smk"
include: "rules/validate.smk"
include: "rules/analyze.smk"


# --- targets -----------------------------------------------------------------


rule all:
    default_target: True
    input:
        "<results>/report.html",
        "<results>/tables/summary.txt",


onsuccess:
    print(where_results_are())
