"""A copy of the repository whose study runs on the test cluster, and what a test can ask of it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
FAST = ["--slurm-init-seconds-before-status-checks=3", "--latency-wait=10"]
"""Settings for an idle cluster of one's own, as docs/slurm.md names them."""
RUNS_TABLE = "results/on_slurm/tables/runs.csv"
"""What the tests of faults ask for: every run, its verdict and its row."""
STUDY = """\
study: on_slurm
title: a study on the Slurm test cluster
round: "1.1.0"
scale: tiny
curves:
{curves}
plots: [speedup]
"""


def curve(
    *,
    nodes: Sequence[int],
    runs: int,
    system: str = "test_cluster",
    local_batch_size: int = 64,
    allocation: str = "run",
) -> str:
    """A curve of the study's file."""
    what = f"workload: resnet, system: {system}, nodes: {list(nodes)}, weak: {{local_batch_size: {local_batch_size}}}"
    return f"  - {{{what}, runs: {runs}, allocation: {allocation}}}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A snakemake that was started."""

    process: subprocess.Popen[bytes]
    """It."""
    log: Path
    """What it prints."""

    def end(self, number: signal.Signals | None = None) -> str:
        """Send it a signal, or wait for its own end; returns what it printed."""
        if number is signal.SIGKILL:
            self.process.kill()
        elif number is not None:
            os.killpg(self.process.pid, number)
        self.process.wait(timeout=600)
        return self.log.read_text()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SlurmStudy:
    """The copy in which snakemake runs with the Slurm profile."""

    path: Path
    """Its top folder."""
    cluster: Cluster
    """Where it runs."""

    # --- snakemake ----------------------------------------------------------------------------------------------------

    def snakemake(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.path,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=1500,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.slurm_logs()
        return done

    def start(self, *arguments: str) -> Started:
        """Start it as a shell does: in its own process group, with SIGINT not ignored."""
        log = self.path / f"snakemake_{time.monotonic_ns()}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["env", "--default-signal=INT", *self.command(*arguments)],
                cwd=self.path,
                env=self.environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Started(process=process, log=log)

    def command(self, *arguments: str) -> list[str]:
        """Targets come first: `--configfile` takes all words behind it for files."""
        options = ["--nolock", *FAST, "--profile", "profiles/slurm", "--configfile", "study.yaml"]
        return [sys.executable, "-m", "snakemake", *arguments, *options]

    def environment(self) -> dict[str, str]:
        """Environment in which `python` is the tests' own and Slurm's commands find the cluster."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **self.cluster.environment}

    # --- what it left -------------------------------------------------------------------------------------------------

    def results(self, *parts: str) -> Path:
        """Path below the study's results."""
        return self.path.joinpath("results", "on_slurm", *parts)

    def attempts(self, *, nodes: int, run: int = 0, system: str = "test_cluster") -> list[dict[str, Any]]:
        """Attempts at a run of ResNet."""
        folder = self.results("attempts", system, "resnet", f"n{nodes}", f"run_{run}")
        paths = sorted(folder.glob("attempt_*/attempt.json"))
        return [json.loads(path.read_text()) for path in paths]

    def slurm_logs(self) -> str:
        """Slurm's own logs of this study's jobs."""
        return "\n".join(path.read_text(errors="replace") for path in self.path.glob("results/slurm_logs/**/*.log"))

    # --- what runs ----------------------------------------------------------------------------------------------------

    def slurm(self, *command: str) -> str:
        """Answer of a command of Slurm."""
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def running_jobs(self) -> list[str]:
        """Ids of all jobs that wait or run; one that is completing is over, if a node of it is lost for long."""
        return self.slurm("squeue", "--noheader", "--format=%i", "--states=PENDING,RUNNING,SUSPENDED").split()

    def trains(self, *, run: int, attempt: int = 0, nodes: int = 2) -> bool:
        """Whether rank 0 of an attempt has logged `run_start`."""
        log = self.results(f"attempts/test_cluster/resnet/n{nodes}/run_{run}/attempt_{attempt}/mlperf.log")
        return log.exists() and "run_start" in log.read_text()

    def rank_processes(self, folder: Path) -> Mapping[str, int]:
        """Host → process of the ranks that train in an attempt's folder; all nodes share the process table."""
        spec = f"--spec={folder / 'spec.json'}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if spec in words and b"rank" in words and Path(words[0].decode()).name.startswith("python"):
                host = next((v for v in variables if v.startswith(b"SLURMD_NODENAME=")), b"=").partition(b"=")[2]
                found[host.decode()] = int(entry.name)
        return found

    @staticmethod
    def send(pid: int, number: signal.Signals) -> None:
        """Send a process a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def wait_until_idle(self) -> None:
        """Return when no job and no rank of this study is left."""
        wait_for(lambda: not self.running_jobs() or None, what="no job is left", seconds=60)
        folders = [path.parent for path in self.results("attempts").rglob("spec.json")]
        wait_for(lambda: not any(map(self.rank_processes, folders)) or None, what="no rank is left", seconds=30)

    # --- what it is ---------------------------------------------------------------------------------------------------

    def change(self, file: str, texts: Mapping[str, str]) -> None:
        """Replace texts of a file; each must be there."""
        content = (self.path / file).read_text()
        for old, new in texts.items():
            assert old in content, f"{file} has no {old!r}"
            content = content.replace(old, new)
        (self.path / file).write_text(content)

    def system(self, name: str, texts: Mapping[str, str], *, keys: str = "") -> None:
        """A system like the test cluster, with other texts, and more keys."""
        own = f"config/systems/{name}.yaml"
        (self.path / own).write_text((self.path / "config/systems/test_cluster.yaml").read_text() + keys)
        self.change(own, texts)

    def copy(self, target: Path, *, study: str) -> SlurmStudy:
        """A copy with another study, whose data are prepared already."""
        shutil.copytree(self.path, target, symlinks=True)
        (target / "study.yaml").write_text(study)
        return dataclasses.replace(self, path=target)


def quick(prepared: SlurmStudy, target: Path, *, nodes: int, runs: int) -> SlurmStudy:
    """A study whose trainings end after a few epochs and have their nodes for themselves."""
    study = prepared.copy(target, study=STUDY.format(curves=curve(nodes=[nodes], runs=runs)))
    study.change("config/workloads/resnet.yaml", {"target: 0.97 ": "target: 0.5 "})
    study.change("config/systems/test_cluster.yaml", {"mem_mib_per_node: 3000": "mem_mib_per_node: 9000"})
    return study


def wait_for(condition: Callable[[], Any], *, what: str, seconds: float = 90) -> Any:
    """First answer of the condition that is not None."""
    deadline = time.monotonic() + seconds
    while (answer := condition()) is None:
        assert time.monotonic() < deadline, f"after {seconds} s it is not so that {what}"
        time.sleep(0.2)
    return answer


def copy_of_repository(target: Path, *, cluster: Cluster, study: str) -> SlurmStudy:
    """The files that git knows or would add, as they are now."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / "study.yaml").write_text(study)
    return SlurmStudy(path=target, cluster=cluster)
