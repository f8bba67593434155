"""A system as `config/systems/` describes it: hardware and software without its scale, and how jobs start there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Scalar = bool | int | float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """Hardware and software stack without its scale: one file in `config/systems/`."""

    name: str
    """File name without suffix; becomes a path component and a table column."""
    title: str
    """What a reader of a figure should see."""
    max_nodes: int
    """Nodes that a point may use."""
    accelerators_per_node: int
    """GPUs per node, or CPU processes where there is no GPU."""
    cpus_per_accelerator: int
    """CPU cores that each rank is given."""
    accelerator: str
    """Model name for system descriptions, e.g. `NVIDIA A100-PCIE-80GB`, or `CPU core`."""
    device: str
    """`cpu` or `cuda`."""
    launcher: str
    """How ranks start; a name registered in `launchers.py`."""
    container: str = "none"
    """What wraps each rank's command; a name registered in `containers.py`."""
    image: str = ""
    """Container image by path, name and digest, or name and tag; empty without a container."""
    image_source: str = ""
    """From what `prepare_image` makes the image where it is a path; empty, it is there already."""
    image_sha256: str = ""
    """Digest that the image must have; empty, the one that `prepare_image` found."""
    mounts: tuple[str, ...] = ()
    """Further folders to bind, `source:target` or `source:target:ro`."""
    container_command: tuple[str, ...] = ()
    """What starts the runtime; empty, its own name."""
    container_options: tuple[str, ...] = ()
    """Further options of the runtime."""
    container_python: str = "python3"
    """Interpreter inside the image for this workflow's own trainings."""
    mpi: str = ""
    """`srun --mpi`; empty, Slurm's default."""
    launcher_options: tuple[str, ...] = ()
    """Further options of `srun` or `mpirun`, e.g. for binding."""
    rank_prefix: tuple[str, ...] = ()
    """What stands before each rank's command inside the container, e.g. a script that binds it to cores and NIC."""
    emulated: bool = False
    """Nodes are emulated on one host; every artefact and figure says so."""
    queue_limit_min: int = 0
    """Longest time of a job in Slurm's queue, minutes; 0, no limit."""
    startup_limit_min: int = 30
    """Longest time from the start of an attempt to `run_start`, minutes."""
    time_limit_min: int = 60
    """Longest time from `run_start` to `run_stop`, minutes."""
    silence_limit_min: int = 15
    """Longest time without an MLLOG event after `run_start`, minutes."""
    exclude_nodes: Sequence[str] = ()
    """Nodes that no job may get, as Slurm writes lists of hosts."""
    rank_order: str = "slurm"
    """Order in which ranks fill the nodes; one of `rank_order.RANK_ORDERS`."""
    stage_data_to: str = ""
    """Node-local folder to which each node copies the data before a training; empty: ranks read where they lie."""
    drop_page_cache: bool = False
    """Each node drops its page cache right before a training, as far as it may."""
    mem_mib_per_node: int = 4000
    """Memory that a training asks for on each node, MiB."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set for every rank."""
    samples_per_s_per_accelerator: Mapping[str, float] = field(default_factory=dict)
    """Expected training throughput of one accelerator by workload, for the plan's cost; empty: cost unknown."""
    description: Mapping[str, str] = field(default_factory=dict)
    """What only a person can say of MLPerf's system description, under its names."""
    preflight: Mapping[str, Scalar] = field(default_factory=dict)
    """What is checked before each training, and its thresholds; `preflight.Settings` reads it."""
