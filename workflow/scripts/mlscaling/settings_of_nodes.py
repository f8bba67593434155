"""What can differ between two nodes and move a time: each setting under its kind, as text that compares."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlscaling.provenance import PLACES

Settings = Mapping[tuple[str, str], str]
"""(kind, name) → value as text."""
_PROCESSOR = {
    "model": "processor",
    "sockets": "sockets",
    "cores_per_socket": "cores_per_socket",
    "threads_per_core": "threads_per_core",
    "numa_nodes": "numa_nodes",
    "usable_cores": "usable_cores",
}
_DEVICE = ("pcie_generation", "pcie_width", "max_clock_mhz", "power_limit_w", "ecc", "mig", "compute_mode")


def settings_of_node(node: Mapping[str, Any]) -> Settings:
    """Settings of one entry of `captured` in `nodes.json`; not its name, address and place in the network."""
    return {key: text for key, value in _settings(node) if (text := as_text(value)) not in ("", "null")}


def settings_of_captured(record: Mapping[str, Any]) -> list[Settings]:
    """The same of every node that a run record or `nodes.json` holds, and of what the nodes of a run share."""
    nodes = record.get("nodes") or {}
    digest = (nodes.get("container") or {}).get("digest")
    shared: list[Settings] = [{("container", "image_digest"): str(digest)}] if digest else []
    return _filled([settings_of_node(node) for node in nodes.get("captured") or ()]) + shared


def _filled(settings: Sequence[Settings]) -> list[Settings]:
    """A setting that some nodes state is `not stated` by the others, as of a node whose GPUs are gone."""
    keys = dict.fromkeys(key for of_node in settings for key in of_node)
    return [{key: of_node.get(key, "not stated") for key in keys} for of_node in settings]


def differing(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Settings that are not one for all nodes of a run: `setting`, `kind`, and `values` → names of the nodes."""
    hosts = [str(node.get("hostname")) for node in nodes]
    settings = _filled([settings_of_node(node) for node in nodes])
    found = []
    for kind, name in settings[0] if settings else ():
        values: dict[str, list[str]] = {}
        for host, of_node in zip(hosts, settings, strict=True):
            values.setdefault(of_node[kind, name], []).append(host)
        if len(values) > 1:
            found.append({"kind": kind, "setting": name, "values": values})
    return found


def sentence(difference: Mapping[str, Any]) -> str:
    """`accelerator_driver is 535.104.05 on 7 nodes, 550.54.15 on node3`; the largest group first."""
    groups = sorted(difference["values"].items(), key=lambda group: -len(group[1]))
    shown = (f"{value} on {hosts[0] if len(hosts) == 1 else f'{len(hosts)} nodes'}" for value, hosts in groups)
    return f"{difference['setting']} is {', '.join(shown)}"


def as_text(value: Any) -> str:
    """Equal numbers are equal texts: 1 and 1.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return f"{value:.12g}"


def _settings(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    processor = node.get("processor") or {}
    for ours, name in _PROCESSOR.items():
        yield ("host", name), processor.get(ours)
    yield ("host", "memory_gib"), memory_class(node.get("memory_mib"))
    for name, value in (processor.get("settings") or {}).items():
        yield ("host", name), value
    yield ("software", "kernel"), node.get("kernel")
    yield ("software", "operating_system"), node.get("operating_system")
    yield from _accelerators(node.get("accelerators") or {})
    network = node.get("network") or {}
    yield ("network", "interfaces"), _counted(map(_interface, network.get("interfaces") or ()))
    adapters = network.get("infiniband") or ()
    yield ("network", "infiniband"), _counted(map(_adapter, adapters))
    yield ("firmware", "infiniband_firmware"), _counted(adapter.get("firmware") for adapter in adapters)
    storage = node.get("storage") or {}
    yield ("storage", "file_system"), " ".join(filter(None, [storage.get("file_system"), storage.get("medium")]))
    yield from _software(node.get("software") or {})


def _accelerators(found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    devices = found.get("devices") or ()
    names = (f"{device.get('name')}, {device.get('memory_mib', '?')} MiB" for device in devices)
    yield ("accelerator", "accelerators_of_node"), _counted(names)
    for name in _DEVICE:
        yield ("accelerator", name), _counted(as_text(device[name]) for device in devices if name in device)
    yield ("firmware", "vbios"), _counted(device.get("vbios") for device in devices)
    yield ("accelerator", "accelerator_links"), links_between(found)
    yield ("software", "accelerator_driver"), found.get("driver")
    yield ("software", "cuda_of_driver"), found.get("cuda")


def links_between(accelerators: Mapping[str, Any]) -> str:
    """Links between accelerators, not those to network adapters: `4 × NV12, 2 × SYS`."""
    links = accelerators.get("links") or {}
    return _counted(link for pair, link in links.items() if all(end.startswith("GPU") for end in pair.split("-")))


def _interface(interface: Mapping[str, Any]) -> str:
    speed = interface.get("speed_mbit_per_s")
    return " ".join(filter(None, [interface.get("driver"), f"{speed} Mb/s" if speed else ""]))


def _adapter(adapter: Mapping[str, Any]) -> str:
    ports = (f"{port['rate']} {port['link_layer']} {port['state']}" for port in adapter.get("ports") or ())
    return " ".join(filter(None, [adapter.get("type"), _counted(ports)]))


def _software(software: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    for name, value in {**(software.get("packages") or {}), **(software.get("libraries") or {})}.items():
        yield ("software", name), value
    yield ("software", "operating_system_of_ranks"), software.get("operating_system")
    for name, value in (software.get("environment") or {}).items():
        if name not in PLACES:
            yield ("environment", name), value


def _counted(texts: Any) -> str:
    """`4 × a, b`, in order of number and text; empty for nothing."""
    counts = sorted(Counter(filter(None, texts)).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in counts)


def memory_class(mib: Any) -> float | None:
    """Memory (GiB), rounded up to 1 to 2 % of itself: equal nodes differ by what their kernels took at boot."""
    if not isinstance(mib, int | float) or mib <= 0:
        return None
    step = 2.0 ** (math.floor(math.log2(mib / 1024)) - 6)
    return step * math.ceil(mib / 1024 / step)
