"""What one node says for each key of MLPerf's system description; empty where it does not say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mlscaling.settings_of_nodes import links_between

Node = Mapping[str, Any]
"""An entry of `captured` in `nodes.json`."""


def _processor(name: str) -> Callable[[Node], str]:
    return lambda node: text_of((node.get("processor") or {}).get(name))


def _vcpus(node: Node) -> str:
    processor = node.get("processor") or {}
    cores, threads = processor.get("cores_per_socket"), processor.get("threads_per_core")
    return str(cores * threads) if cores and threads else ""


def _frequency(node: Node) -> str:
    """Highest clock; where the kernel does not tell, the one in the model's name: `… CPU @ 2.00GHz`."""
    processor = node.get("processor") or {}
    if mhz := re.match(r"\d+", str(processor.get("max_mhz", ""))):
        return f"{mhz[0]} MHz (maximum)"
    named = re.search(r"@ ([\d.]+ ?GHz)", processor.get("model") or "")
    return named[1] if named else ""


def _caches(node: Node) -> str:
    caches = (node.get("processor") or {}).get("caches") or {}
    return ", ".join(f"{level} {size}" for level, size in caches.items())


def _memory(node: Node) -> str:
    return _gib(node.get("memory_mib"))


def _storage(node: Node) -> str:
    storage = node.get("storage") or {}
    medium = storage.get("medium")
    return text_of(storage.get("file_system")) + (f" ({medium})" if medium else "")


def _storage_size(node: Node) -> str:
    size = (node.get("storage") or {}).get("capacity_gib")
    return f"{size:g} GiB, where the data are" if size else ""


def _networking(node: Node) -> str:
    network = node.get("network") or {}
    adapters = [
        f"{adapter.get('type') or adapter['name']} {port['link_layer']} {port['rate']}"
        for adapter in network.get("infiniband") or ()
        for port in adapter.get("ports") or ()
        if port.get("state") == "ACTIVE"
    ]
    plain = [
        f"{interface['driver']} Ethernet" + (f" {speed / 1000:g} Gb/s" if speed else "")
        for interface in network.get("interfaces") or ()
        if interface.get("driver") and interface.get("state") == "up"
        for speed in (interface.get("speed_mbit_per_s"),)
    ]
    counts = Counter([*adapters, *plain])
    return ", ".join(f"{count}x {name}" for name, count in counts.items())


def devices(node: Node) -> Sequence[Mapping[str, Any]]:
    """Accelerators of the node, used or not."""
    found: Sequence[Mapping[str, Any]] = (node.get("accelerators") or {}).get("devices") or ()
    return found


def accelerator_name(node: Node) -> str:
    """Model of most of its accelerators, as the driver names it."""
    return _of_devices(node, lambda device: text_of(device.get("name")))


def accelerator_memory(node: Node) -> str:
    """Of one accelerator."""
    return _of_devices(node, lambda device: _gib(device.get("memory_mib")))


def _accelerator_clock(node: Node) -> str:
    return _of_devices(node, lambda d: f"{d['max_clock_mhz']} MHz" if "max_clock_mhz" in d else "")


def _accelerator_bus(node: Node) -> str:
    def say(device: Mapping[str, Any]) -> str:
        generation, width = device.get("pcie_generation"), device.get("pcie_width")
        return f"PCIe {generation}.0 x{width}" if generation and width else ""

    return _of_devices(node, say)


def _accelerator_links(node: Node) -> str:
    """The kind of link: NVLinks where there are any, as `nvidia-smi topo` counts them, else PCIe."""
    links = links_between(node.get("accelerators") or {})
    if nvlinks := sorted(set(re.findall(r"\bNV(\d+)\b", links)), key=int):
        return f"{' and '.join(nvlinks)} NVLinks between two"
    return "XGMI" if "XGMI" in links else "PCIe" if links else ""


def _accelerator_topology(node: Node) -> str:
    """Numbers of links by kind in the words of `nvidia-smi topo -m`."""
    return links_between(node.get("accelerators") or {})


def framework(node: Node) -> str:
    """`PyTorch 2.14.1`, where ranks find it."""
    version = ((node.get("software") or {}).get("packages") or {}).get("torch")
    return f"PyTorch {version}" if version else ""


def package(name: str) -> Callable[[Node], str]:
    """Version of a Python package."""
    return lambda node: text_of(((node.get("software") or {}).get("packages") or {}).get(name))


def version_of_library(name: str) -> Callable[[Node], str]:
    """Version of a library."""
    return lambda node: text_of(((node.get("software") or {}).get("libraries") or {}).get(name))


def vendor(node: Node) -> str:
    """Maker of its accelerators."""
    return text_of((node.get("accelerators") or {}).get("vendor"))


def driver(node: Node) -> str:
    """Version of the accelerators' driver."""
    return text_of((node.get("accelerators") or {}).get("driver"))


def operating_system(node: Node) -> str:
    """Of the host, with its kernel, as published descriptions have it."""
    return " ".join(filter(None, [node.get("operating_system"), node.get("kernel")]))


def _of_devices(node: Node, say: Callable[[Mapping[str, Any]], str]) -> str:
    said = Counter(filter(None, map(say, devices(node))))
    return said.most_common(1)[0][0] if said else ""


def _gib(mib: Any) -> str:
    return f"{mib / 1024:.1f} GiB" if isinstance(mib, int | float) else ""


def text_of(value: Any) -> str:
    """Empty for None."""
    return "" if value is None else str(value)


HOST: Final[Mapping[str, Callable[[Node], str]]] = {
    "host_processors_per_node": _processor("sockets"),
    "host_processor_model_name": _processor("model"),
    "host_processor_core_count": _processor("cores_per_socket"),
    "host_processor_vcpu_count": _vcpus,
    "host_processor_frequency": _frequency,
    "host_processor_caches": _caches,
    "host_processor_interconnect": lambda _: "",
    "host_memory_capacity": _memory,
    "host_storage_type": _storage,
    "host_storage_capacity": _storage_size,
    "host_networking": _networking,
}
ACCELERATOR: Final[Mapping[str, Callable[[Node], str]]] = {
    "accelerator_host_interconnect": _accelerator_bus,
    "accelerator_frequency": _accelerator_clock,
    "accelerator_on-chip_memories": lambda _: "",
    "accelerator_memory_configuration": lambda _: "",
    "accelerator_memory_capacity": accelerator_memory,
    "accelerator_interconnect": _accelerator_links,
    "accelerator_interconnect_topology": _accelerator_topology,
}
