"""Texts of the test cluster's configuration files, from its shape."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

NUMBER = int(os.environ.get("MLSCALING_CLUSTER", "0"))
"""Several clusters, 0 … 9, can be up beside each other on one machine."""
NAME = f"mlscaling{NUMBER}"
SUBNET = f"10.78.{NUMBER}"
CONTROLLER = f"{SUBNET}.1"
CONTROLLER_PORT, NODE_PORT, ACCOUNTING_PORT, DATABASE_PORT = (
    port + 100 * NUMBER for port in (26817, 26818, 26819, 23306)
)
"""Beside those of a real Slurm or MariaDB on the same machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What the cluster claims to be; its nodes may claim more than the machine has."""

    nodes: int = 8
    """Number of nodes."""
    cpus: int = 32
    """CPUs that each node claims."""
    mem_mib: int = 16000
    """Memory that each node claims, MiB."""
    gpus: int = 8
    """GPUs that each node claims; their device files are copies of /dev/null."""


def address(node: int) -> str:
    """Address of a node, 1 … nodes."""
    return f"{SUBNET}.{10 + node}"


def hosts(shape: Shape, *, own: str) -> str:
    """`/etc/hosts` of the nodes: this machine's own lines and every node."""
    return own + "".join(f"{address(node)} node{node}\n" for node in range(1, shape.nodes + 1))


def nsswitch(own: str) -> str:
    """The machine's own, without DNS: a question for a name that is not there would take 10 s."""
    return "".join(
        "hosts: files\n" if line.startswith("hosts:") else line for line in own.splitlines(keepends=True)
    )  # fmt: skip


def gres_conf(shape: Shape, *, state: Path) -> str:
    """`gres.conf`; without device files, a node that claims GPUs is drained."""
    return f"Name=gpu Type=fake File={state}/dev/gpu[0-{shape.gpus - 1}]\n"


def topology_conf(shape: Shape) -> str:
    """`topology.conf`: a tree of two switches, whose nodes alternate."""
    leaves = {"odd": range(1, shape.nodes + 1, 2), "even": range(2, shape.nodes + 1, 2)}
    lines = {name: ",".join(f"node{node}" for node in nodes) for name, nodes in leaves.items() if nodes}
    return "".join(f"SwitchName={name} Nodes={nodes}\n" for name, nodes in lines.items()) + (
        f"SwitchName=top Switches={','.join(lines)}\n"
    )


def slurmdbd_conf(state: Path) -> str:
    """`slurmdbd.conf`."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={state}/munge/socket
DbdHost=localhost
DbdAddr={CONTROLLER}
DbdPort={ACCOUNTING_PORT}
SlurmUser=root
PidFile={state}/run/slurmdbd.own.pid
LogFile={state}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={DATABASE_PORT}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_accounting
"""


def slurm_conf(shape: Shape, *, state: Path, host: str) -> str:
    """`slurm.conf`."""
    nodes = "".join(
        f"NodeName=node{node} NodeAddr={address(node)} CPUs={shape.cpus} RealMemory={shape.mem_mib}"
        f" Gres=gpu:fake:{shape.gpus} State=UNKNOWN\n"
        for node in range(1, shape.nodes + 1)
    )
    return f"""\
ClusterName={NAME}
SlurmctldHost={host}({CONTROLLER})
SlurmctldPort={CONTROLLER_PORT}
SlurmdPort={NODE_PORT}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge/socket
CredType=cred/munge
StateSaveLocation={state}/controller
SlurmdSpoolDir={state}/spool/%n
SlurmctldPidFile={state}/run/slurmctld.own.pid
SlurmdPidFile={state}/run/%n.own.pid
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdLogFile={state}/log/%n.log
MpiDefault=none
SwitchType=switch/none
# No cgroups, so that it runs in a container, too.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
JobAcctGatherParams=OverMemoryKill
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
TopologyPlugin=topology/tree
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=15
KillWait=10
MinJobAge=300
Waittime=0
JobRequeue=0
PropagateResourceLimits=NONE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={CONTROLLER}
AccountingStoragePort={ACCOUNTING_PORT}
AccountingStoragePass={state}/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
{nodes}\
PartitionName=main Default=YES Nodes=ALL MaxTime=INFINITE PriorityTier=5 PreemptMode=OFF
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF
PartitionName=spare Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE
"""
