"""What a log, a run record and a system description state of how a run was measured, each setting under its kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mlscaling.mlperf.summary import RunSummary
from mlscaling.mlperf.system import SystemDescription
from mlscaling.provenance import PLACES
from mlscaling.settings_of_nodes import Settings, as_text

LOGGED: Final = frozenset({"gradient_accumulation", "learning_rate", "schedule", "optimiser", "hyperparameter"})
"""Kinds of which a log states every setting that it uses, so that a missing one is a difference."""
_IDENTITY: Final = frozenset({"seed", "eval_samples", "number_of_nodes", "max_epochs"})
"""Scalars in logs that say which run it is, or that every scale sets anew."""
_PATTERNS: Final = (
    ("gradient_accumulation", r"gradient_accumulation"),
    ("batch", r"(global|local|d|train|eval)_batch_size|^batch_size"),
    ("batch", r"model_bn_span"),
    ("precision", r"precision|^dtype|amp|fp16|bf16"),
    ("optimiser", r"opt_name|^optimizer"),
    ("schedule", r"warmup|decay_(steps|epochs|boundary|poly)|lr_decay|epochs?$|steps?$|schedule|lr_(boundary|rates)"),
    ("learning_rate", r"learning_rate|_lr$|lr_rate"),
)
"""Kind of a hyper-parameter by its name; the first that matches counts."""
_SYSTEM_FIELDS: Final = {
    "accelerator": "accelerator",
    "accelerators_per_node": "accelerator",
    "cpus_per_accelerator": "host",
    "device": "accelerator",
    "launcher": "launcher",
    "container": "container",
    "image": "container",
    "emulated": "host",
}
"""Field of a run record's system → kind."""
_DESCRIPTION_KINDS: Final = (
    ("accelerator", r"^accelerator"),
    ("framework", r"^framework"),
    ("software", r"^other_software|^operating_system|^sw_notes|software"),
    ("network", r"networking|interconnect"),
    ("host", r"^host_|^cooling|^hw_notes"),
)
"""Kind of a key in a system description; others say whose and which system it is."""


def settings_of_log(summary: RunSummary) -> Settings:
    """Hyper-parameters of a log. `platform` is left out: its name holds the node count."""
    settings = {
        (kind_of_hyperparameter(name), name): as_text(value)
        for name, value in summary.hyperparameters.items()
        if name not in _IDENTITY and not name.startswith(("submission_", "target", "train_samples"))
    }
    if summary.global_batch_size == summary.global_batch_size:
        settings["batch", "global_batch_size"] = as_text(summary.global_batch_size)
    return settings


def settings_of_record(record: Mapping[str, Any]) -> Settings:
    """What `run_{run}.json` states of a run of this workflow, or of an imported one with its `description`."""
    return dict(_of_record(record))


def settings_of_description(description: SystemDescription) -> Settings:
    """Hardware and software of a published system; not its name and its node count, which are the scale."""
    settings = {}
    for key, value in description.values.items():
        kind = next((kind for kind, pattern in _DESCRIPTION_KINDS if re.search(pattern, key)), "")
        if kind:
            settings[kind, key] = value
    return settings


def kind_of_hyperparameter(name: str) -> str:
    """`learning_rate` for `opt_base_learning_rate`; `hyperparameter` where the name says nothing."""
    return next((kind for kind, pattern in _PATTERNS if re.search(pattern, name)), "hyperparameter")


def _of_record(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    spec, system = record.get("spec") or {}, record.get("system") or {}
    for name, value in (spec.get("options") or {}).items():
        yield ("precision" if name == "precision" else "execution_option", name), as_text(value)
    for name, value in (spec.get("model") or {}).items():
        yield ("model", f"model.{name}"), as_text(value)
    for name, kind in _SYSTEM_FIELDS.items():
        if name in system:
            yield (kind, name), as_text(system[name])
    for name, value in {**(system.get("environment") or {}), **(record.get("environment") or {})}.items():
        if name not in PLACES:
            yield ("environment", name), as_text(value)
    for name, value in (record.get("packages") or {}).items():
        yield ("software", name), as_text(value)
    yield from _of_code_and_host(record)


def _of_code_and_host(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    code, host = record.get("code") or {}, record.get("host") or {}
    if code.get("commit"):
        yield ("commit", "commit"), str(code["commit"])[:12] + (" with changes" if code.get("dirty") else "")
    for name, kind in (("processor", "host"), ("cores", "host"), ("kernel", "software"), ("hostname", "host_name")):
        if host.get(name) is not None:
            yield (kind, name), as_text(host[name])
