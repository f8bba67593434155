"""A real Slurm cluster on one Debian machine, to test the Slurm profile with and to try it: `cluster.py up`, then `down`.

Each node is a network namespace with its own host name, address, mounts and slurmd. All share this machine's file
system, cores and one munged. Jobs are accounted by slurmdbd and MariaDB. Nothing of it touches a Slurm or MariaDB that
runs here already: it has its own folder, ports, keys and process ids. Needs root, for the namespaces, and Debian's
packages.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cluster_files as files
from cluster_files import Shape

STATE = Path("/var/tmp/mlscaling-cluster" + (f"-{files.NUMBER}" if files.NUMBER else ""))
BRIDGE = files.NAME
PACKAGES = {
    "slurmctld": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "ip": "iproute2",
}
"""Program that the cluster needs → Debian package that has it."""
TEST_PACKAGES = {"ch-run": "charliecloud", "mpirun": "openmpi-bin", "espeak-ng": "espeak-ng", "chromium": "chromium"}
"""Program that a test of the project needs besides → Debian package that has it."""
COMMANDS = "check: say what the cluster lacks here; packages: Debian's, of all that the project's tests need and lack"
os.environ["PATH"] += f"{os.pathsep}/usr/sbin{os.pathsep}/sbin"


class ClusterError(RuntimeError):
    """The cluster cannot be brought up; says why."""


def missing() -> str:
    """What this machine lacks and the command that installs it; empty if nothing."""
    packages = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    lacks = []
    if packages:
        install = f"apt-get install --no-install-recommends {' '.join(PACKAGES.values())}"
        lacks.append(f"the packages {', '.join(packages)} (Debian 12: {install})")
    if os.geteuid() != 0:
        lacks.append("root, since its nodes are network namespaces (sudo, or root in a privileged container)")
    return "the Slurm test cluster needs " + ", and ".join(lacks) if lacks else ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The cluster; all that it is lies in its folder."""

    shape: Shape = dataclasses.field(default_factory=Shape)
    """What it claims to be."""
    state: Path = STATE
    """Its folder: configuration, logs, process ids, database."""

    @property
    def local(self) -> Path:
        """Where each node has storage of its own; here it lies in `spool/<node>/local`."""
        return self.state / "local"

    @property
    def environment(self) -> dict[str, str]:
        """What a command of Slurm needs in order to find this cluster."""
        return {"SLURM_CONF": str(self.state / "etc" / "slurm.conf")}

    # --- up and down --------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Bring it up; a healthy one is left as it is, anything else is torn down and made anew.

        Raises:
            ClusterError: something is missing or a daemon does not start.
        """
        if self.is_up():
            return
        if lacking := missing():
            raise ClusterError(lacking)
        self.down()
        self._write_files()
        self._start_munge()
        self._start_accounting()
        self._make_network()
        self._start_slurm()

    def down(self) -> None:
        """Stop what was started here, as far as it runs, and remove the folder."""
        if self._alive("slurmctld"):
            self._slurm("scancel", "--user=root", check=False)
        namespaces = self._namespaces()
        for name in [*namespaces, "slurmctld", "slurmdbd", "mariadbd", "munged"]:
            self.stop(name)
        for name in namespaces:
            self._kill_namespace(name)
            _run("ip", "netns", "delete", f"{BRIDGE}-{name}", check=False)
        _run("ip", "link", "delete", BRIDGE, check=False)
        shutil.rmtree(self.state, ignore_errors=True)

    def is_up(self) -> bool:
        """Whether every daemon runs, every node is there, and the shape is the one asked for."""
        with contextlib.suppress(OSError, ValueError):
            shape = json.loads((self.state / "shape.json").read_text(encoding="utf-8"))
            daemons = ["munged", "mariadbd", "slurmdbd", "slurmctld", *self._names()]
            return (
                shape == dataclasses.asdict(self.shape)
                and all(map(self._alive, daemons))
                and self.ready_nodes() == self.shape.nodes
            )
        return False

    # --- nodes --------------------------------------------------------------------------------------------------------

    def power_off(self, node: int) -> None:
        """End every process of a node at once: slurmd, its steps and their tasks."""
        self._kill_namespace(f"node{node}")

    def power_on(self, node: int) -> None:
        """Start a node's slurmd; it returns to service by itself."""
        name = f"node{node}"
        if self._alive(name):
            return
        spool = self.state / "spool" / name
        (spool / "local").mkdir(parents=True, exist_ok=True)
        (spool / "drop_caches").touch()
        inside = (
            'hostname "$1"; mount --bind "$2/hosts" /etc/hosts; mount --bind "$2/nsswitch.conf" /etc/nsswitch.conf;'
            # Storage of its own, and the page cache, which all nodes share, stays as it is.
            ' mount --bind "$3/local" "$4"; mount --bind "$3/drop_caches" /proc/sys/vm/drop_caches;'
            # Jobs have no SLURM_CONF, since the executor strips it, so nodes have the file where Slurm looks for it.
            ' mount --bind "$2" /etc/slurm; exec slurmd -D -N "$1"'
        )
        places = [str(path) for path in (self.state / "etc", spool, self.local)]
        # Not `ip netns exec`, which mounts /sys anew.
        enter = ["nsenter", f"--net=/run/netns/{BRIDGE}-{name}", "unshare", "--uts", "--mount", "--propagation=private"]
        self._start(name, [*enter, "sh", "-ec", inside, "sh", name, *places])

    def narrow_link(self, node: int, *, rate: str) -> None:
        """Let no more than a rate, e.g. `20mbit`, through a node's link, in each direction."""
        for where, device in self._ends_of_link(node):
            shape = ["tbf", "rate", rate, "burst", "32kbit", "latency", "400ms"]
            _run("tc", *where, "qdisc", "replace", "dev", device, "root", *shape)

    def widen_link(self, node: int) -> None:
        """Undo `narrow_link`."""
        for where, device in self._ends_of_link(node):
            _run("tc", *where, "qdisc", "delete", "dev", device, "root", check=False)

    def _ends_of_link(self, node: int) -> list[tuple[list[str], str]]:
        """Options of `tc` and device of the inner and the outer end: each shapes what leaves through it."""
        return [(["-n", f"{BRIDGE}-node{node}"], "eth0"), ([], _outer_end(f"node{node}"))]

    def ready_nodes(self) -> int:
        """Nodes that can take jobs or run some."""
        listed = self._slurm("sinfo", "--noheader", "--Node", "--format=%N %T", check=False)
        states = dict(line.split() for line in listed.splitlines())
        return sum(state in ("idle", "mixed", "allocated", "completing") for state in states.values())

    def wait_until_ready(self) -> None:
        """Return when every node can take jobs.

        Raises:
            ClusterError: some cannot, half a minute later.
        """
        self._wait(lambda: self.ready_nodes() == self.shape.nodes, what="all nodes are ready", seconds=45)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        for folder in ("etc", "run", "log", "database", "controller", "spool", "dev", "munge", "local"):
            (self.state / folder).mkdir(parents=True)
        for path in (self.state, *self.state.iterdir()):
            path.chmod(0o755)
        own_hosts, own_nsswitch = (
            Path(name).read_text(encoding="utf-8") for name in ("/etc/hosts", "/etc/nsswitch.conf")
        )
        host = socket.gethostname().partition(".")[0]
        texts = {
            "slurm.conf": files.slurm_conf(self.shape, state=self.state, host=host),
            "gres.conf": files.gres_conf(self.shape, state=self.state),
            "topology.conf": files.topology_conf(self.shape),
            "slurmdbd.conf": files.slurmdbd_conf(self.state),
            "hosts": files.hosts(self.shape, own=own_hosts),
            "nsswitch.conf": files.nsswitch(own_nsswitch),
        }
        for name, text in texts.items():
            (self.state / "etc" / name).write_text(text, encoding="utf-8")
        (self.state / "etc" / "slurmdbd.conf").chmod(0o600)
        null = os.makedev(1, 3)
        for gpu in range(self.shape.gpus):
            os.mknod(self.state / "dev" / f"gpu{gpu}", mode=0o20666, device=null)
        shape = json.dumps(dataclasses.asdict(self.shape))
        (self.state / "shape.json").write_text(shape, encoding="utf-8")
        Path("/etc/slurm").mkdir(exist_ok=True)

    def _start_munge(self) -> None:
        folder = self.state / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        for path in (folder, folder / "key"):
            shutil.chown(path, "munge", "munge")
        places = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={folder / name}" for option, name in places.items()]
        become = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
        self._start("munged", [*become, "munged", "--foreground", *options])
        self._wait((folder / "socket").exists, what="munged answers", seconds=10)

    def _start_accounting(self) -> None:
        data, sock = self.state / "database", self.state / "database" / "socket"
        shutil.chown(data, "mysql", "mysql")
        _run(
            "mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal", "--skip-name-resolve",
        )  # fmt: skip
        self._start(
            "mariadbd",
            [
                "mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={sock}",
                f"--port={files.DATABASE_PORT}", "--bind-address=127.0.0.1", "--skip-log-bin", "--skip-name-resolve",
                "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0",
                "--innodb-lock-wait-timeout=900", "--performance-schema=OFF",
            ],
        )  # fmt: skip
        client = ["mariadb", "--no-defaults", "--user=root", f"--socket={sock}"]
        self._wait(lambda: _succeeds(*client, "--execute=select 1"), what="mariadbd answers", seconds=20)
        account = "create user 'slurm'@'127.0.0.1' identified by 'slurm'"
        grant = "grant all on slurm_accounting.* to 'slurm'@'127.0.0.1'"
        _run(*client, f"--execute=create database slurm_accounting; {account}; {grant}")

    def _make_network(self) -> None:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{files.CONTROLLER}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for node, name in enumerate(self._names(), start=1):
            space, outside = f"{BRIDGE}-{name}", _outer_end(name)
            _run("ip", "netns", "add", space)
            _run("ip", "link", "delete", outside, check=False)  # a namespace that is going may still hold its end
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", outside, "master", BRIDGE, "up")
            _run("ip", "-n", space, "address", "add", f"{files.address(node)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", space, "link", "set", device, "up")

    def start_accounting(self) -> None:
        """Start slurmdbd and return when it answers; a controller that runs tells it what it has missed."""
        self._start("slurmdbd", ["slurmdbd", "-D"])
        answers = ("sacctmgr", "--noheader", "list", "cluster")
        self._wait(lambda: _succeeds(*answers, env=self.environment), what="slurmdbd answers", seconds=30)

    def start_controller(self) -> None:
        """Start slurmctld; it takes up the jobs that it knew."""
        self._start("slurmctld", ["slurmctld", "-D"])

    def _start_slurm(self) -> None:
        self.start_accounting()
        add = ("sacctmgr", "--immediate", "add")
        self._slurm(*add, "cluster", files.NAME)
        self._slurm(*add, "account", "mlperf", f"cluster={files.NAME}")
        self._slurm(*add, "user", "root", "account=mlperf", check=False)  # root exists, its account does not
        self._slurm("sacctmgr", "--immediate", "modify", "user", "root", "set", "DefaultAccount=mlperf")
        self.start_controller()
        for node in range(1, self.shape.nodes + 1):
            self.power_on(node)
        self.wait_until_ready()

    # --- processes ----------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [f"node{node}" for node in range(1, self.shape.nodes + 1)]

    def _namespaces(self) -> list[str]:
        spaces = (line.split()[0] for line in _run("ip", "netns", "list", check=False).splitlines() if line.strip())
        return [space.removeprefix(f"{BRIDGE}-") for space in spaces if space.startswith(f"{BRIDGE}-")]

    def _slurm(self, *command: str, check: bool = True) -> str:
        return _run(*command, check=check, env=self.environment)

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.state / "log" / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        identity = f"{process.pid} {_start_time(process.pid)}"
        (self.state / "run" / f"{name}.pid").write_text(identity, encoding="utf-8")

    def _pid(self, name: str) -> int | None:
        """Process of a daemon; None if it ended, even if its id was given to another since."""
        with contextlib.suppress(OSError, ValueError):
            pid, started = (self.state / "run" / f"{name}.pid").read_text(encoding="utf-8").split()
            return int(pid) if _start_time(int(pid)) == started else None
        return None

    def _alive(self, name: str) -> bool:
        return self._pid(name) is not None

    def stop(self, name: str, *, number: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon: by a signal, and by SIGKILL where that does not do."""
        for way in (number, signal.SIGKILL):
            pid = self._pid(name)
            if pid is None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, way)
            with contextlib.suppress(ClusterError):
                self._wait(lambda: not self._alive(name), what=f"{name} ended", seconds=8)

    def _kill_namespace(self, name: str) -> None:
        for pid in _run("ip", "netns", "pids", f"{BRIDGE}-{name}", check=False).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _wait(self, condition: Callable[[], bool], *, what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"after {seconds:.0f} s it is not so that {what}\n{self._last_words()}")
            time.sleep(0.1)

    def _last_words(self) -> str:
        def tails() -> Iterator[str]:
            for path in sorted((self.state / "log").glob("*")):
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
                yield from (f"  {path.name}: {line}" for line in lines)

        return "\n".join(tails())


def _outer_end(name: str) -> str:
    """Device on this machine that is the other end of a node's `eth0`."""
    return f"mls{files.NUMBER}-{name}"


def _start_time(pid: int) -> str:
    """When a process started; empty if it ended, even where nobody has collected it."""
    try:
        values = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if values[0] == "Z" else values[19]


def _run(*command: str, check: bool = True, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    if check and done.returncode:
        raise ClusterError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


def _succeeds(*command: str, env: dict[str, str] | None = None) -> bool:
    try:
        _run(*command, env=env)
    except ClusterError:
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["up", "down", "check", "packages"], help=COMMANDS)
    parser.add_argument("--nodes", type=int, default=Shape().nodes, help="number of nodes")
    options = parser.parse_args(arguments)
    if options.command == "packages":
        needed = (PACKAGES | TEST_PACKAGES).items()
        print(" ".join(package for program, package in needed if shutil.which(program) is None))
        return 0
    cluster = Cluster(shape=Shape(nodes=options.nodes))
    if options.command == "check" or (options.command == "up" and missing()):
        print(missing() or "nothing is missing")
        return 1 if missing() else 0
    if options.command == "down":
        cluster.down()
        return 0
    started = time.monotonic()
    try:
        cluster.up()
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{cluster.shape.nodes} nodes are up ({time.monotonic() - started:.0f} s). In the shell that uses them:")
    print(f"  export SLURM_CONF={cluster.environment['SLURM_CONF']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
