"""From raw archives to prepared data. The tiny scale has its own small raw archives, not its own pipeline."""


rule data:
    input:
        expand("results/datasets/{dataset}/manifest.json", dataset=STUDY.datasets),
    message:
        "All datasets of study {STUDY.name} are prepared."


rule prepare_dataset:
    output:
        manifest="results/datasets/{dataset}/manifest.json",
        data_dir="results/datasets/{dataset}/data_dir.txt",
    log:
        "results/datasets/{dataset}/prepare.log",
    benchmark:
        "results/datasets/{dataset}/benchmark.tsv"
    conda:
        "../envs/train.yaml"
    threads: 8
    resources:
        mem_mb=2000,
        runtime=720,
    params:
        spec=lambda wildcards: json.dumps(
            dataclasses.asdict(STUDY.datasets[wildcards.dataset]), sort_keys=True
        ),
        raw_dir=lambda wildcards: f"{STUDY.raw_root}/{wildcards.dataset}",
        data_dir=lambda wildcards: f"{STUDY.data_root}/{wildcards.dataset}",
    message:
        "Preparing dataset {wildcards.dataset} in {params.data_dir}."
    shell:
        "python workflow/scripts/prepare_dataset.py --dataset-spec {params.spec:q} --raw-dir {params.raw_dir:q}"
        " --data-dir {params.data_dir:q} --manifest {output.manifest:q} --num-processes {threads} > {log:q} 2>&1"
        " && echo {params.data_dir:q} > {output.data_dir:q}"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"
