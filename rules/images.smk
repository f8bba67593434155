"""Container images: made or looked at once, shared by all studies, with a digest that every node is held to."""


localrules:
    prepare_image,


rule prepare_image:
    output:
        record="results/images/{image}.json",
    log:
        "results/images/{image}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        system=lambda wildcards: IMAGES[wildcards.image].system,
        image=lambda wildcards: IMAGES[wildcards.image].other,
    message:
        "Preparing container image {wildcards.image}."
    shell:
        "python workflow/scripts/prepare_image.py --system {params.system:q} --image={params.image:q}"
        " --record {output.record:q} > {log:q} 2>&1"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"
