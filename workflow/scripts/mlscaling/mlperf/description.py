"""MLPerf's description of a system, from what its nodes said and what only a person can say.

All keys that the official checker asks for, in the order of published descriptions; every value is text. What neither
nodes nor person say is `N/A`, never a guess. Processor counts are those of one processor, as in most published ones:
`host_processors_per_node` × `host_processor_core_count` cores in a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mlscaling.described import Described
from mlscaling.inventory.slurm_job import names_of_switches
from mlscaling.mlperf import words_of_nodes as words
from mlscaling.mlperf.words_of_nodes import Node

NOTHING: Final = "N/A"
EMULATED: Final = "emulated nodes on one host"


def nodes_of(records: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Every node of every run that said what it is."""
    return [node for record in records for node in (record.get("nodes") or {}).get("captured") or ()]


def describe(described: Described, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of `systems/{system}_n{nodes}.json`.

    Args:
        described: whose it is.
        records: of all runs at this node count; where nodes differ, what most of them say counts.
    """
    nodes = nodes_of(records)
    gpus = nodes if described.device == "cuda" else []
    values = {
        "submitter": "unspecified",
        "division": described.division,
        "status": NOTHING,
        "system_name": described.system,
        "number_of_nodes": str(described.nodes),
        **{key: _most(nodes, say) for key, say in words.HOST.items()},
        "host_networking_topology": _switches(records),
        "host_memory_configuration": NOTHING,
        "accelerators_per_node": str(described.accelerators_per_node),
        "accelerator_model_name": _most(gpus, words.accelerator_name, otherwise=described.accelerator),
        **{key: _most(gpus, say) for key, say in words.ACCELERATOR.items()},
        **dict.fromkeys(("cooling", "hw_notes"), NOTHING),
        "framework": _most(nodes, words.framework),
        "other_software_stack": _software(nodes, gpus, records),
        "operating_system": _most(nodes, words.operating_system),
        "sw_notes": NOTHING,
    }
    values |= described.said
    values["hw_notes"] = _joined([EMULATED if described.emulated else "", described.said.get("hw_notes", "")])
    values["sw_notes"] = _joined([_container(records), described.said.get("sw_notes", "")])
    return {key: values[key] for key in KEYS}


KEYS: Final = (
    *("submitter", "division", "status", "system_name", "number_of_nodes", "host_processors_per_node"),
    *("host_processor_model_name", "host_processor_core_count", "host_processor_vcpu_count"),
    *("host_processor_frequency", "host_processor_caches", "host_processor_interconnect", "host_memory_capacity"),
    *("host_storage_type", "host_storage_capacity", "host_networking", "host_networking_topology"),
    *("host_memory_configuration", "accelerators_per_node", "accelerator_model_name"),
    *("accelerator_host_interconnect", "accelerator_frequency", "accelerator_on-chip_memories"),
    *("accelerator_memory_configuration", "accelerator_memory_capacity", "accelerator_interconnect"),
    *("accelerator_interconnect_topology", "cooling", "hw_notes", "framework", "other_software_stack"),
    *("operating_system", "sw_notes"),
)
"""Keys that mlperf_logging's system_desc_checker requires for training, in the order of published descriptions."""


# --- joining what nodes and runs say ----------------------------------------------------------------------------------


def _most(nodes: Sequence[Node], say: Callable[[Node], str], *, otherwise: str = NOTHING) -> str:
    """What most nodes say."""
    said = Counter(filter(None, map(say, nodes)))
    return said.most_common(1)[0][0] if said else otherwise


_GPU_LIBRARIES: Final = {
    "cuda": "cuda_version",
    "cublas": "cublas_version",
    "cudnn": "cudnn_version",
    "tensorrt": "trt_version",
    "dali": "dali_version",
    "nccl": "nccl_version",
    "rocm": "rocm_version",
    "rccl": "rccl_version",
}
"""Library that only GPUs use → key in `other_software_stack` of published descriptions."""
_PACKAGES: Final = ("python", "torch", "torchvision", "numpy")
_LIBRARIES: Final = {"mpi": "mpi_version", "ucx": "ucx_version", "ofed": "mofed_version"}
"""The same of the others."""


def _software(nodes: Sequence[Node], gpus: Sequence[Node], records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    stack = {
        f"{name}_version": _most(nodes, words.package(name)) for name in ("python", "torch", "torchvision", "numpy")
    }
    stack |= {key: _most(gpus, words.version_of_library(name)) for name, key in _GPU_LIBRARIES.items()}
    stack |= {key: _most(nodes, words.version_of_library(name)) for name, key in _LIBRARIES.items()}
    driver = "rocm_driver_version" if _most(gpus, words.vendor) == "AMD" else "cuda_driver_version"
    stack[driver] = _most(gpus, words.driver)
    versions = Counter(str(slurm["version"]) for record in records if "version" in (slurm := _part(record, "slurm")))
    stack |= {"slurm_version": versions.most_common(1)[0][0]} if versions else {}
    return {key: version for key, version in stack.items() if version != NOTHING}


def _switches(records: Sequence[Mapping[str, Any]]) -> str:
    said = Counter(
        filter(None, (names_of_switches(_part(record, "slurm").get("switches") or ()) for record in records))
    )
    return f"Slurm's switches, {said.most_common(1)[0][0]}" if said else NOTHING


def _container(records: Sequence[Mapping[str, Any]]) -> str:
    """Runtime and digest of the image that ranks ran in; not its path, which names a person's folders."""
    found = {
        (container["runtime"], container.get("digest") or "image without a digest")
        for record in records
        if (container := _part(record, "container")).get("runtime", "none") != "none"
    }
    return "; ".join(f"container by {runtime}, {digest}" for runtime, digest in sorted(found))


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part: Mapping[str, Any] = (record.get("nodes") or {}).get(name) or {}
    return part


def _joined(parts: Sequence[str]) -> str:
    return "; ".join(filter(None, parts)) or NOTHING
