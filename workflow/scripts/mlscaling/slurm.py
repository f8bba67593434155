"""A point → Slurm geometry; and what a running job can learn of its own allocation from Slurm.

Measured with snakemake-executor-plugin-slurm 2.8.0: `mpi` present but empty lets the rule's shell run once, in the
batch step on the first node, for one node as for many. A GPU request goes by `gres`, which is per node, and without
`tasks`, which the plugin would turn into `--ntasks-per-gpu`; without GPUs the plugin asks for one task where `tasks` is
not given, and `sbatch` then gives one node. In the job it strips all SLURM_* but the job id, so nodes are asked for.
"""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mlscaling.rank_order import ordered
from mlscaling.spec import Point

END_MIN = 5
"""Minutes added to a training's own limits, for the ends of ranks and for publication."""
FIRST_PORT, NUM_PORTS = 20000, 12000
"""Ports of rendezvous: below the range from which Linux takes ports of outgoing connections."""
_ANSWER_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Geometry:
    """Shape of one training job."""

    nodes: int
    """`--nodes`."""
    ntasks_per_node: int
    """`--ntasks-per-node`: one task per rank."""
    cpus_per_task: int
    """`--cpus-per-task`."""
    gres: str
    """`--gres` of each node, empty without GPUs."""
    mem_mb: int
    """`--mem` of each node, MiB."""
    runtime_min: int
    """`--time`, minutes."""
    queue_limit_min: int
    """Longest time in the queue, minutes; 0, no limit."""
    exclude_nodes: Sequence[str] = ()
    """`--exclude`."""

    @property
    def tasks(self) -> int:
        """The plugin's `tasks`: `--ntasks` without GPUs; 0, which it leaves out, with them."""
        return 0 if self.gres else self.nodes * self.ntasks_per_node

    @property
    def slurm_extra(self) -> str:
        """Options that the plugin has no resource for.

        Slurm has no limit of the time in the queue. It removes a job that cannot end by its deadline any more, so a
        deadline of that limit and the job's own time limit removes it when the first one is over.
        """
        options = [f"--ntasks-per-node={self.ntasks_per_node}"]
        if self.exclude_nodes:
            options.append(f"--exclude={','.join(self.exclude_nodes)}")
        if self.queue_limit_min:
            options.append(f"--deadline=now+{self.queue_limit_min + self.runtime_min}minutes")
        return " ".join(options)


def geometry(point: Point, *, num_runs: int = 1) -> Geometry:
    """Shape of a job that makes so many runs of this point, one after another."""
    system = point.system
    limits_min = system.startup_limit_min + system.time_limit_min
    return Geometry(
        nodes=point.nodes,
        ntasks_per_node=system.accelerators_per_node,
        cpus_per_task=system.cpus_per_accelerator,
        gres=f"gpu:{system.accelerators_per_node}" if system.device == "cuda" else "",
        mem_mb=system.mem_mib_per_node,
        runtime_min=num_runs * limits_min + END_MIN,
        queue_limit_min=system.queue_limit_min,
        exclude_nodes=system.exclude_nodes,
    )


# --- inside a job -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node of an allocation."""

    name: str
    """Name in Slurm."""
    address: str
    """IP address, or a name where none is known."""
    port: int
    """Port of its slurmd."""


def rendezvous_port(job_id: str) -> int:
    """Port at which the ranks of a job meet: jobs that share a node have different ones.

    Raises:
        ValueError: not a number.
    """
    if not job_id.isdigit():
        raise ValueError(f"Slurm job id {job_id!r} is not a number")
    return FIRST_PORT + int(job_id) % NUM_PORTS


def allocation(job_id: str, *, order: str = "slurm", patience_s: float = 120.0) -> list[Node]:
    """Nodes of a job in the order of ranks (`rank_order.RANK_ORDERS`); rank 0 is on the first.

    Args:
        patience_s: seconds in which Slurm is asked again, as its controller may be away for a moment.

    Raises:
        ValueError: Slurm does not tell its nodes, or not what the order asks for.
    """
    deadline = time.monotonic() + patience_s
    while not (job := answer("scontrol", "show", "job", "--oneliner", job_id)) and time.monotonic() < deadline:
        time.sleep(5.0)
    listed = _field(job, "NodeList")
    names = answer("scontrol", "show", "hostnames", listed).split() if listed else []
    if not names:
        raise ValueError(f"Slurm does not tell the nodes of job {job_id}")
    records = answer("scontrol", "show", "node", "--oneliner", listed).splitlines()
    by_name = {_field(record, "NodeName"): record for record in records}
    port = _slurmd_port()
    names = ordered(names, order=order, answer=answer)
    return [_node(name, record=by_name.get(name, ""), port=port) for name in names]


