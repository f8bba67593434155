"""The RCP test equals the official checker's on every official record, and never passes what is incomplete."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mllog_samples import log_bytes, log_lines
from mlscaling.mlperf import official, rounds
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.rcp import RcpRecord, check_point, load_rcps, official_question, prune, reference_at, write_rcps
from mlscaling.mlperf.rcp_statistics import compare, lower_limit, olympic_mean
from mlscaling.mlperf.summary import RunSummary
from published_tree import sampled

EXAMPLE = [34, 34, *[35] * 9, 36, 36, 36, 37]
"""Official record of ResNet at 3264, worked through in the documentation."""


def official_sets() -> list[tuple[str, str]]:
    """Every (round, benchmark) of which mlperf_logging has records."""
    from mlperf_logging.rcp_checker import rcp_checker

    files = sorted(Path(rcp_checker.__file__).parent.glob("training_*/rcps_*.json"))
    return [(file.parent.name.removeprefix("training_"), file.stem.removeprefix("rcps_")) for file in files]


def runs_of(values: Sequence[float | None], *, batch: float = 3264, benchmark: str = "resnet") -> list[RunSummary]:
    """Runs that took so many epochs; None: aborted."""
    return [
        RunSummary(
            benchmark=benchmark,
            division="closed",
            global_batch_size=batch,
            status="aborted" if value is None else "success",
            convergence=math.nan if value is None else value,
            seeds=(run,),
            sha256=str(run),
            hyperparameters={"opt_name": "sgd", "opt_lr": 0.1, "train_samples": 10},
        )
        for run, value in enumerate(values)
    ]


def point_of(values: Sequence[float | None], **changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {"benchmark": "resnet", "ruleset": "1.1.0", "global_batch_size": 3264, **changes}
    return check_point(runs_of(values), **arguments)


@pytest.mark.parametrize(("ruleset", "benchmark"), official_sets(), ids=lambda part: part)
def test_records_limits_and_pruning_equal_the_official_checker(ruleset: str, benchmark: str) -> None:
    from mlperf_logging.rcp_checker import rcp_checker

    required = rounds.required_runs(benchmark)
    rcp_checker.submission_runs["training"].setdefault(benchmark, required)
    theirs = rcp_checker.RCP_Checker("training", ruleset, benchmark, verbose=False)
    records = load_rcps("official", benchmark=benchmark, ruleset=ruleset)
    sizes = [record.global_batch_size for record in records]
    assert sizes == [values["BS"] for values in theirs.rcp_data.values()]
    between = [(low + high) // 2 for low, high in itertools.pairwise(sizes)]
    for kind, ours in (("pruned_rcps", prune(records)), ("full_rcps", records)):
        assert len(ours) == len(theirs._get_rcp_data(kind))
        for size in [sizes[0] // 2, *sizes, *between, sizes[-1] * 2]:
            record = official_record(theirs, size, kind)
            reference = reference_at(ours, size, required_runs=required)
            assert (reference.status == "missing") == (record is None)
            if record is not None:
                assert reference.mean == pytest.approx(record["RCP Mean"], rel=1e-12)
                assert reference.standard_deviation == pytest.approx(record["RCP Stdev"], rel=1e-9, abs=1e-9)
                # The official bisection ends within 1e-4.
                assert lower_limit(reference, required - 2) == pytest.approx(record["Min Epochs"], abs=1.1e-4)


def official_record(checker: Any, size: int, kind: str) -> Any:
    """The record that `rcp_checker.check_directory` takes, None where it fails without a test."""
    exact = checker._find_rcp(size, kind)
    low, high = checker._find_top_min_rcp(size, kind), checker._find_bottom_max_rcp(size, kind)
    if exact is not None:
        return exact
    if low is not None and high is not None:
        return checker._create_interp_rcp(size, low, high)[1]
    return checker._find_min_rcp(kind) if high is not None else None


def test_examples_with_known_results(shared_data: Path) -> None:
    vectors = json.loads((shared_data / "rcp_test_vectors.json").read_text())["vectors"]
    for vector in vectors:
        benchmark, required = vector["benchmark"], rounds.required_runs(vector["benchmark"])
        values = [math.inf if value is None else value for value in vector["conv"]]
        mean = olympic_mean(values, rounds.trimmed_runs(benchmark))
        assert mean == pytest.approx(vector["subm_mean"])
        records = load_rcps("official", benchmark=benchmark, ruleset="1.1.0")
        pruned, full = (
            compare(
                mean,
                kind,
                benchmark=benchmark,
                ruleset="1.1.0",
                global_batch_size=vector["gbs"],
                required_runs=required,
                num_scored=required - 2,
            )
            for kind in (prune(records), records)
        )
        assert (pruned["passed"], full["passed"]) == (vector["pruned_pass"], vector["full_pass"])
        assert pruned["limit"] == pytest.approx(vector["min_acceptable"], abs=1e-3)
        assert pruned["normalization"] == pytest.approx(vector["norm"], abs=1e-6)


def test_worked_example() -> None:
    found = point_of([35] * 5)
    expected = {"mean": 35.153846, "standard_deviation": 0.748331, "limit": 34.30964, "margin": 0.69036, "p_value": 0.377,
                "normalization": 1.0043956, "value": 35}  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-3)
    assert (found["passed"], found["status"], found["num_converged"], found["findings"]) == (True, "exact", 5, [])
    assert "n1 = 13, n2 = 3" in found["method"]


@pytest.mark.parametrize(
    ("values", "changes", "passed", "status", "checks"),
    [
        ([35] * 5, {}, True, "exact", []),
        ([34] * 5, {}, False, "exact", []),
        ([35] * 4 + [None], {}, True, "exact", ["dropped_as_slowest"]),
        ([35] * 3 + [None] * 2, {}, False, "exact", ["insufficient_convergence"]),
        ([35] * 3, {}, None, "exact", ["incomplete"]),
        ([30] * 3, {}, False, "exact", ["incomplete"]),
        ([35] * 2, {}, None, "exact", ["incomplete"]),
        ([], {}, None, "exact", ["incomplete"]),
        ([35] * 6, {}, False, "exact", ["run_count"]),
        ([35] * 6, {"num_runs": 6}, True, "exact", ["run_count"]),
        ([35] * 6, {"num_runs": 5}, False, "exact", ["run_count"]),
        ([35] * 4, {"num_runs": 5}, True, "exact", ["runs_missing", "dropped_as_slowest"]),
        ([35] * 3, {"num_runs": 5}, False, "exact", ["runs_missing", "insufficient_convergence"]),
        ([70] * 5, {"global_batch_size": 1_000_000}, False, "missing", ["global_batch_size_differs"] * 5),
        ([35] * 5, {"rcps": ""}, None, "no_rcps", []),
        ([35] * 5, {"benchmark": "minigo", "required_runs": 5}, None, "no_rcps", []),
    ],
)
def test_verdicts(
    values: list[float | None], changes: dict[str, Any], passed: bool | None, status: str, checks: list[str]
) -> None:
    found = point_of(values, **changes)
    assert (found["passed"], found["status"]) == (passed, status), found
    assert [finding["check"] for finding in found["findings"]] == checks
    assert (found["normalization"] is not None) == (passed is True)
    json.dumps(found, allow_nan=False)


def test_batch_between_below_and_above_the_records() -> None:
    def at(batch: int, epochs: float) -> tuple[Any, ...]:
        found = check_point(
            runs_of([epochs] * 5, batch=batch), benchmark="resnet", ruleset="1.1.0", global_batch_size=batch
        )
        return found["status"], found["passed"], found["full"]["status"], found["full"]["passed"]

    assert at(13056, 45) == ("interpolated", True, "exact", True)
    assert at(4080, 35) == ("interpolated", True, "interpolated", False)
    assert at(32, 37) == ("slower_than_smallest", True, "slower_than_smallest", True)
    assert at(32, 20) == ("missing", False, "missing", False)
    assert at(1_000_000, 99) == ("missing", False, "missing", False)


def test_incomplete_point_counts_the_runs_that_it_scores() -> None:
    found = point_of([35, 35, 35, 35])
    assert "n2 = 2 runs scored, fewer than the round requires" in found["method"]
    assert found["limit"] < point_of([35] * 5)["limit"]
    assert found["margin"] > 0


def test_runs_of_different_batches_are_named() -> None:
    runs = [*runs_of([35] * 4), *runs_of([35], batch=1632)]
    found = check_point(runs, benchmark="resnet", ruleset="1.1.0", global_batch_size=3264)
    assert found["passed"] is False
    messages = [finding["message"] for finding in found["findings"]]
    assert (
        "global_batch_size differs between the runs of the point: 3264 in runs [0, 1, 2, 3]; 1632 in runs [4]"
        in messages
    )


def test_unknown_benchmark_is_named() -> None:
    with pytest.raises(ValueError, match="'resnet50' is unknown; legal: bert, "):
        check_point([], benchmark="resnet50", ruleset="1.1.0", global_batch_size=1)


def test_outlier_in_official_records_is_named() -> None:
    runs = runs_of([1.0] * 3, batch=3072, benchmark="gpt3")
    found = check_point(runs, benchmark="gpt3", ruleset="4.1.0", global_batch_size=3072)
    assert "rcp_outlier" in [finding["check"] for finding in found["findings"]]


def test_official_answer_stands_beside_ours(tmp_path: Path) -> None:
    logs = []
    for run in range(5):
        logs.append(tmp_path / f"run-{run}.log")
        logs[-1].write_bytes(log_bytes(log_lines(seed=run, qualities=[0.5] * 34 + [0.91], global_batch_size=3264)))
    before = sorted(tmp_path.iterdir())
    found = check_point(
        [summarize(log) for log in logs], benchmark="resnet", ruleset="1.1.0", global_batch_size=3264, logs=logs
    )
    assert found["passed"] is True
    assert found["official"] == {"passed": True, "messages": ["RCP found", "normalisation factor 1.0043956043956044"]}
    assert found["normalization"] == pytest.approx(1.0043956043956044)
    assert sorted(tmp_path.iterdir()) == before


def reference_runs(batches: Sequence[int], count: int = 10) -> list[RunSummary]:
    return [run for batch in batches for run in runs_of([5.0, 6.0] * (count // 2), batch=batch)]


def write(runs: Sequence[RunSummary], path: Path) -> None:
    write_rcps(runs, path, benchmark="resnet", required_runs=5, creator="us", when="round 1.1.0", platform="box")


def test_written_records_are_read_back_by_us_and_by_the_official_checker(tmp_path: Path) -> None:
    from mlperf_logging.rcp_checker import rcp_checker

    file = tmp_path / "sub" / "resnet.json"
    write(reference_runs([64, 32]), file)
    content = json.loads(file.read_text())
    assert list(content) == ["resnet_ref_32", "resnet_ref_64"]
    assert content["resnet_ref_64"] == {
        "Benchmark": "resnet",
        "Creator": "us",
        "When": "round 1.1.0",
        "Platform": "box",
        "BS": 64,
        "Hyperparams": {"opt_lr": 0.1, "opt_name": "sgd"},
        "Epochs to converge": [5] * 5 + [6] * 5,
    }
    records = load_rcps(file, benchmark="resnet", ruleset="1.1.0")
    assert [type(record) for record in records] == [RcpRecord] * 2
    assert [record.mean for record in records] == [5.5, 5.5]
    with file.open() as stream:
        theirs = rcp_checker.RCP_Checker("training", "1.1.0", "resnet", verbose=False, rcp_file=stream)
    assert [values["RCP Mean"] for values in theirs.rcp_data.values()] == [5.5, 5.5]
    assert [item.name for item in file.parent.iterdir()] == ["resnet.json"]


def test_written_bytes_do_not_depend_on_the_order_of_runs(tmp_path: Path) -> None:
    runs = reference_runs([64, 32])
    write(runs, tmp_path / "a.json")
    write(runs[::-1], tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "there are no runs"),
        (reference_runs([64], count=8), "global batch 64 has 8 of 10 runs"),
        ([*reference_runs([64]), *runs_of([None], batch=64)], "global batch 64 has 1 runs that did not converge"),
        (runs_of([5.0] * 10, benchmark="bert", batch=64), "global batch 64 has runs of bert"),
        (runs_of([5.0] * 10, batch=math.nan), "10 runs log no global_batch_size"),
    ],
)
def test_references_that_cannot_be_made(runs: list[RunSummary], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write(runs, tmp_path / "resnet.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file of RCPs"),
        ("[]", "a JSON object of records, not a list"),
        ('{"a": 1}', "record 'a' lacks"),
        ('{"a": {"Benchmark": "resnet", "BS": 4}}', r"record 'a' lacks \['Epochs to converge'\]"),
        ('{"a": {"Benchmark": "resnet", "BS": 4, "Epochs to converge": [1, 2]}}', "more than 2 runs are needed"),
    ],
)
def test_broken_file_of_records_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rcps.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        load_rcps(file, benchmark="resnet", ruleset="1.1.0")
    assert str(file) in str(error.value)


def test_published_points(shared_data: Path) -> None:
    root = shared_data / "training_results_v1.1" / "Dell" / "results"
    with (shared_data / "dell_v1.1_scores.csv").open(encoding="utf-8") as table:
        scores = {(row["system"], row["benchmark"]): row for row in csv.DictReader(table)}
    passed, failed = [], []
    for (system, benchmark), row in scores.items():
        runs = [summarize(log) for log in sorted((root / system / benchmark).glob("result_*.txt"))]
        batch = 0.0 if row["global_batch_size"] == "None" else float(row["global_batch_size"])
        found = check_point(runs, benchmark=benchmark, ruleset="1.1.0", global_batch_size=batch)
        assert found["value"] == pytest.approx(float(row["conv_olympic_mean"]), abs=1e-3)
        if found["passed"] is None:
            assert benchmark == "minigo"
        (passed if found["passed"] else failed).append((system, benchmark, found["passed"]))
    assert len(passed) == 45
    assert [item for item in failed if item[2] is not None] == [
        ("DSS8440x10A100-PCIE-80GB", "ssd", False),
        ("R750xax4A100-PCIE-80GB", "rnnt", False),
    ]
    assert len(failed) == 6


@pytest.mark.slow
def test_published_points_by_the_official_checker(shared_data: Path) -> None:
    root = shared_data / "training_results_v1.1" / "Dell" / "results"
    folders = sorted(root.glob("*/*"), key=lambda folder: (folder.name, folder))
    folders = sampled([folder for folder in folders if folder.name != "minigo"], every=5)
    assert {folder.name for folder in folders} >= {"bert", "maskrcnn", "resnet", "rnnt", "ssd"}
    runs = {folder: [summarize(log) for log in sorted(folder.glob("result_*.txt"))] for folder in folders}
    for records in ("pruned", "full"):
        questions = [
            dataclasses.replace(
                official_question(
                    runs[folder], sorted(folder.glob("result_*.txt")), benchmark=folder.name, ruleset="1.1.0"
                ),
                records=records,
            )
            for folder in folders
        ]
        for folder, answer in zip(folders, official.rcp(questions), strict=True):
            found = check_point(
                runs[folder],
                benchmark=folder.name,
                ruleset="1.1.0",
                global_batch_size=runs[folder][0].global_batch_size,
                answer=answer,
            )
            ours = found if records == "pruned" else found["full"]
            assert ours["passed"] == answer.passed, folder
            if answer.passed:
                assert float(answer.messages[1].split()[-1]) == pytest.approx(ours["normalization"], rel=1e-9)
