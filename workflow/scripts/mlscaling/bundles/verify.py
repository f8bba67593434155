"""Is a bundle what it says? Everything that follows from its evidence is made anew by this checkout and compared.

Hashes show that files are those that were packed; whoever changes a file can compute them again. So the logs have to
agree with run records and attempts, and every verdict, table, figure and page has to follow from them. Who invents a
whole study consistently is not found; that needs a signature by somebody whom the reader trusts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from mlscaling import provenance
from mlscaling.bundles import assemble, environment, layout
from mlscaling.bundles.comparing import Difference, Makers, Value, compared
from mlscaling.bundles.derive import OFFICIAL, Checkers, Work, derive
from mlscaling.bundles.description import read_manifest
from mlscaling.bundles.evidence_checks import check_evidence, notes_on_evidence
from mlscaling.bundles.reading import opened
from mlscaling.files import read_json
from mlscaling.mlperf import rounds
from mlscaling.study import Study

CHECKOUT: Final = Path(__file__).resolve().parents[4]
MAX_PLANNED_RUNS: Final = 20_000
MAX_CONFIG_BYTES: Final = 1 << 20
"""More than any study has; a hostile configuration must not keep a reader busy."""
GROUPS: Final[Mapping[str, str]] = {
    "results/validation/": "verdicts",
    "results/tables/": "tables and summary",
    "results/plots/": "figures",
    "results/rcps/": "collected RCPs",
    "": "plan, page and metadata",
}
"""Start of a file's name → what a reader calls it."""


@dataclass(kw_only=True, slots=True)
class Verification:
    """What holds and what does not."""

    about: Mapping[str, Any] = field(default_factory=dict)
    """`study.json` as it follows from the bundle; the bundle's own where nothing follows."""
    commit_here: str = ""
    """Commit of the checkout that verified."""
    holds: dict[str, list[Value]] = field(default_factory=dict)
    """File → its values that hold."""
    num_hashes: int = 0
    """Files whose hash is the one in the manifest."""
    differences: list[Difference] = field(default_factory=list)
    """What does not hold."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know beside."""

    @property
    def passed(self) -> bool:
        """Whether everything holds."""
        return not self.differences


def verify(archive: Path, *, jobs: int = 2, checkers: Checkers = OFFICIAL, draw: bool = True) -> Verification:
    """Verify a bundle.

    Args:
        archive: the bundle.
        jobs: processes of the official checkers at a time.
        checkers: whom to ask.
        draw: draw the figures anew and compare them, not only their data and captions.

    Raises:
        BundleError: the archive is refused.
        OSError: it cannot be read.
    """
    with opened(archive) as root, tempfile.TemporaryDirectory(prefix="verify-") as out:
        return verify_folder(root, Path(out), jobs=jobs, checkers=checkers, draw=draw)


def verify_folder(root: Path, out: Path, *, jobs: int, checkers: Checkers, draw: bool) -> Verification:
    """The same for a bundle that `reading.opened` has unpacked; `out` is an empty folder."""
    result = Verification(commit_here=_commit_here())
    claimed = read_json(root / layout.STUDY)
    result.about = claimed if isinstance(claimed, dict) else {}
    _guarded(result, layout.MANIFEST, lambda: _check_hashes(root, result))
    study = _guarded(result, layout.CONFIG, lambda: _study_of(root))
    if study is None:
        return result
    makers = _makers(root)
    _guarded(result, "results/runs", lambda: result.differences.extend(check_evidence(root, study)))
    _guarded(result, "config", lambda: result.notes.extend(notes_on_evidence(root, study, CHECKOUT, makers)))
    work = Work(study=study, root=root, out=out, jobs=jobs, checkers=checkers, draw=draw)
    derived = _guarded(result, "results", lambda: _derive(work))
    shown = _guarded(result, layout.STUDY, lambda: _show(root, out, study, left_out=result.about["left_out"]))
    _compare(root, out, makers, result)
    if (out / layout.STUDY).is_file():
        result.about = read_json(out / layout.STUDY)
        result.notes += [f"outside the plan: {name}" for name in result.about["unplanned"]]
    if derived and shown:
        result.differences += _strangers(root, out, study, draw=draw)
    return result


