"""Our verdict on a log and on the runs of a point, with the official checker's beside it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from mllog_samples import Damage, damages, edited, log_bytes, log_lines, with_key
from mlscaling.mlperf import rounds
from mlscaling.mlperf.compliance import check_compliance, check_compliances, check_runs, check_summary, verdict
from mlscaling.mlperf.findings import has_errors
from mlscaling.mlperf.official import OfficialVerdict
from mlscaling.mlperf.official import compliance as official_compliance
from mlscaling.mlperf.parse import summarize
from mlscaling.mlperf.rounds import Target
from mlscaling.mlperf.summary import RunSummary

TARGET = Target(values={"": 0.9}, mode="max")
DAMAGES = damages()


def written(folder: Path, content: bytes, name: str = "result_0.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def summary_of(folder: Path, **values: Any) -> RunSummary:
    return summarize(written(folder, log_bytes(log_lines(**values))))


@pytest.fixture(scope="module")
def official_verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OfficialVerdict]:
    folder = tmp_path_factory.mktemp("damages")
    logs = [written(folder, damage.content, f"{damage.name}.txt") for damage in DAMAGES]
    answers = official_compliance(logs, ruleset="1.1.0")
    return {damage.name: answer for damage, answer in zip(DAMAGES, answers, strict=True)}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damaged_log_gets_the_right_verdict(
    damage: Damage, tmp_path: Path, official_verdicts: dict[str, OfficialVerdict]
) -> None:
    log = written(tmp_path, damage.content)
    expected = {"benchmark": "resnet", "division": "open", "accelerators": 2}
    found = verdict(log, ruleset="1.1.0", expected=expected, target=TARGET, answer=official_verdicts[damage.name])
    checks = [finding["check"] for finding in found["findings"]]
    assert found["passed"] == damage.passed, found["findings"]
    assert damage.check in checks if damage.check else checks == []
    assert found["official"]["passed"] == damage.official, found["official"]["messages"]
    assert (found["agreement"] == "agree") == (damage.official == damage.passed)
    assert log.read_bytes() == damage.content


@pytest.mark.parametrize("name", ["result_0.txt", "run.log", "a b/ö.out"])
def test_name_of_file_and_folder_does_not_matter(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    found = check_compliance(written(tmp_path, DAMAGES[0].content, name), ruleset="1.1.0", target=TARGET)
    assert (found["passed"], found["official"]["passed"], found["agreement"]) == (True, True, "agree")
    assert found["log"] == Path(name).name


@pytest.mark.parametrize(
    ("expected", "check", "severity"),
    [
        ({"benchmark": "bert"}, "benchmark_differs", "error"),
        ({"division": "closed"}, "division_differs", "error"),
        ({"global_batch_size": 128}, "global_batch_size_differs", "error"),
        ({"local_batch_size": 16}, "local_batch_size_differs", "error"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps_differs", "error"),
        ({"accelerators": 4}, "global_batch_size", "error"),
        ({"seed": 2}, "seed_differs", "error"),
        ({"platform": "bax"}, "platform_differs", "warning"),
        ({"organization": "nobody"}, "organization_differs", "warning"),
    ],
)
def test_log_against_its_point(expected: dict[str, Any], check: str, severity: str, tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    findings = check_summary(summary, ruleset="1.1.0", expected=expected, target=TARGET)
    assert [(finding.check, finding.severity) for finding in findings] == [(check, severity)]


def test_log_that_fits_its_point_has_no_finding(tmp_path: Path) -> None:
    expected = {
        "benchmark": "resnet",
        "division": "open",
        "platform": "1xBOX",
        "organization": "someone",
        "global_batch_size": 64,
        "local_batch_size": 32,
        "gradient_accumulation_steps": 1,
        "accelerators": 2,
        "seed": 1,
    }
    assert check_summary(summary_of(tmp_path), ruleset="1.1.0", expected=expected, target=TARGET) == ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ruleset": "1.1.0", "expected": {"nodes": 2}}, r"unknown keys \['nodes'\]; legal: benchmark, division"),
        ({"ruleset": "9.9.0"}, r"'9.9.0' is unknown; legal: 0.6.0, .*6.1.0"),
    ],
)
def test_wrong_arguments_name_the_legal_ones(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        check_summary(RunSummary(), **values)


@pytest.mark.parametrize(
    ("benchmark", "ruleset", "severity"),
    [
        ("resnet", "1.1.0", "warning"),
        ("unet3d", "1.1.0", "error"),
        ("bert", "4.0.0", "warning"),
        ("bert", "4.1.0", "error"),
    ],
)
def test_seed_is_asked_for_by_rounds_that_ask(benchmark: str, ruleset: str, severity: str, tmp_path: Path) -> None:
    summary = summary_of(tmp_path, seed=None, benchmark=benchmark)
    found = [item.severity for item in check_summary(summary, ruleset=ruleset) if item.check == "seed_missing"]
    assert found == [severity]


def test_runs_of_a_point_against_each_other(tmp_path: Path) -> None:
    runs = [summary_of(tmp_path, seed=seed, minutes=minutes) for seed, minutes in ((1, 10), (2, 11), (3, 12))]
    assert check_runs(runs) == ()
    same_seed = summary_of(tmp_path, seed=2, minutes=13)
    assert [(f.check, f.severity) for f in check_runs([*runs, same_seed])] == [("seed_repeated", "error")]
    assert "runs [1, 3]" in check_runs([*runs, same_seed])[0].message
    assert {f.check for f in check_runs([*runs, runs[0]])} == {"identical_logs", "seed_repeated"}
    other_batch = summary_of(tmp_path, seed=9, global_batch_size=128)
    assert [f.message for f in check_runs([*runs, other_batch])] == [
        "global_batch_size differs between the runs of the point: 64 in runs [0, 1, 2]; 128 in runs [3]"
    ]
    assert check_runs([]) == ()


def test_missing_seeds_are_not_equal_seeds(tmp_path: Path) -> None:
    runs = [summary_of(tmp_path, seed=None, minutes=minutes) for minutes in (10, 11)]
    assert check_runs(runs) == ()


def test_closed_division_takes_the_official_target(tmp_path: Path) -> None:
    lines = log_lines(division="closed", qualities=(0.5, 0.7589))
    checks = {f.check for f in check_summary(summarize(written(tmp_path, log_bytes(lines))), ruleset="1.1.0")}
    assert "quality_not_reached" in checks
    better = with_key(lines, "eval_accuracy", lambda text: [edited(text, value=0.759)])
    checks = {f.check for f in check_summary(summarize(written(tmp_path, log_bytes(better))), ruleset="1.1.0")}
    assert "quality_not_reached" not in checks


@pytest.mark.parametrize(
    ("benchmark", "ruleset", "values", "mode"),
    [
        ("resnet", "1.1.0", {"": 0.759}, "max"),
        ("rnnt", "1.1.0", {"": 0.058}, "min"),
        ("maskrcnn", "1.1.0", {"BBOX": 0.377, "SEGM": 0.339}, "max"),
        ("llama31_8b", "6.1.0", {"": 3.3}, "min"),
    ],
)
def test_official_targets(benchmark: str, ruleset: str, values: dict[str, float], mode: str) -> None:
    assert rounds.official_target(benchmark, ruleset) == Target(values=values, mode=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("quality", "reached"),
    [({"BBOX": 0.377, "SEGM": 0.339}, True), ({"BBOX": 0.4, "SEGM": 0.3}, False), ({"BBOX": 0.4}, False), ({}, False)],
)
def test_every_metric_must_reach_its_target(quality: dict[str, float], reached: bool) -> None:
    target = rounds.official_target("maskrcnn", "1.1.0")
    assert target
    assert target.reached(quality) == reached


def dell_runs(shared_data: Path) -> list[tuple[Path, dict[str, str]]]:
    root = shared_data / "training_results_v1.1" / "Dell" / "results"
    with (shared_data / "dell_v1.1_runs.csv").open(encoding="utf-8") as table:
        return [(root / row["system"] / row["benchmark"] / row["file"], row) for row in csv.DictReader(table)]


def test_published_logs_are_acceptable_in_their_round(shared_data: Path) -> None:
    for log, row in dell_runs(shared_data):
        expected = {"benchmark": row["benchmark"], "division": "closed", "accelerators": int(row["accelerators"])}
        findings = check_summary(summarize(log), ruleset="1.1.0", expected=expected)
        assert not has_errors(findings), (log, findings)
        assert ("not_converged" in {f.check for f in findings}) == (row["status"] == "aborted")


def test_sample_of_published_logs_differs_from_the_current_checker_for_named_reasons(shared_data: Path) -> None:
    logs = [log for log, _ in dell_runs(shared_data)][::37]
    for found in check_compliances(logs, ruleset="1.1.0"):
        later = found["benchmark"] in ("bert", "unet3d", "minigo")
        assert found["passed"]
        assert found["official"]["passed"] == (not later), found["official"]
        assert ("weight-initialisation events were a warning" in found["agreement"]) == later
        assert found["agreement"] == "agree" or later


def test_published_logs_without_success_count_as_infinite(shared_data: Path) -> None:
    """The whole tree's verdicts, ours and the current checker's, are in test_published."""
    with (shared_data / "dell_v1.1_runs.csv").open(encoding="utf-8") as table:
        aborted = [row for row in csv.DictReader(table) if row["status"] == "aborted"]
    results = shared_data / "training_results_v1.1" / "Dell" / "results"
    logs = [results / row["system"] / row["benchmark"] / row["file"] for row in aborted]
    assert len(logs) == 4
    for found in check_compliances(logs, ruleset="1.1.0"):
        assert (found["passed"], found["summary"]["status"]) == (True, "aborted")
        assert "scoring counts it as infinite" in found["agreement"]


def test_a_log_that_was_changed_after_its_publication_is_not_compliant(tmp_path: Path) -> None:
    log = tmp_path / "result_0.txt"
    log.write_bytes(log_bytes(log_lines()))
    published = summarize(log).sha256
    assert check_compliance(log, ruleset="1.1.0", with_official=False, published_sha256=published)["passed"]
    log.write_bytes(log.read_bytes() + b"one more line\n")
    verdict = check_compliance(log, ruleset="1.1.0", with_official=False, published_sha256=published)
    assert not verdict["passed"]
    assert [finding["check"] for finding in verdict["findings"] if finding["severity"] == "error"] == ["log_changed"]
