"""A bundle that holds, and forty that were tampered with: whoever changes something is found, with the file's name."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_study import PRIVATE, Remembered, make_study, repacked
from mlscaling.bundles.comparing import Difference
from mlscaling.bundles.reading import opened
from mlscaling.bundles.verify import Verification, verify
from mlscaling.bundles.write import Written, write_bundle

POINT = "emulated_cpu/resnet"
ONE, TWO = f"results/runs/{POINT}/n1", f"results/runs/{POINT}/n2"
TRIED, CHECKED = f"results/attempts/{POINT}/n1", f"results/validation/{POINT}"
REMEMBERED = Remembered()
Change = Callable[[Path], Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("bundle")
    return write_bundle(make_study(folder / "study"), folder / "made_up.zip", checkers=REMEMBERED.checkers)


def verified(archive: Path) -> Verification:
    """Everything but the drawings, the official checkers asked only about what is new to them."""
    return verify(archive, checkers=REMEMBERED.checkers, draw=False)


# --- ways to tamper ---------------------------------------------------------------------------------------------------


def text(name: str, old: str, new: str) -> Change:
    """A file with the first occurrence of a text replaced."""

    def change(root: Path) -> None:
        content = (root / name).read_text()
        assert old in content, f"{old!r} is not in {name}"
        (root / name).write_text(content.replace(old, new, 1))

    return change


def value(name: str, key: str, new: Any) -> Change:
    """A JSON file with the value at a dotted key replaced."""

    def change(root: Path) -> None:
        content = json.loads((root / name).read_text())
        *parents, last = key.split(".")
        inner = content
        for parent in parents:
            inner = inner[int(parent) if isinstance(inner, list) else parent]
        inner[int(last) if isinstance(inner, list) else last] = new
        (root / name).write_text(json.dumps(content, indent=1) + "\n")

    return change


def cell(name: str, *, row: int, column: str, new: str) -> Change:
    """A table with one cell replaced."""

    def change(root: Path) -> None:
        rows = list(csv.reader((root / name).read_text().splitlines()))
        rows[row][rows[0].index(column)] = new
        with (root / name).open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)

    return change


def drop(*names: str) -> Change:
    def change(root: Path) -> None:
        for name in names:
            shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()

    return change


def move(*pairs: tuple[str, str]) -> Change:
    def change(root: Path) -> None:
        for old, new in pairs:
            (root / old).rename(root / new)

    return change


def swap(one: str, other: str) -> Change:
    return move((one, "swapped.txt"), (other, one), ("swapped.txt", other))


def both(*changes: Change) -> Change:
    def change(root: Path) -> None:
        for each in changes:
            each(root)

    return change


def add(name: str, content: str = "added\n") -> Change:
    return lambda root: (root / name).write_text(content)


def rehash(*names: str) -> Change:
    """Run records of logs with the logs' own hashes, as a careful forger writes them."""

    def change(root: Path) -> None:
        for name in names:
            record = name.replace("result_", "run_").replace(".txt", ".json")
            value(record, "log_sha256", hashlib.sha256((root / name).read_bytes()).hexdigest())(root)

    return change