@cache
def _commit_here() -> str:
    return str(provenance.commit(CHECKOUT)["commit"] or "")


def _guarded(result: Verification, file: str, step: Callable[[], Any]) -> Any:
    """A step's value; whatever it raises is a difference, as a bundle from anywhere may hold anything."""
    try:
        return step()
    except Exception as error:
        words = str(error) if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: {error}"
        result.differences.append(Difference(file=file, message=f"cannot be made anew from the bundle: {words}"))
        return None


def _study_of(root: Path) -> Study:
    if (size := (root / layout.CONFIG).stat().st_size) > MAX_CONFIG_BYTES:
        raise ValueError(f"has {size:,} bytes; at most {MAX_CONFIG_BYTES:,} are read")
    config = read_json(root / layout.CONFIG)
    if config["round"] not in rounds.rulesets():  # the official checkers load rules by this name
        raise ValueError(f"round {config['round']!r} is unknown; legal: {', '.join(rounds.rulesets())}")
    planned = sum(len(curve["nodes"]) * int(curve["runs"]) for curve in config["curves"])
    if planned > MAX_PLANNED_RUNS:
        raise ValueError(f"plans {planned} runs; at most {MAX_PLANNED_RUNS} are read")
    return assemble.study_of(root)


def _makers(root: Path) -> Makers:
    try:
        packages, code = read_json(root / "environment/packages.json"), read_json(root / "environment/code.json")
        recorded = {**environment.makers(packages), "machine": str(code.get("machine"))}
    except (OSError, ValueError, AttributeError, TypeError):
        recorded = {}  # what is missing is named by `check_evidence`
    return Makers(recorded=recorded, here=environment.makers_here())


def _check_hashes(root: Path, result: Verification) -> None:
    if not (root / layout.MANIFEST).is_file():
        result.differences.append(Difference(file=layout.MANIFEST, message="is missing"))
        return
    listed = read_manifest((root / layout.MANIFEST).read_text(encoding="utf-8"))
    there = assemble.hashes_below(root)
    for name in sorted(listed.keys() | there.keys()):
        if name not in there:
            result.differences.append(Difference(file=name, message=f"is missing, though {layout.MANIFEST} lists it"))
        elif name not in listed:
            result.differences.append(Difference(file=name, message=f"is not listed in {layout.MANIFEST}"))
        elif listed[name] != there[name]:
            message = f"was changed: its sha256 is {there[name]}, {layout.MANIFEST} says {listed[name]}"
            result.differences.append(Difference(file=name, message=message))
        else:
            result.num_hashes += 1


def _derive(work: Work) -> bool:
    derive(work)
    return True


def _show(root: Path, out: Path, study: Study, *, left_out: Any) -> bool:
    assemble.present(root, out, study, left_out=left_out)
    assemble.finish(root, out, study)
    return True


def _compare(root: Path, out: Path, makers: Makers, result: Verification) -> None:
    for name in assemble.files_below(out):
        if not (root / name).is_file():
            result.differences.append(Difference(file=name, message="is missing"))
            continue
        expected, found = (out / name).read_bytes(), (root / name).read_bytes()
        holds, differs = compared(name, expected, found, makers)
        if differs and (reason := makers.explains(name)):
            result.notes.append(f"{name}: not compared ({reason})")
            continue
        result.holds[name] = holds
        result.differences += differs


def _strangers(root: Path, out: Path, study: Study, *, draw: bool) -> Iterator[Difference]:
    evidence = layout.named(study, root)
    for name in assemble.files_below(root):
        drawing = not draw and name.endswith((".svg", ".png")) and (out / name).with_suffix(".csv").is_file()
        known = name == layout.MANIFEST or (out / name).is_file() or drawing
        if not known and not layout.is_evidence(name, evidence):
            yield Difference(file=name, message="does not belong in the bundle: it is no evidence, nor follows from it")
