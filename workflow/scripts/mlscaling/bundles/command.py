"""Command line of bundles: `write` packs a study, `verify` makes its numbers anew, `compare` shows two side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlscaling.bundles.archives import BundleError
from mlscaling.bundles.secrets import SecretError
from mlscaling.comparison.command import add_command as add_compare
from mlscaling.configuration import read_yaml

CHECKOUT = Path(__file__).resolve().parents[4]
EPILOG = """A study that was interrupted bundles as it is, as incomplete, with its missing runs listed; `snakemake
bundle` completes it first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where something does not hold or is refused, 2 where it cannot be read; says why."""
    parser = argparse.ArgumentParser(prog="bundle.py", description=__doc__, epilog=EPILOG, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    for add in (_add_write, _add_verify, add_compare):
        add(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except (BundleError, SecretError) as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"bundle: {error.filename}: {error.strerror}" if error.filename else f"bundle: {error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 2


def _add_write(commands: Any) -> None:
    parser = commands.add_parser("write", help="pack a study", allow_abbrev=False)
    parser.add_argument("--configfile", type=Path, default=Path("config/config.yaml"), help="the study")
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="as given to snakemake")
    parser.add_argument("--resolved", metavar="JSON", help="the configuration as snakemake has it, instead of --config")
    parser.add_argument("--results", type=Path, help="folder of the study; default results/<study>")
    parser.add_argument("--output", type=Path, help="archive to write; default results/bundles/<study>.zip")
    parser.add_argument(
        "--no-secret",
        action="append",
        default=[],
        metavar="FILE:LINE",
        help="what looks like a secret and is none; may be repeated",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.set_defaults(run=_write)


def _write(options: argparse.Namespace) -> int:
    from mlscaling.bundles.write import source_of, write_bundle

    source = source_of(_config(options), given=options.configfile, checkout=CHECKOUT, results=options.results)
    target = options.output or CHECKOUT / "results" / "bundles" / f"{source.study.name}.zip"
    print(f"packing {source.results}: verdicts, tables and figures are made anew from its logs", file=sys.stderr)
    written = write_bundle(source, target, no_secrets=options.no_secret, jobs=max(1, options.jobs))
    about = written.about
    for notice in written.notices:
        print(f"note: {notice}")
    num_logged = about["num_runs"] - len(about["missing_runs"])
    print(f"{written.path}: {about['status']}, {num_logged} of {about['num_runs']} runs")
    for run in about["missing_runs"]:
        print(f"  missing: {run['point']} run {run['run']}, {run['reason']}")
    print(f"  sha256 {written.sha256}")
    if written.private:
        print(f"  which pseudonym is whose: {written.private} (keep it to yourself)")
    return 0


def _config(options: argparse.Namespace) -> dict[str, Any]:
    """The study's configuration with what the command line adds to it."""
    import yaml

    if options.resolved:
        resolved: dict[str, Any] = json.loads(options.resolved)
        return resolved
    config, problems = read_yaml(options.configfile)
    if problems:
        raise ValueError("\n".join(map(str, problems)))
    for setting in options.config:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ValueError(f"--config {setting}: expected KEY=VALUE")
        config[key] = yaml.safe_load(value)
    return config


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser("verify", help="make a bundle's numbers anew and compare", allow_abbrev=False)
    parser.add_argument("archive", type=Path, help="the bundle")
    parser.add_argument("--values", action="store_true", help="list every value that holds, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value and every difference")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> int:
    from mlscaling.bundles.verify import verify
    from mlscaling.bundles.verify_text import verification_record, verification_text
    from mlscaling.files import write_json

    print(f"verifying {options.archive}: its numbers are made anew from its logs", file=sys.stderr)
    result = verify(options.archive, jobs=max(1, options.jobs))
    print(verification_text(result, archive=options.archive, values=options.values), end="")
    if options.json:
        write_json(verification_record(result), options.json)
    return 0 if result.passed else 1
