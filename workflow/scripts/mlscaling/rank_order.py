"""In which order ranks fill the nodes of a job: neighbours in a ring of ranks should be neighbours in the network.

Slurm lists nodes in its own order, that of its configuration file. Where host names follow the racks and the file does
not, or where switches are known, another order is shorter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

Answer = Callable[..., str]
"""What a command of Slurm prints; empty where it fails."""
RANK_ORDERS = ("slurm", "host_name", "topology")


def ordered(names: Sequence[str], *, order: str, answer: Answer) -> list[str]:
    """Names of an allocation's nodes, as Slurm lists them, in the order of ranks.

    Args:
        order: `slurm` leaves them; `host_name` sorts by name, numbers as numbers; `topology` sorts by switches from the
            top of Slurm's tree to the leaf, and by name below one leaf.

    Raises:
        ValueError: Slurm knows no topology, or not that of a node.
    """
    if order == "host_name":
        return sorted(names, key=_by_name)
    if order == "topology":
        switches = _switches(answer("scontrol", "show", "topology"), answer=answer)
        if stray := [name for name in names if name not in switches]:
            known = "no switch" if switches else "no topology at all"
            message = f"the system's rank_order is topology, and for {', '.join(stray)} Slurm knows {known}"
            raise ValueError(f"{message}; legal then: slurm, host_name")
        return sorted(names, key=lambda name: ([_by_name(switch) for switch in switches[name]], _by_name(name)))
    assert order == "slurm", order
    return list(names)


def _by_name(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]


def _switches(topology: str, *, answer: Answer) -> Mapping[str, Sequence[str]]:
    """Node → the switches above it, from the top to its leaf."""
    levels: dict[str, list[tuple[int, str]]] = {}
    for line in topology.splitlines():
        values = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "SwitchName" in values and "Nodes" in values:
            for node in answer("scontrol", "show", "hostnames", values["Nodes"]).split():
                levels.setdefault(node, []).append((-int(values["Level"]), values["SwitchName"]))
    return {node: [name for _, name in sorted(above)] for node, above in levels.items()}
