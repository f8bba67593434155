"""One job per run, or per point: train on the point's nodes and publish the logs, or import a log that is published.

A measurement is immutable. So `train` has no code inputs, its dataset is `ancient`, and its params are exactly what the
training consumes: the system's limits, the data's folder and the study's other points may change without re-running it.
The outputs spell `<point>` out, since Snakemake 9.27 does not constrain wildcards that stand in a pathvar. A rule that
makes all runs of a point has them all as outputs, so each point has one of its own.
"""


localrules:
    commands,


rule train:
    input:
        manifest=prepared_data("manifest.json"),
        data_dir=prepared_data("data_dir.txt"),
        image=prepared_image,
    output:
        log="<results>/runs/{system}/{workload}/n{nodes}/result_{run}.txt",
        record="<results>/runs/{system}/{workload}/n{nodes}/run_{run}.json",
    log:
        "<results>/logs/train/<point>/run_{run}.log",
    benchmark:
        "<results>/logs/train/<point>/run_{run}.benchmark.tsv"
    wildcard_constraints:
        system=systems_of_points(points_from("run")),
    conda:
        "../envs/train.yaml"
    threads: threads_of_training
    resources:
        measuring=1,
        mpi="",
        nodes=shape_of_job("nodes"),
        tasks=shape_of_job("tasks"),
        gres=shape_of_job("gres"),
        slurm_extra=shape_of_job("slurm_extra"),
        mem_mb=shape_of_job("mem_mb"),
        runtime=shape_of_job("runtime_min"),
    params:
        spec=training,
        attempts_dir=attempts_dir,
    message:
        "Training {wildcards.workload} on {wildcards.nodes} node(s) of {wildcards.system}, run {wildcards.run}."
    shell:
        "python workflow/scripts/train.py run --spec {params.spec:q} --run {wildcards.run} --system {wildcards.system:q}"
        " --data-dir-file {input.data_dir:q} --manifest-file {input.manifest:q} --image-file {input.image:q}"
        " --attempts-dir {params.attempts_dir:q}"
        " --log-file {output.log:q} --record-file {output.record:q} 2> {log:q}"
        " || {{ status=$?; cat {log:q} >&2; exit $status; }}"


for POINT, RUNS in runs_in_one_job():

    rule:
        name:
            name_of_point_rule(POINT, runs=RUNS)
        input:
            manifest=prepared_data("manifest.json"),
            data_dir=prepared_data("data_dir.txt"),
            image=prepared_image,
        output:
            logs=[
                f"<results>/runs/{{system}}/{{workload}}/n{{nodes}}/result_{run}.txt"
                for run in RUNS
            ],
            records=[
                f"<results>/runs/{{system}}/{{workload}}/n{{nodes}}/run_{run}.json"
                for run in RUNS
            ],
        log:
            "<results>/logs/train/<point>/runs.log",
        benchmark:
            "<results>/logs/train/<point>/runs.benchmark.tsv"
        wildcard_constraints:
            system=systems_of_points([POINT]),
        conda:
            "../envs/train.yaml"
        threads: threads_of_training
        resources:
            measuring=1,
            mpi="",
            nodes=shape_of_job("nodes"),
            tasks=shape_of_job("tasks"),
            gres=shape_of_job("gres"),
            slurm_extra=shape_of_job("slurm_extra"),
            mem_mb=shape_of_job("mem_mb"),
            runtime=shape_of_job("runtime_min"),
        params:
            spec=training,
            attempts_dir=attempts_dir,
        message:
            "Training all runs of {wildcards.workload} on {wildcards.nodes} node(s) of {wildcards.system}, in one job."
        shell:
            "python workflow/scripts/train.py runs --spec {params.spec:q} --system {wildcards.system:q}"
            " --data-dir-file {input.data_dir:q} --manifest-file {input.manifest:q} --image-file {input.image:q}"
            " --attempts-dir {params.attempts_dir:q} --log-files {output.logs:q} --record-files {output.records:q}"
            " 2> {log:q} || {{ status=$?; cat {log:q} >&2; exit $status; }}"


rule import_results:
    input:
        log=published_log,
        library=library("import_results.py"),
    output:
        log="<results>/runs/{system}/{workload}/n{nodes}/result_{run}.txt",
        record="<results>/runs/{system}/{workload}/n{nodes}/run_{run}.json",
    log:
        "<results>/logs/import_results/<point>/run_{run}.log",
    wildcard_constraints:
        system=systems_of_points(points_from("import")),
    conda:
        "../envs/workflow.yaml"
    params:
        root=STUDY.published_root,
        submitter=lambda wildcards: point_of(wildcards).published.submitter,
        system=lambda wildcards: point_of(wildcards).published.system,
        benchmark=lambda wildcards: point_of(wildcards).published.benchmark,
    message:
        "Importing {input.log}."
    script:
        "../workflow/scripts/import_results.py"


rule commands:
    output:
        text="<results>/commands.txt",
    log:
        "<results>/logs/commands.log",
    conda:
        "../envs/workflow.yaml"
    params:
        text=commands_of_points(),
    message:
        "What each training of study {STUDY.name} would start."
    script:
        "../workflow/scripts/show_commands.py"