def first_address(nodes: Sequence[Node]) -> str:
    """Address at which all nodes reach the first one; an IP address wherever one is known.

    A node that resolves its own name to a loopback address, as Debian's installer arranges, would be found by itself
    only. So a loopback address is that of the node on which this process runs.
    """
    address = nodes[0].address
    if len(nodes) == 1 or not address.startswith("127."):
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((nodes[1].address, nodes[1].port))  # sends nothing; the kernel picks the outgoing interface
        own: str = probe.getsockname()[0]
    return own


def silent_nodes(nodes: Sequence[Node], *, timeout_s: float = 2.0) -> list[str]:
    """Names of nodes whose slurmd does not accept a connection. Slurm itself notices a lost node minutes later."""
    silent = []
    for node in nodes:
        try:
            socket.create_connection((node.address, node.port), timeout=timeout_s).close()
        except OSError:
            silent.append(node.name)
    return silent


_ENDS = (
    ("timeout", "TIMEOUT|TimeLimit", "the job's time limit"),
    ("node", "NODE_FAIL|NodeDown", "a node failure"),
    ("preempted", "PREEMPTED|Preempted", "preemption"),
    ("out_of_memory", "OUT_OF_MEMORY|OutOfMemory", "Slurm's memory limit"),
    ("interrupted", "CANCELLED", "a cancellation"),
)  # fmt: skip


def why_ended(job_id: str, *, at: float = math.inf) -> tuple[str, str] | None:
    """Failure class and message of a job that Slurm ended or is ending; None if it did not or does not say.

    Args:
        at: a time when the job ran, seconds since 1970: a job that was requeued has the same number each time. By
            default, its last time.
    """
    live = answer("scontrol", "show", "job", "--oneliner", job_id, SLURM_TIME_FORMAT="%s")
    started = _field(live, "StartTime")
    if not started.isdigit() or int(started) <= at:  # else it was requeued since, and may run again
        if found := _end(f"{_field(live, 'JobState')} {_field(live, 'Reason')}", job_id=job_id):
            return found
        if _field(live, "JobState") == "RUNNING":
            return None
    # Forgotten by the controller, requeued, or still completing, which hides why; the accounting knows.
    said = answer(
        "sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", "--format=Start,State",
        f"--jobs={job_id}", SLURM_TIME_FORMAT="%s",
    )  # fmt: skip
    times = [(int(start), state) for start, _, state in (line.partition("|") for line in said.splitlines())
             if start.isdigit()]  # fmt: skip
    before = [time for time in times if time[0] <= at]
    return _end((max(before) if before else min(times))[1], job_id=job_id) if times else None


def _end(said: str, *, job_id: str) -> tuple[str, str] | None:
    for failure_class, pattern, cause in _ENDS:
        if re.search(rf"\b({pattern})\b", said):
            return failure_class, f"job {job_id} was ended by {cause} (Slurm: {' '.join(said.split())})"
    return None


def _node(name: str, *, record: str, port: int) -> Node:
    own_port = _field(record, "Port")  # only where it is not the cluster's
    address = _ipv4(_field(record, "NodeAddr")) or _ipv4(name) or name
    return Node(name=name, address=address, port=int(own_port) if own_port.isdigit() else port)


def _ipv4(host: str) -> str:
    """First address of a host, one that others can reach if there is any; empty if there is none."""
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET)] if host else []
    except OSError:
        return ""
    return next((address for address in found if not address.startswith("127.")), found[0] if found else "")


def _slurmd_port() -> int:
    match = re.search(r"^SlurmdPort\s*=\s*(\d+)", answer("scontrol", "show", "config"), re.MULTILINE)
    return int(match.group(1)) if match else 6818


def _field(record: str, name: str) -> str:
    """Value of `name=value` in a line of scontrol; empty if it is not there or `(null)`."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", record)
    return match.group(1) if match and match.group(1) != "(null)" else ""


def answer(*command: str, **variables: str) -> str:
    """What a command of Slurm prints; empty where it fails, is silent or does not exist."""
    environment = {**os.environ, **variables}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, stdin=subprocess.DEVNULL, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
