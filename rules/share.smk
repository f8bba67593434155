"""From a study to what others can check: a bundle with everything its numbers follow from."""


localrules:
    write_bundle,
    bundle,


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
