"""Command line of trainings: `run` makes one attempt at a run, `emulate` is a one-host srun.

`preflight` and `rank` are one rank of it, before and in the training.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CONFIG_DIR = Path(__file__).resolve().parents[2] / "config"


def main(arguments: list[str]) -> int:
    """Dispatch; every option has a long, distinct name, since torchrun abbreviates options it thinks are its own."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands.add_parser("run", help="make one attempt at a run", allow_abbrev=False))
    _add_preflight(commands.add_parser("preflight", help="check nodes and network as one rank", allow_abbrev=False))
    _add_rank(commands.add_parser("rank", help="train as one rank", allow_abbrev=False))
    _add_emulate(commands.add_parser("emulate", help="start a command on emulated nodes", allow_abbrev=False))
    options = parser.parse_args(arguments)
    return {"run": _run, "preflight": _preflight, "rank": _rank, "emulate": _emulate}[options.command](options)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", required=True, help="what to train, JSON of a RunSpec")
    parser.add_argument("--system", required=True, help="name of a file in <config-dir>/systems")
    parser.add_argument("--config-dir", type=Path, default=CONFIG_DIR, help="folder of the configuration")
    parser.add_argument("--data-dir-file", type=Path, required=True, help="file that holds the folder of prepared data")
    parser.add_argument("--attempts-dir", type=Path, required=True, help="folder of all attempts at this run")
    parser.add_argument("--log-file", type=Path, required=True, help="MLPerf log to publish")
    parser.add_argument("--record-file", type=Path, required=True, help="run record to publish")


def _run(options: argparse.Namespace) -> int:
    from mlscaling.attempts import Paths, run_training
    from mlscaling.catalog import load_system
    from mlscaling.spec import RunSpec
    from mlscaling.study import StudyError

    system, problems = load_system(options.system, config_dir=options.config_dir)
    if system is None:
        print(StudyError(problems), file=sys.stderr)
        return 1
    paths = Paths(
        attempts_dir=options.attempts_dir,
        log=options.log_file,
        record=options.record_file,
        train_script=Path(__file__),
        data_dir=Path(options.data_dir_file.read_text(encoding="utf-8").strip()),
        verdict=_verdict_of(options.log_file),
    )
    return run_training(RunSpec.from_json(options.spec), system, paths)


def _verdict_of(log: Path) -> Path | None:
    """Where the rules put the compliance verdict of a log, `<results>/runs/<point>/result_k.txt`; None elsewhere."""
    if len(log.parents) < 5 or log.parents[3].name != "runs":
        return None
    name = log.name.replace("result_", "compliance_").replace(".txt", ".json")
    return log.parents[4] / "validation" / log.parent.relative_to(log.parents[3]) / name


def _add_preflight(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", type=Path, required=True, help="file with the JSON of a RunSpec")
    parser.add_argument("--request", type=Path, required=True, help="file with the JSON of a preflight.Request")
    parser.add_argument("--report", type=Path, required=True, help="report that rank 0 writes")


def _preflight(options: argparse.Namespace) -> int:
    from mlscaling.preflight import Request
    from mlscaling.preflight_ranks import main_rank
    from mlscaling.spec import RunSpec

    request = Request.from_file(options.request)
    return main_rank(RunSpec.from_file(options.spec), request=request, report=options.report)


def _add_rank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", type=Path, required=True, help="file with the JSON of a RunSpec")
    parser.add_argument("--log", type=Path, required=True, help="MLPerf log that rank 0 writes")


def _rank(options: argparse.Namespace) -> int:
    from mlscaling.distributed import ranks
    from mlscaling.spec import RunSpec
    from mlscaling.trainer import main_rank
    from mlscaling.whereabouts import line_of_rank

    spec = RunSpec.from_file(options.spec)
    print(line_of_rank(ranks(world_size=spec.world_size).rank, world_size=spec.world_size), flush=True)
    return main_rank(spec, options.log)


def _add_emulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, required=True, help="number of emulated nodes")
    parser.add_argument("--ranks-per-node", type=int, required=True, help="ranks on each node")
    parser.add_argument("--cpus-per-rank", type=int, required=True, help="cores of each rank")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- and the command of a rank")


def _emulate(options: argparse.Namespace) -> int:
    from mlscaling.emulation import emulate

    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    return emulate(
        program, nodes=options.nodes, ranks_per_node=options.ranks_per_node, cpus_per_rank=options.cpus_per_rank
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
