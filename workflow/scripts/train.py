"""Command line of trainings: `run` makes one attempt at a run, `runs` at several, one after another.

The others start on their nodes: `rank` is one rank, `stage`, `look`, `capture`, `preflight` and `drop-page-cache` come
before, `emulate` is a one-host srun.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from mlscaling.attempts import Paths
    from mlscaling.systems import System

CONFIG_DIR = Path(__file__).resolve().parents[2] / "config"


def main(arguments: list[str]) -> int:
    """Dispatch; every option has a long, distinct name, since torchrun abbreviates options it thinks are its own."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands.add_parser("run", help="make one attempt at a run", allow_abbrev=False))
    _add_runs(commands.add_parser("runs", help="make one attempt at each run of a point", allow_abbrev=False))
    _add_preflight(commands.add_parser("preflight", help="check nodes and network as one rank", allow_abbrev=False))
    _add_rank(commands.add_parser("rank", help="train as one rank", allow_abbrev=False))
    _add_stage(commands.add_parser("stage", help="have a verified copy of the data on this node", allow_abbrev=False))
    commands.add_parser("drop-page-cache", help="drop this node's page cache", allow_abbrev=False)
    _add_emulate(commands.add_parser("emulate", help="start a command on emulated nodes", allow_abbrev=False))
    _add_look(commands.add_parser("look", help="say what this node has of a container", allow_abbrev=False))
    _add_capture(commands.add_parser("capture", help="say what this node is", allow_abbrev=False))
    options = parser.parse_args(arguments)
    commands_by_name = {
        "run": _run,
        "runs": _runs,
        "rank": _rank,
        "stage": _stage,
        "look": _look,
        "capture": _capture,
        "preflight": _preflight,
        "drop-page-cache": _drop_page_cache,
        "emulate": _emulate,
    }
    return commands_by_name[options.command](options)


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_what_and_where(parser)
    parser.add_argument("--run", type=int, required=True, help="number of the run")
    parser.add_argument("--attempts-dir", type=Path, required=True, help="folder of all attempts at this run")
    parser.add_argument("--log-file", type=Path, required=True, help="MLPerf log to publish")
    parser.add_argument("--record-file", type=Path, required=True, help="run record to publish")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    _add_what_and_where(parser)
    parser.add_argument("--attempts-dir", type=Path, required=True, help="folder of a folder of attempts for each run")
    parser.add_argument("--log-files", type=Path, nargs="+", required=True, help="MLPerf logs, …/result_{run}.txt")
    parser.add_argument("--record-files", type=Path, nargs="+", required=True, help="run records, in the same order")


def _add_what_and_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", required=True, help="what to train, JSON of the RunSpec of any run of the point")
    parser.add_argument("--system", required=True, help="name of a file in <config-dir>/systems")
    parser.add_argument("--config-dir", type=Path, default=CONFIG_DIR, help="folder of the configuration")
    parser.add_argument("--data-dir-file", type=Path, required=True, help="file that holds the folder of prepared data")
    parser.add_argument("--manifest-file", type=Path, required=True, help="manifest of these data")
    parser.add_argument("--image-file", type=Path, nargs="?", help="record of the container image; empty without one")


def _run(options: argparse.Namespace) -> int:
    from mlscaling.attempts import run_training
    from mlscaling.seeds import spec_of_run
    from mlscaling.spec import RunSpec

    if (system := _system(options)) is None:
        return 1
    paths = _paths(options, attempts_dir=options.attempts_dir, log=options.log_file, record=options.record_file)
    return run_training(spec_of_run(RunSpec.from_json(options.spec), run=options.run), system, paths)


def _runs(options: argparse.Namespace) -> int:
    from mlscaling.attempts import run_trainings
    from mlscaling.seeds import spec_of_run
    from mlscaling.spec import RunSpec

    if (system := _system(options)) is None:
        return 1
    spec = RunSpec.from_json(options.spec)
    runs = []
    for log, record in zip(options.log_files, options.record_files, strict=True):
        run = int(log.stem.removeprefix("result_"))
        paths = _paths(options, attempts_dir=options.attempts_dir / f"run_{run}", log=log, record=record)
        runs.append((spec_of_run(spec, run=run), paths))
    return run_trainings(runs, system)


def _system(options: argparse.Namespace) -> System | None:
    from mlscaling.catalog import load_system
    from mlscaling.study import StudyError

    system, problems = load_system(options.system, config_dir=options.config_dir)
    if system is None:
        print(StudyError(problems), file=sys.stderr)
    return system


def _paths(options: argparse.Namespace, *, attempts_dir: Path, log: Path, record: Path) -> Paths:
    from mlscaling.attempts import Paths

    return Paths(
        attempts_dir=attempts_dir,
        log=log,
        record=record,
        train_script=Path(__file__),
        data_dir=Path(options.data_dir_file.read_text(encoding="utf-8").strip()),
        manifest=options.manifest_file,
        image=options.image_file,
        verdict=_verdict_of(log),
    )


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
    parser.add_argument("--cache-cleared", action="store_true", help="every node's page cache was dropped just now")


def _rank(options: argparse.Namespace) -> NoReturn:
    from mlscaling.lasting import lasting_imports

    with lasting_imports():
        import torch._dynamo  # noqa: F401  (any optimiser imports it, else after `init_start`)
        from mlscaling.distributed import ranks
        from mlscaling.spec import RunSpec
        from mlscaling.trainer import main_rank
        from mlscaling.whereabouts import line_of_rank

    spec = RunSpec.from_file(options.spec)
    print(line_of_rank(ranks(world_size=spec.world_size).rank, world_size=spec.world_size), flush=True)
    main_rank(spec, options.log, cache_cleared=options.cache_cleared)


def _add_stage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", type=Path, required=True, help="prepared data")
    parser.add_argument("--target", type=Path, required=True, help="their copy on this node")
    parser.add_argument("--files-digest", required=True, help="what the manifest says of them")


def _stage(options: argparse.Namespace) -> int:
    from mlscaling.staging import stage_here

    return stage_here(options.source, options.target, files_digest=options.files_digest)


def _drop_page_cache(_options: argparse.Namespace) -> int:
    from mlscaling.page_cache import drop_here

    return drop_here()


def _add_look(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--container", required=True, help="JSON: runtime, image, executable, mounts")


def _look(options: argparse.Namespace) -> int:
    import json

    from mlscaling.container_check import look

    return look(json.loads(options.container))


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


def _add_capture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only-software", action="store_true", help="print what ranks find here as JSON")
    parser.add_argument("--data-dir", type=Path, default=Path(), help="folder of prepared data")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder for the file of facts")
    parser.add_argument("inside", nargs=argparse.REMAINDER, help="-- and a command that prints the ranks' software")


def _capture(options: argparse.Namespace) -> int:
    from mlscaling.inventory import node

    if options.only_software:
        print(json.dumps(node.facts_of_software()), flush=True)
    else:
        inside = options.inside[1:] if options.inside[:1] == ["--"] else options.inside
        node.say_facts(data_dir=options.data_dir, folder=options.folder, inside=inside)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
