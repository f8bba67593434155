"""From verdicts to tables, figures and the report."""


localrules:
    all,
    data,
    make_plan,
    plan,
    make_runs_table,
    make_points_table,
    make_scaling_table,
    make_network_table,
    tables,
    plot,
    figures,
    seed_figures,
    summarize,
    report,


rule make_plan:
    input:
        rcps=rcp_files_of_study(),
        library=library("make_plan.py"),
    output:
        planned="<results>/planned.json",
        plan="<results>/plan.tsv",
    log:
        "<results>/logs/make_plan.log",
    conda:
        "../envs/workflow.yaml"
    params:
        planned=planned(STUDY),
    message:
        "Planning study {STUDY.name}."
    script:
        "../workflow/scripts/make_plan.py"


rule plan:
    input:
        plan="<results>/plan.tsv",
    log:
        "<results>/logs/plan.log",
    conda:
        "../envs/workflow.yaml"
    params:
        warnings=[str(problem) for problem in STUDY.warnings],
    message:
        "The plan of study {STUDY.name}."
    script:
        "../workflow/scripts/print_plan.py"


rule make_runs_table:
    input:
        planned="<results>/planned.json",
        compliance=compliance_of_study,
        library=library("make_runs_table.py"),
    output:
        table="<results>/tables/runs.csv",
    log:
        "<results>/logs/make_runs_table.log",
    conda:
        "../envs/workflow.yaml"
    params:
        attempts_dir=f"{RESULTS}/attempts",
    message:
        "Making the table of runs."
    script:
        "../workflow/scripts/make_runs_table.py"


rule make_points_table:
    input:
        planned="<results>/planned.json",
        runs="<results>/tables/runs.csv",
        rcp=rcp_of_study,
        library=library("make_points_table.py"),
    output:
        table="<results>/tables/points.csv",
    log:
        "<results>/logs/make_points_table.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "Making the table of points."
    script:
        "../workflow/scripts/make_points_table.py"


rule make_scaling_table:
    input:
        planned="<results>/planned.json",
        runs="<results>/tables/runs.csv",
        points="<results>/tables/points.csv",
        library=library("make_scaling_table.py"),
    output:
        table="<results>/tables/scaling.csv",
    log:
        "<results>/logs/make_scaling_table.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "Making the table of scaling."
    script:
        "../workflow/scripts/make_scaling_table.py"


rule make_network_table:
    input:
        planned="<results>/planned.json",
        records=records_of_study,
        library=library("make_network_table.py"),
    output:
        table="<results>/tables/network.csv",
    log:
        "<results>/logs/make_network_table.log",
    conda:
        "../envs/workflow.yaml"
    params:
        attempts_dir=f"{RESULTS}/attempts",
    message:
        "Making the table of measured networks."
    script:
        "../workflow/scripts/make_network_table.py"


rule tables:
    input:
        expand("<results>/tables/{table}.csv", table=TABLES),
    message:
        "The tables of study {STUDY.name} are made."


rule plot:
    input:
        planned="<results>/planned.json",
        runs="<results>/tables/runs.csv",
        points="<results>/tables/points.csv",
        scaling="<results>/tables/scaling.csv",
        network="<results>/tables/network.csv",
        rcp=rcp_of_study,
        library=library_of_figure,
    output:
        svg=report(
            "<results>/plots/{plot}.svg",
            caption="../workflow/report/figure.rst",
            category="Figures",
            labels={"figure": "{plot}"},
        ),
        png="<results>/plots/{plot}.png",
        csv="<results>/plots/{plot}.csv",
        caption="<results>/plots/{plot}.rst",
    log:
        "<results>/logs/plot/{plot}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        caption=lambda wildcards, output: Path(output.caption),
    message:
        "Drawing {wildcards.plot}."
    script:
        "../workflow/scripts/plot.py"


rule figures:
    input:
        expand(
            "<results>/plots/{plot}.{ending}", plot=STUDY.plots, ending=["svg", "png"]
        ),
    message:
        "The figures of study {STUDY.name} are drawn."


rule seed_figures:
    input:
        facts="config/published/dell_v1.1.csv",
        text="config/published/seed_text.yaml",
        library=library(
            "seed_figures.py",
            *(
                f"mlscaling/plots/seed/{name}.py"
                for name in ["r750xa_resnet", "xe8545", "rnnt_revised"]
            ),
        ),
    output:
        figures=expand(
            "results/seed/figure_{number}.{ending}",
            number=[1, 2, 3],
            ending=["svg", "png", "csv", "rst"],
        ),
    log:
        "results/seed/seed_figures.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "Drawing the three figures of the published v1.1 study from committed facts."
    shell:
        "python workflow/scripts/seed_figures.py --facts {input.facts:q} --text {input.text:q} --output results/seed"
        " > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule summarize:
    input:
        planned="<results>/planned.json",
        runs="<results>/tables/runs.csv",
        points="<results>/tables/points.csv",
        scaling="<results>/tables/scaling.csv",
        network="<results>/tables/network.csv",
        likeness=likeness_of_study(),
        descriptions=systems_of_study(
            "{results}/validation/{system}/description_n{nodes}.json"
        ),
        library=library("summarize.py"),
    output:
        text="<results>/tables/summary.txt",
        rst=report(
            "<results>/tables/summary.rst",
            category="Tables",
            labels={"table": "summary"},
        ),
    log:
        "<results>/logs/summarize.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "Summing up study {STUDY.name}."
    script:
        "../workflow/scripts/summarize.py"


rule report:
    input:
        expand(
            "<results>/plots/{plot}.{ending}",
            plot=STUDY.plots,
            ending=["svg", "png", "rst"],
        ),
        expand("<results>/tables/{table}.csv", table=TABLES),
        summary="<results>/tables/summary.rst",
        front="workflow/report/study.rst",
        caption="workflow/report/figure.rst",
    output:
        report="<results>/report.html",
        config="<results>/config.yaml",
    log:
        "<results>/logs/report.log",
    conda:
        "../envs/workflow.yaml"
    params:
        config=lambda wildcards: json.dumps(config, sort_keys=True),
    message:
        "Making the report."
    shell:
        "printf '%s\\n' {params.config:q} > {output.config:q} && python -m snakemake --nolock --cores 1"
        " --configfile {output.config:q} --report {output.report:q} -- figures tables {input.summary:q} > {log:q} 2>&1"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"
