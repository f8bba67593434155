"""Implementations that are not ours: any command that prints MLLOG lines, e.g. a vendor's container.

Geometry, seed, batch size and folders reach it by environment variables, whose names and texts the workload's YAML
gives; a preset has the names that vendors' published code reads. What all ranks print becomes the attempt's log.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlscaling.files import written_beside
from mlscaling.spec import CommandSpec, RunSpec, with_tuples

MARKER = ":::MLLOG"
FIELDS = (
    "system",
    "workload",
    "nodes",
    "accelerators_per_node",
    "accelerators",
    "cpus_per_accelerator",
    "global_batch_size",
    "local_batch_size",
    "batch_size_per_accelerator",
    "gradient_accumulation_steps",
    "seed",
    "run",
    "trials",
    "target",
    "data_dir",
    "log_dir",
    "image",
)
"""What a text of `command` may name, as `{nodes}`."""
PRESETS: dict[str, dict[str, str]] = {
    "none": {},
    # Names that the scripts of NVIDIA and its partners read, MLPerf Training v0.6 to v5.1: run.sub, run_and_time.sh.
    "nvidia": {
        "DGXSYSTEM": "{system}",
        "DGXNNODES": "{nodes}",
        "DGXNGPU": "{accelerators_per_node}",
        "BATCHSIZE": "{batch_size_per_accelerator}",
        "GRADIENT_STEPS": "{gradient_accumulation_steps}",
        "SEED": "{seed}",
        "NEXP": "{trials}",
        "DATADIR": "{data_dir}",
        "LOGDIR": "{log_dir}",
        "CONT": "{image}",
    },
    # This project's own words.
    "plain": {name.upper(): f"{{{name}}}" for name in FIELDS},
}
"""Variables by name of preset; a workload's `environment` adds to them and replaces them."""


def problems_of_texts(command: CommandSpec) -> Iterator[tuple[str, str, str]]:
    """Key, value and message of every text that names a field which does not exist."""
    texts = [
        *((f"program[{number}]", text) for number, text in enumerate(command.program)),
        *(
            (f"before[{number}][{place}]", text)
            for number, program in enumerate(command.before)
            for place, text in enumerate(program)
        ),
        *((f"mounts[{number}]", text) for number, text in enumerate(command.mounts)),
        *((f"environment.{name}", text) for name, text in command.environment.items()),
    ]
    for key, text in texts:
        try:
            unknown = sorted({name for _, name, _, _ in string.Formatter().parse(text) if name is not None} - {*FIELDS})
        except ValueError as error:
            yield key, text, f"braces that do not pair: {error}; a literal one is written twice"
            continue
        if unknown:
            yield key, text, f"has no field {{{unknown[0]}}}; fields: {', '.join(FIELDS)}; a literal brace: {{{{"


def fields_of(spec: RunSpec, *, log_dir: Path, image: str, trials: int = 1) -> dict[str, str]:
    """Values of `FIELDS` for a run.

    Args:
        log_dir: folder for whatever the command writes, in the attempt's folder.
        image: container image, empty without one.
        trials: runs that one launch makes.
    """
    accelerators = spec.world_size
    values: dict[str, Any] = {
        **{name: getattr(spec, name) for name in FIELDS if hasattr(spec, name)},
        "accelerators": accelerators,
        "batch_size_per_accelerator": spec.global_batch_size // accelerators,
        "trials": trials,
        "data_dir": data_of(Path(spec.data_dir)),
        "log_dir": log_dir,
        "image": image,
    }
    return {name: str(values[name]) for name in FIELDS}


def data_of(data_dir: Path) -> Path:
    """Where the data really are: an external dataset's prepared folder only links to them."""
    link = data_dir / "external"
    return link.resolve() if link.is_symlink() else data_dir


def command_of(spec: RunSpec) -> CommandSpec:
    """The command of a run that one trains."""
    return CommandSpec(**with_tuples(spec.command))


def rendered(texts: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str]:
    """Texts with their fields filled in."""
    return {key: text.format_map(fields) for key, text in texts.items()}


def variables_of(spec: RunSpec, fields: Mapping[str, str]) -> dict[str, str]:
    """Variables of a run: its hyper-parameters under their own names, then the command's environment."""
    settings = {name: str(value) for name, value in spec.hyperparameters.items()}
    return settings | rendered(command_of(spec).environment, fields)


# --- the log ----------------------------------------------------------------------------------------------------------


def collect_log(outputs: Sequence[Path], log: Path) -> None:
    """Write the MLLOG lines among what all ranks printed, in the order in which they came, one to a line.

    Labels of the launcher before a line and words behind it stay in the outputs. A line that is no JSON is kept as it
    is, for the reader to report.
    """
    with written_beside(log) as beside, beside.open("wb") as stream:
        for output in outputs:
            with output.open("rb") as lines:
                for line in lines:
                    stream.writelines(event.encode("latin-1") + b"\n" for event in _events(line.decode("latin-1")))


def trials_of(log: Path) -> list[str]:
    """Texts of the logs of a launch that made several runs: the lines of one run each.

    A run begins with what is said before `run_start` and after an earlier `run_stop`: submission header, cleared
    cache, `init_start`. Late lines of other ranks after a `run_stop` belong to the run that stopped.
    """
    trials: list[list[str]] = [[]]
    stopped = False
    for line in log.read_text(encoding="latin-1").splitlines(keepends=True):
        key = match.group(1) if (match := _KEY.search(line)) else ""
        if stopped and (key.startswith("submission_") or key in _BEGIN):
            trials.append([])
            stopped = False
        stopped = stopped or key == "run_stop"
        trials[-1].append(line)
    return ["".join(lines) for lines in trials]


_KEY = re.compile(r'"key": *"(\w+)"')
_BEGIN = ("cache_clear", "init_start", "run_start")


def _events(line: str) -> Iterator[str]:
    start = line.find(MARKER)
    while start >= 0:
        body = start + len(MARKER)
        begin = body + len(line[body:]) - len(line[body:].lstrip())
        try:
            _, end = json.JSONDecoder().raw_decode(line, begin)
        except ValueError:
            following = line.find(MARKER, body)
            end = following if following >= 0 else len(line)
        yield line[start:end].rstrip("\r\n")
        start = line.find(MARKER, end)
