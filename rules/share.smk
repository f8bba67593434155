"""What leaves the house: a bundle with everything that the numbers follow from, and MLPerf's submission tree."""


localrules:
    write_bundle,
    bundle,
    submission,


rule write_bundle:
    input:
        of_runs("{results}/runs/{point}/result_{run}.txt", STUDY.points),
        of_runs("{results}/runs/{point}/run_{run}.json", STUDY.points),
        expand("<results>/plots/{plot}.csv", plot=STUDY.plots),
        runs="<results>/tables/runs.csv",
        summary="<results>/tables/summary.txt",
        library=library_of_bundle(),
    output:
        bundle=f"results/bundles/{STUDY.name}.zip",
    log:
        "<results>/logs/write_bundle.log",
    conda:
        "../envs/workflow.yaml"
    params:
        config=lambda wildcards: json.dumps(config, sort_keys=True),
        configfile=CONFIG_FILE,
    message:
        "Packing study {STUDY.name} into {output.bundle}."
    shell:
        "python workflow/scripts/bundle.py write --configfile {params.configfile:q} --resolved {params.config:q}"
        " --output {output.bundle:q} 2> {log:q} || {{ cat {log:q} >&2; exit 1; }}"


rule bundle:
    input:
        bundle=f"results/bundles/{STUDY.name}.zip",
    message:
        "The bundle of study {STUDY.name} is {input.bundle}; `bundle.py verify` makes its numbers anew."


rule submission:
    input:
        logs=submittable_logs,
        compliance=compliance_of_study,
        records=records_of_study,
        systems=systems_of_study("{results}/systems/{system}_n{nodes}.json"),
        library=library("make_submission.py"),
    output:
        # The trees lie beside it: as a directory() output, Snakemake would put a hidden file into each.
        check="<results>/submission/package_check.json",
    log:
        "<results>/logs/submission.log",
    conda:
        "../envs/workflow.yaml"
    params:
        plan=dataclasses.asdict(SUBMISSION),
    message:
        "Building the submission of study {STUDY.name} and asking the official package checker about it."
    script:
        "../workflow/scripts/make_submission.py"