FASTER = ('"time_ms": 1700000630000', '"time_ms": 1700000610000')
LOG, ATTEMPT_LOG = f"{ONE}/result_0.txt", f"{TRIED}/run_0/attempt_0/mlperf.log"
TAMPERED: dict[str, tuple[Change, str]] = {
    "digit_in_log": (text(LOG, *FASTER), LOG),
    "digit_in_log_rehashed": (both(text(LOG, *FASTER), rehash(LOG)), ATTEMPT_LOG),
    "digit_in_every_copy": (both(text(LOG, *FASTER), text(ATTEMPT_LOG, *FASTER), rehash(LOG)), f"{CHECKED}/n1/compliance_0.json"),
    "line_cut_from_log": (text(f"{TWO}/result_1.txt", '"key": "eval_accuracy"', '"key": "other"'), f"{TWO}/result_1.txt"),
    "logs_swapped": (swap(f"{ONE}/result_0.txt", f"{ONE}/result_1.txt"), f"{ONE}/result_1.txt"),
    "runs_swapped": (
        both(swap(f"{ONE}/result_0.txt", f"{ONE}/result_1.txt"), swap(f"{ONE}/run_0.json", f"{ONE}/run_1.json")),
        f"{ONE}/run_0.json",
    ),
    "runs_of_points_swapped": (swap(f"{ONE}/result_0.txt", f"{TWO}/result_0.txt"), f"{TWO}/result_0.txt"),
    "log_dropped": (drop(f"{ONE}/result_1.txt"), f"{ONE}/result_1.txt"),
    "run_dropped": (drop(f"{ONE}/result_1.txt", f"{ONE}/run_1.json"), "study.json"),
    "record_dropped": (drop(f"{ONE}/run_1.json"), f"{ONE}/run_1.json"),
    "run_renamed": (
        move((f"{ONE}/result_2.txt", f"{ONE}/result_5.txt"), (f"{ONE}/run_2.json", f"{ONE}/run_5.json")),
        "study.json",
    ),
    "attempt_dropped": (drop(f"{TRIED}/run_2/attempt_0"), f"{TRIED}/run_2/attempt_0"),
    "attempts_of_run_dropped": (drop(f"{TRIED}/run_1"), f"{TRIED}/run_1/attempt_0"),
    "attempt_dropped_from_record": (value(f"{ONE}/run_2.json", "attempts.0.status", "completed"), f"{TRIED}/run_2/attempt_0/attempt.json"),
    "attempt_embellished": (value(f"{TRIED}/run_2/attempt_0/attempt.json", "failure_class", "node"), f"{TRIED}/run_2/attempt_0/attempt.json"),
    "attempt_renumbered": (move((f"{TRIED}/run_2/attempt_1", f"{TRIED}/run_2/attempt_7")), f"{TRIED}/run_2/attempt_7"),
    "attempt_of_other_run": (value(f"{TRIED}/run_2/attempt_0/attempt.json", "run", 1), f"{TRIED}/run_2/attempt_0/attempt.json"),
    "spec_of_attempt": (text(f"{TRIED}/run_0/attempt_0/spec.json", '"target":0.', '"target":0.1'), f"{TRIED}/run_0/attempt_0/spec.json"),
    "seed_in_record": (value(f"{ONE}/run_0.json", "spec.seed", 1), f"{ONE}/run_0.json"),
    "hyperparameter_in_record": (value(f"{TWO}/run_0.json", "spec.hyperparameters.opt_base_learning_rate", 9), f"{TWO}/run_0.json"),
    "hash_in_record": (value(f"{TWO}/run_0.json", "log_sha256", "0" * 64), f"{TWO}/result_0.txt"),
    "record_no_object": (add(f"{TWO}/run_0.json", "[1, 2]"), f"{TWO}/run_0.json"),
    "commit_in_record": (value(f"{TWO}/run_0.json", "code.commit", "f" * 40), f"{CHECKED}/likeness.json"),
    "verdict_forged": (value(f"{CHECKED}/n1/compliance_0.json", "passed", False), f"{CHECKED}/n1/compliance_0.json"),
    "time_in_verdict": (value(f"{CHECKED}/n1/compliance_0.json", "summary.time_to_train_min", 9), f"{CHECKED}/n1/compliance_0.json"),
    "official_verdict_forged": (value(f"{CHECKED}/n1/compliance_0.json", "official.passed", False), f"{CHECKED}/n1/compliance_0.json"),
    "verdict_dropped": (drop(f"{CHECKED}/n1/compliance_0.json"), f"{CHECKED}/n1/compliance_0.json"),
    "rcp_passed": (value(f"{CHECKED}/n1/rcp.json", "passed", True), f"{CHECKED}/n1/rcp.json"),
    "rcp_margin": (value(f"{CHECKED}/n2/rcp.json", "margin", 5), f"{CHECKED}/n2/rcp.json"),
    "rcps_lowered": (value("config/rcps/tiny/rcps_resnet.json", "resnet_ref_64.Epochs to converge.0", 1), f"{CHECKED}/n1/rcp.json"),
    "likeness_forged": (value(f"{CHECKED}/likeness.json", "alike", False), f"{CHECKED}/likeness.json"),
    "digit_in_runs": (cell("results/tables/runs.csv", row=2, column="time_to_train_min", new="9.5"), "results/tables/runs.csv"),
    "digit_in_points": (cell("results/tables/points.csv", row=1, column="time_to_train_min_high", new="10.1"), "results/tables/points.csv"),
    "digit_in_scaling": (cell("results/tables/scaling.csv", row=2, column="efficiency", new="1.0"), "results/tables/scaling.csv"),
    "row_dropped": (lambda root: text("results/tables/runs.csv", (root / "results/tables/runs.csv").read_text().splitlines()[3], "")(root), "results/tables/runs.csv"),
    "summary_edited": (text("results/tables/summary.txt", "speed-up", "SPEED-UP"), "results/tables/summary.txt"),
    "figure_data_edited": (cell("results/plots/speedup.csv", row=2, column="speedup", new="2.0"), "results/plots/speedup.csv"),
    "caption_edited": (text("results/plots/spread.rst", "Every run", "Each run"), "results/plots/spread.rst"),
    "page_edited": (text("index.html", "Complete", "Very complete"), "index.html"),
    "page_loads_something": (text("index.html", "<h2>", '<script src="https://example.org/x.js"></script><h2>'), "index.html"),
    "status_forged": (value("study.json", "status", "incomplete"), "study.json"),
    "versions_forged": (value("environment/packages.json", "numpy", "1.0"), "study.json"),
    "target_lowered": (text("config/workloads/resnet.yaml", "target: 0.97", "target: 0.9"), "results/planned.json"),
    "runs_lowered": (value("config/study.json", "curves.0.runs", 2), "results/planned.json"),
    "configuration_broken": (value("config/study.json", "scale", "huge"), "config/study.json"),
    "endless_plan": (value("config/study.json", "curves.0.nodes", list(range(1, 200_000))), "config/study.json"),
    "system_dropped": (drop("config/systems/emulated_cpu.yaml"), "config/study.json"),
    "manifest_of_data_edited": (value("datasets/imagenet_digits/manifest.json", "splits.train", 9), "datasets/imagenet_digits/manifest.json"),
    "manifest_of_data_dropped": (drop("datasets/imagenet_digits/manifest.json"), "datasets/imagenet_digits/manifest.json"),
    "lock_file_dropped": (drop("environment/constraints.txt"), "environment/constraints.txt"),
    "plan_edited": (text("results/plan.tsv", "resnet", "bert"), "results/plan.tsv"),
    "file_added": (add("results/notes.txt"), "results/notes.txt"),
    "table_added": (add("results/tables/better.csv"), "results/tables/better.csv"),
    "metadata_edited": (text("ro-crate-metadata.json", "Completed", "Failed"), "ro-crate-metadata.json"),
    "workflow_edited": (text("workflow/Snakefile", "min_version", "max_version"), "ro-crate-metadata.json"),
    "readme_edited": (text("README.md", "complete", "perfect"), "README.md"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found_though_all_hashes_were_computed_anew(name: str, written: Written, tmp_path: Path) -> None:
    change, file = TAMPERED[name]
    result = verified(repacked(written.path, tmp_path / "tampered.zip", change))
    assert not result.passed
    assert file in {difference.file for difference in result.differences}, list(map(str, result.differences))
    assert any(str(difference).startswith(f"{file}: ") for difference in result.differences)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (text(LOG, *FASTER), f"{LOG}: was changed: its sha256 is "),
        (drop("environment/workflow.txt"), "environment/workflow.txt: is missing, though manifest-sha256.txt lists it"),
        (add(f"{TRIED}/run_0/attempt_0/more.txt"), f"{TRIED}/run_0/attempt_0/more.txt: is not listed in manifest-sha256.txt"),
        (text("environment/constraints.txt", "==", ">="), "environment/constraints.txt: was changed: its sha256 is "),
        (drop("manifest-sha256.txt"), "manifest-sha256.txt: is missing"),
        (add("manifest-sha256.txt", "no hash\n"), "manifest-sha256.txt: cannot be made anew from the bundle: manifest-sha256.txt: line 1"),
    ],
)  # fmt: skip
def test_hashes_find_what_nothing_follows_from(change: Change, message: str, written: Written, tmp_path: Path) -> None:
    result = verified(repacked(written.path, tmp_path / "tampered.zip", change, with_hashes=False))
    assert any(str(difference).startswith(message) for difference in result.differences), result.differences


