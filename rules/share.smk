"""What leaves the house: MLPerf's submission tree."""


localrules:
    submission,


rule submission:
    input:
        logs=submittable_logs,
        compliance=compliance_of_study,
        records=records_of_study,
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
