"""Validation as data: a verdict file for each run and each point, with reasons. Only the gate `validated` fails."""


localrules:
    check_compliance,
    check_rcp,
    check_likeness,
    describe_system,
    systems,
    validated,
    collect_rcps,
    rcps,


rule check_compliance:
    input:
        log="<results>/runs/<point>/result_{run}.txt",
        record="<results>/runs/<point>/run_{run}.json",
        library=library("check_compliance.py"),
    output:
        verdict="<results>/validation/<point>/compliance_{run}.json",
    log:
        "<results>/logs/check_compliance/<point>/run_{run}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        ruleset=STUDY.round.name,
        expected=lambda wildcards: expected_log(
            STUDY, point_of(wildcards), run=int(wildcards.run)
        ),
        target=target_of,
        mode=lambda wildcards: point_of(wildcards).workload.quality_mode,
    message:
        "Checking the log of {wildcards.workload}, {wildcards.nodes} node(s), run {wildcards.run}."
    script:
        "../workflow/scripts/check_compliance.py"


rule check_rcp:
    input:
        logs=logs_of_point,
        compliance=compliance_of_point,
        rcps=rcp_file,
        library=library("check_rcp.py"),
    output:
        verdict="<results>/validation/<point>/rcp.json",
    log:
        "<results>/logs/check_rcp/<point>.log",
    conda:
        "../envs/workflow.yaml"
    params:
        ruleset=STUDY.round.name,
        benchmark=lambda wildcards: point_of(wildcards).workload.mlperf_benchmark,
        global_batch_size=lambda wildcards: point_of(wildcards).global_batch_size,
        num_runs=lambda wildcards: point_of(wildcards).num_runs,
        required_runs=lambda wildcards: point_of(wildcards).required_runs,
        rcps=rcps_of_point,
    message:
        "Checking {wildcards.workload}, {wildcards.nodes} node(s), against reference convergence points."
    script:
        "../workflow/scripts/check_rcp.py"


rule check_likeness:
    input:
        scaling="<results>/tables/scaling.csv",
        compliance=compliance_of_curve,
        records=records_of_curve,
        library=library("check_likeness.py"),
    output:
        verdict="<results>/validation/{system}/{workload}/likeness.json",
    log:
        "<results>/logs/check_likeness/{system}/{workload}.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "Checking whether the points of {wildcards.workload} on {wildcards.system} are alike."
    script:
        "../workflow/scripts/check_likeness.py"


rule describe_system:
    input:
        records=of_system("{results}/runs/{point}/run_{run}.json"),
        compliance=of_system("{results}/validation/{point}/compliance_{run}.json"),
        library=library("describe_system.py"),
    output:
        description="<results>/systems/{system}_n{nodes}.json",
        verdict="<results>/validation/{system}/description_n{nodes}.json",
    log:
        "<results>/logs/describe_system/{system}_n{nodes}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        described=lambda wildcards: described_system(
            points_of_system(wildcards)[0], division=STUDY.round.division
        ),
        ruleset=STUDY.round.name,
        published_root=STUDY.published_root,
    message:
        "Describing {wildcards.system} at {wildcards.nodes} node(s), and checking the description."
    script:
        "../workflow/scripts/describe_system.py"


rule systems:
    input:
        systems_of_study("{results}/systems/{system}_n{nodes}.json"),
    message:
        "The systems of study {STUDY.name} are described."


rule validated:
    input:
        points="<results>/tables/points.csv",
        runs="<results>/tables/runs.csv",
        library=library("check_study_validity.py"),
    output:
        gate="<results>/validation/validated.json",
    log:
        "<results>/logs/validated.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "Every point of study {STUDY.name} must be valid."
    script:
        "../workflow/scripts/check_study_validity.py"


rule collect_rcps:
    input:
        compliance=compliance_of_workload,
        records=records_of_workload,
        library=library("collect_rcps.py"),
    output:
        rcps="<results>/rcps/rcps_{workload}.json",
    log:
        "<results>/logs/collect_rcps/{workload}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        benchmark=lambda wildcards: points_of_workload(wildcards)[
            0
        ].workload.mlperf_benchmark,
        required_runs=lambda wildcards: points_of_workload(wildcards)[0].required_runs,
        hyperparameters=hyperparameters_of_workload,
    message:
        "Collecting reference convergence points of {wildcards.workload}."
    script:
        "../workflow/scripts/collect_rcps.py"


rule rcps:
    input:
        rcps=expand(
            "<results>/rcps/rcps_{workload}.json", workload=workloads_of_study()
        ),
    log:
        "<results>/logs/rcps.log",
    conda:
        "../envs/workflow.yaml"
    params:
        folder=f"config/rcps/{STUDY.scale}",
    message:
        "Putting the reference convergence points into {params.folder}; commit them."
    shell:
        "mkdir -p {params.folder:q} && cp {input.rcps:q} {params.folder:q} 2> {log:q}"