def test_a_number_that_does_not_hold_is_named_with_both_values(written: Written, tmp_path: Path) -> None:
    change = cell("results/tables/points.csv", row=2, column="time_to_train_min", new="4.5")
    found = verified(repacked(written.path, tmp_path / "tampered.zip", change)).differences
    assert {difference.file for difference in found} == {"results/tables/points.csv", "ro-crate-metadata.json"}
    assert str(found[0]).startswith("results/tables/points.csv: line 3, time_to_train_min: is 4.5, follows as 5.01")


# --- what holds -------------------------------------------------------------------------------------------------------


def test_an_honest_bundle_holds_with_everything_made_anew(written: Written) -> None:
    """The real checkers, and the figures drawn."""
    result = verify(written.path)
    assert result.differences == []
    assert result.notes == []
    assert written.notices == ()
    held = {name: {value.where: value.text for value in values} for name, values in result.holds.items()}
    assert held["results/plots/speedup.svg"]
    assert held[f"{CHECKED}/n1/compliance_0.json"]["official.passed"] == "true"
    assert held["results/tables/points.csv"]["line 2, verdict"] == "incomplete"
    assert sum(map(len, held.values())) > 1500


def test_another_drawing_in_the_place_of_a_figure_is_found(written: Written, tmp_path: Path) -> None:
    """Also where the page that shows it was written anew to fit."""
    from mlscaling.bundles import assemble

    def change(root: Path) -> None:
        for form in ("svg", "png"):
            shutil.copyfile(root / f"results/plots/spread.{form}", root / f"results/plots/speedup.{form}")
        assemble.finish(root, root, assemble.study_of(root))

    result = verify(repacked(written.path, tmp_path / "tampered.zip", change), checkers=REMEMBERED.checkers)
    assert result.differences == [
        Difference(file=f"results/plots/speedup.{form}", message="is not the picture that follows from the tables")
        for form in ("png", "svg")
    ]


def test_nobody_is_named_and_the_mapping_stays_outside(written: Written) -> None:
    with opened(written.path) as root:
        texts = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    named = {(name, word) for name, content in texts.items() for word in PRIVATE if word.encode() in content}
    assert named == set()
    record = json.loads(texts[f"{ONE}/run_2.json"])
    assert record["host"]["hostname"] == "host1"
    assert record["environment"] == {"OMP_NUM_THREADS": "2"}, "EDITOR is no variable that may be recorded"
    assert record["packages"]["nvidia-cublas"] == "13.1.1.3"
    assert b"on host1 that nobody ran" in texts["index.html"]
    assert written.private == written.path.with_name("made_up.pseudonyms.json")
    private = json.loads(written.private.read_text())
    assert private["pseudonyms"]["alice"] == "user1"
    assert set(private["logs"][LOG]) == {"sha256_before", "sha256"}
    assert written.private.stat().st_mode & 0o077 == 0
