"""MLPerf's submission tree: which runs, what is refused, what is written, and what the official checker says of it."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mllog_samples import log_bytes, log_lines
from mlscaling.files import write_json
from mlscaling.mlperf import rounds
from mlscaling.mlperf.official_package import check_package
from mlscaling.submission import build
from mlscaling.submission.build import NotSubmittableError, build_submission, summary
from mlscaling.submission.entries import entries_of
from mlscaling.submission.plan import SubmissionPlan, SubmissionPoint, reasons_against
from mlscaling.submission.selection import Candidate, select
from published_tree import add_description, add_results, state
from results_folders import RECORD, Measured, published, trained, trained_point, write_results

INF = math.inf
# fmt: off
FIELDS = [
    "host_processors_per_node", "host_processor_model_name", "host_processor_core_count", "host_processor_vcpu_count",
    "host_processor_frequency", "host_processor_caches", "host_processor_interconnect", "host_memory_capacity",
    "host_storage_type", "host_storage_capacity", "host_networking", "host_networking_topology",
    "host_memory_configuration", "accelerator_host_interconnect", "accelerator_frequency", "accelerator_on-chip_memories",
    "accelerator_memory_configuration", "accelerator_interconnect", "accelerator_interconnect_topology", "cooling",
    "hw_notes", "operating_system", "sw_notes",
]
# fmt: on


# --- which runs -------------------------------------------------------------------------------------------------------


def candidates(times: Sequence[float], *, starts: Sequence[float] | None = None) -> list[Candidate]:
    starts = starts or range(len(times))
    return [
        Candidate(run=run, started=start, time_min=time)
        for run, (time, start) in enumerate(zip(times, starts, strict=True))
    ]


@pytest.mark.parametrize(
    ("times", "starts", "chosen", "score"),
    [
        pytest.param([1, 2, 3, 4, 5], None, [0, 1, 2, 3, 4], 3, id="as many as required"),
        pytest.param([1, 2, 3, 4, INF], None, [0, 1, 2, 3, 4], 3, id="a failed run is the slowest"),
        pytest.param([1, 2, 3], None, [0, 1, 2], 2, id="fewer than required: all of them"),
        pytest.param([1, 1, 1, 1, 1, 9, 9, 9, 9], None, [2, 3, 4, 5, 6], 11 / 3, id="the median of five windows"),
        pytest.param([1, 1, 1, 1, 1, 9], None, [0, 1, 2, 3, 4], 1, id="equal scores: the earliest"),
        pytest.param([1, 1, 1, 1, 2, 3], None, [1, 2, 3, 4, 5], 4 / 3, id="two windows: the slower"),
        pytest.param([3, 2, 1, 1, 1, 1], None, [0, 1, 2, 3, 4], 4 / 3, id="two windows: the slower, which comes first"),
        pytest.param([1, 1, 1, 9, 9, 9, 9], None, [1, 2, 3, 4, 5], 19 / 3, id="the median of three windows"),
        pytest.param([1, 1, 1, 9, 9, 9, 9], [1, 3, 5, 0, 2, 4, 6], [0, 1, 3, 4, 5], 19 / 3, id="the order of starts"),
        pytest.param(
            [1, 2, INF, 3, 4, 5, 6], None, [1, 2, 3, 4, 5], 4, id="a failed run within the window stays in it"
        ),
        pytest.param([1, 2, 3, 4, INF, INF, 5], None, [1, 2, 3, 4, 5], INF, id="the median window is invalid"),
        pytest.param([INF, INF, 1, 2, 3, 4, 5], None, [1, 2, 3, 4, 5], 3, id="invalid windows count as infinite"),
        pytest.param([7, 1, 2, 3, 4], [9, math.nan, 1, 2, 3], [0, 1, 2, 3, 4], 3, id="an unknown start is the last"),
    ],
)
def test_selection(times: list[float], starts: list[float] | None, chosen: list[int], score: float) -> None:
    selection = select(candidates(times, starts=starts), required=5, trimmed=1)
    assert [one.run for one in selection.chosen] == chosen
    assert selection.score == pytest.approx(score)
    assert selection.num_candidates == len(times)
    json.dumps(selection.to_dict(), allow_nan=False)


def test_the_example_of_the_rule() -> None:
    """training_rules 12.1: N = 5, M = 10, sorted by launch, six sets of five, each scored, failed runs infinite."""
    times = [10.0, 11.0, 12.0, INF, 10.5, 11.5, 9.0, 12.5, 10.2, 13.0]
    selection = select(candidates(times), required=5, trimmed=1)
    assert len(selection.scores) == 6
    scores = [sum(sorted(times[first : first + 5])[1:-1]) / 3 for first in range(6)]
    assert selection.scores == pytest.approx(scores)
    assert sorted(scores)[2] < selection.score == pytest.approx(sorted(scores)[3])


def test_nothing_to_select_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="no run"):
        select([], required=5, trimmed=1)


# --- what was started -------------------------------------------------------------------------------------------------


def plan_of(measured: Sequence[Measured], **changes: Any) -> SubmissionPlan:
    """What the trained points would be submitted as: full scale, real nodes, MLPerf's target, the open division."""
    points = tuple(
        SubmissionPoint(
            path=one.point.path, system=one.point.system, nodes=one.point.nodes, accelerators_per_node=2,
            accelerator="GPU9", emulated=one.point.emulated, benchmark=one.point.workload, target=one.point.target,
            num_runs=one.point.num_runs, required_runs=one.point.required_runs, trimmed_runs=one.point.trimmed_runs,
        )
        for one in measured
    )  # fmt: skip
    values: dict[str, Any] = {
        "study": "made_up", "ruleset": "1.1.0", "scale": "full", "logged_division": "open", "submitter": "someone",
        "division": "open", "rehearsal": False, "published_root": "",
    }  # fmt: skip
    return SubmissionPlan(**values | {"points": points} | changes)


def with_attempts(results: Path, *attempts: dict[str, Any]) -> None:
    """Attempts of `box/resnet/n1`; `log` is what it left."""
    for attempt in attempts:
        log = attempt.pop("log", None)
        folder = results / "attempts" / "box/resnet/n1" / f"run_{attempt['run']}" / f"attempt_{attempt['attempt']}"
        write_json({"failure_class": "", "message": "", "status": "completed", **attempt}, folder / "attempt.json")
        if log is not None:
            (folder / "mlperf.log").write_bytes(log)


TIMES = [10.0, 10.1, 10.2, 10.3, 10.4]
CRASHED = {"run": 2, "attempt": 0, "status": "failed", "failure_class": "network", "message": "NCCL", "started": 1.0}
"""It started before all others."""


def entry_of(tmp_path: Path, *attempts: dict[str, Any], times: Sequence[float] = TIMES, published: int = 0) -> Any:
    """The entry of a study whose run 2 needed several attempts."""
    mine = trained(times)
    mine = dataclasses.replace(mine, record=lambda run: {**RECORD, "published_attempt": published if run == 2 else 0})
    results = write_results(tmp_path / "results", [mine])
    with_attempts(results, *attempts)
    (entry,) = entries_of(plan_of([mine]), results)
    return entry


def test_every_attempt_is_a_run_that_was_started(tmp_path: Path) -> None:
    """A failed attempt was the first of six: its window is as near to the median as the other, and slower."""
    cut = log_bytes(log_lines()[:20])
    entry = entry_of(tmp_path, {**CRASHED, "log": cut}, {"run": 2, "attempt": 1, "started": 2.0}, published=1)
    assert entry.selection.num_candidates == 6
    assert [(one.run, one.attempt, one.time_min) for one in entry.selection.chosen] == [
        (0, 0, 10.0), (1, 0, 10.1), (2, 0, INF), (2, 1, 10.2), (3, 0, 10.3),
    ]  # fmt: skip
    assert entry.selection.chosen[2].reason == "failed, network: NCCL"
    assert entry.selection.score == pytest.approx((10.1 + 10.2 + 10.3) / 3)


def test_a_log_that_was_deleted_and_trained_again_still_counts(tmp_path: Path) -> None:
    slow = {"run": 2, "attempt": 0, "started": 1.0, "log": log_bytes(log_lines(minutes=20, seed=77))}
    entry = entry_of(tmp_path, slow, {"run": 2, "attempt": 1, "started": 2.0}, published=1)
    assert entry.selection.num_candidates == 6
    assert (2, 0, 20.0) in [(one.run, one.attempt, one.time_min) for one in entry.selection.chosen]


def reasons(tmp_path: Path, *attempts: dict[str, Any], times: Sequence[float] = TIMES, **changes: Any) -> str:
    mine = trained(times)
    results = write_results(tmp_path / "results", [mine])
    with_attempts(results, *attempts)
    with pytest.raises(NotSubmittableError) as caught:
        build_submission(plan_of([mine], **changes), results=results, output=tmp_path / "submission")
    assert not (tmp_path / "submission").exists()
    return str(caught.value)


def test_what_was_trained_is_refused_with_every_reason(tmp_path: Path) -> None:
    text = reasons(
        tmp_path,
        {**CRASHED, "attempt": 1},
        times=[10.0, 10.1, INF, INF, math.nan],
        division="closed",
        logged_division="closed",
    )
    for reason in (
        "study made_up cannot be submitted",
        "box/resnet/n1: run 4 is missing",
        "box/resnet/n1: the result of the selected runs is invalid",
        "box/resnet/n1: run 2 attempt 1 belongs to the selected runs and left no log (failed, network: NCCL)",
        "box/resnet/n1: logs say open division, the submission is closed",
        "there is no description of the system box; its hardware has not been captured",
        "submission.rehearsal: true",
    ):
        assert reason in text


@pytest.mark.parametrize(
    ("changes", "point", "expected"),
    [
        ({}, {}, []),
        ({"submitter": ""}, {}, ["submission.submitter is empty"]),
        ({"scale": "tiny"}, {}, ["the scale is tiny; MLPerf's task is the full scale"]),
        ({}, {"emulated": True}, ["nodes of box are emulated on one host"]),
        ({"division": "closed"}, {}, ["trainings of round 1.1.0 log the open division", ]),
        ({"division": "closed", "logged_division": "closed"}, {"target": 0.9}, ["target of resnet is ≥ 0.9, MLPerf's is ≥ 0.759"]),
        ({}, {"target": 0.9}, []),
        ({}, {"num_runs": 3}, ["box/resnet/n1: 3 runs are planned, the round requires 5"]),
    ],
)  # fmt: skip
def test_what_the_configuration_forbids(changes: dict[str, Any], point: dict[str, Any], expected: list[str]) -> None:
    measured = Measured(point=trained_point(**point), logs={})
    found = reasons_against(plan_of([measured], **changes))
    assert len(found) == len(expected)
    assert all(words in reason for words, reason in zip(expected, found, strict=True))


def test_a_plan_survives_its_way_through_a_rule(shared_data: Path) -> None:
    _, plan = published(shared_data / "training_results_v1.1", [("2xXE8545x4A100-SXM-80GB", "rnnt")])
    for one in (plan, plan_of([trained(TIMES)])):
        assert SubmissionPlan.from_dict(json.loads(json.dumps(dataclasses.asdict(one)))) == one


# --- the tree ---------------------------------------------------------------------------------------------------------


def captured(results: Path, **changes: Any) -> None:
    """A whole description of `box` as it is captured on its nodes."""
    content = dict.fromkeys(FIELDS, "N/A") | {
        "status": "research", "system_name": "box", "number_of_nodes": "1", "accelerators_per_node": "2",
        "accelerator_model_name": "GPU9", "accelerator_memory_capacity": "80 GB", "framework": "PyTorch",
        "other_software_stack": "none", "submitter": "", "division": "",
    }  # fmt: skip
    write_json(content | changes, results / "systems" / "box_n1.json")


def test_a_tree_that_the_checker_accepts(tmp_path: Path) -> None:
    """An open submission of this workflow's own runs: six were planned, the window is copied, nothing else changes."""
    mine = trained([9.0, *TIMES], required_runs=5)
    results = write_results(tmp_path / "results", [mine])
    captured(results)
    (tmp_path / "out" / "former" / "results").mkdir(parents=True)
    before = state(results)
    content = build_submission(plan_of([mine]), results=results, output=tmp_path / "out")
    assert state(results) == before
    assert content == json.loads((tmp_path / "out" / "package_check.json").read_text())
    tree = tmp_path / "out" / "someone"
    assert content["submitters"]["someone"]["files"] == state(tree)
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()) == [
        "benchmarks/resnet/box/README.md",
        "benchmarks/resnet/implementations/mlscaling/README.md",
        *(f"results/box/resnet/result_{number}.txt" for number in range(5)),
        "systems/box.json",
    ]
    # Of the two windows the slower one: runs 1 to 5.
    for number in range(5):
        copied = (tree / f"results/box/resnet/result_{number}.txt").read_bytes()
        assert copied == mine.logs[number + 1], number
    description = json.loads((tree / "systems/box.json").read_text())
    assert (description["submitter"], description["division"], description["system_name"]) == ("someone", "open", "box")
    assert (content["submittable"], content["reasons"]) == (True, [])
    (folder,) = content["submitters"]["someone"]["results"]
    assert (content["submitters"]["someone"]["passed"], folder["passed"], folder["errors"]) == (True, True, [])
    assert folder["selection"]["window"] == 1
    assert "it accepts 1 of 1 folders" in summary(content, where=tree)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["package_check.json", "someone"]


def test_a_rehearsal_says_so_everywhere(tmp_path: Path) -> None:
    mine = trained(TIMES[:3], emulated=True)
    results = write_results(tmp_path / "results", [mine], scale="tiny")
    plan = plan_of([mine], scale="tiny", submitter="", rehearsal=True)
    content = build_submission(plan, results=results, output=tmp_path / "out")
    assert content["submittable"] is False
    assert "the scale is tiny; MLPerf's task is the full scale" in content["reasons"]
    assert "NOT submittable" in summary(content, where=tmp_path)
    tree = tmp_path / "out" / "unnamed"
    assert "- nodes of box are emulated on one host" in (tree / "NOT_SUBMITTABLE.txt").read_text()
    assert "It does not describe the hardware" in json.loads((tree / "systems/box.json").read_text())["hw_notes"]
    said = content["submitters"]["unnamed"]
    assert said["passed"] is False
    assert any("Missing field host_memory_capacity" in text for text in said["messages"])
    assert said["results"][0]["errors"] == [
        "Incorrect number of files in dir, or wrong file names in directory unnamed/results/box/resnet, found 3, expected 5"
    ]


def closed_logs() -> list[bytes]:
    """Five closed runs whose 35 epochs are fewer than the RCP's mean at this batch, but within its limit."""
    return [
        log_bytes(log_lines(seed=run, division="closed", global_batch_size=3264, qualities=[0.5] * 34 + [0.91]))
        for run in range(5)
    ]


@pytest.mark.parametrize(("ruleset", "kept"), [("1.1.0", False), ("2.1.0", True)])
def test_scaling_is_the_checkers_own_where_the_rounds_policy_asks_for_it(
    ruleset: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = add_results(tmp_path / "tree", closed_logs())
    add_description(tmp_path / "tree", division="closed")
    (folder / "package_checker_params").write_text("rcp-bypass")
    measured, plan = published(tmp_path / "tree")
    results = write_results(tmp_path / "results", measured)
    before = state(tmp_path / "tree")
    plan = dataclasses.replace(plan, ruleset=ruleset)
    content = build_submission(plan, results=results, output=tmp_path / "out")
    assert state(tmp_path / "tree") == before
    (said,) = content["submitters"]["someone"]["results"]
    mean, epochs = 35.153846153846153, 35
    assert said["scaling"]["factor"] == pytest.approx(mean / epochs)
    assert said["scaling"]["kept"] == kept
    scaling = tmp_path / "out/someone/results/box/resnet/scaling.json"
    assert scaling.exists() == kept
    if kept:
        assert json.loads(scaling.read_text()) == {"scaling_factor": said["scaling"]["factor"]}
    assert (scaling.parent / "package_checker_params").read_text() == "rcp-bypass"
    assert rounds.normalizes(ruleset) == kept


def test_a_crash_of_the_checker_is_no_verdict(tmp_path: Path) -> None:
    """A batch size that is text makes it crash in the RCP check; what it said before is kept."""
    texts = [text.replace(b'"value": 3264', b'"value": "3264"') for text in closed_logs()]
    add_results(tmp_path / "tree", texts)
    add_description(tmp_path / "tree", division="closed")
    said = check_package(tmp_path / "tree" / "someone", ruleset="1.1.0", bert_train_samples=False)
    assert said.passed is None
    assert said.messages[0].startswith("crashed: ")
    assert [(one.system, one.benchmark, one.finished) for one in said.folders] == [("box", "resnet", False)]


def test_nothing_is_left_of_a_submission_that_breaks_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = trained(TIMES)
    results = write_results(tmp_path / "results", [mine])
    captured(results)

    def breaks(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(build, "check_package", breaks)
    with pytest.raises(OSError, match="no space left"):
        build_submission(plan_of([mine]), results=results, output=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_two_points_cannot_share_a_folder(tmp_path: Path) -> None:
    add_results(tmp_path / "tree", closed_logs())
    add_description(tmp_path / "tree")
    measured, plan = published(tmp_path / "tree")
    other = dataclasses.replace(plan.points[0], path="other/resnet/n1", num_runs=0)
    twice = dataclasses.replace(plan, points=(*plan.points, other))
    with pytest.raises(ValueError, match="box/resnet/n1 and other/resnet/n1 both are results/box/resnet of someone"):
        entries_of(twice, write_results(tmp_path / "results", measured))


# --- the published Dell tree ------------------------------------------------------------------------------------------

SOME = [
    ("2xR750xax4A100-PCIE-80GB", "resnet"),  # accepted; the checker writes a scaling factor
    ("DSS8440x10A100-PCIE-80GB", "ssd"),  # fails the RCP test
    ("DSS8440x8A100-PCIE-40GB", "resnet"),  # one run did not converge
    ("XE8545x4A100-SXM-80GB", "dlrm"),  # logs no seeds, and is missing from the checker's own table
    ("2xXE8545x4A100-SXM-80GB", "bert"),  # fails by a rule that came later
]


def test_the_rebuilt_tree_is_accepted_as_the_original_is(shared_data: Path, tmp_path: Path) -> None:
    """Some of it; the same files, the same verdict on each folder, word by word. What differs is listed."""
    root = shared_data / "training_results_v1.1"
    original = tmp_path / "original" / "Dell"
    for system, benchmark in SOME:
        shutil.copytree(root / "Dell/results" / system / benchmark, original / "results" / system / benchmark)
        (original / "systems").mkdir(exist_ok=True)
        shutil.copyfile(root / "Dell/systems" / f"{system}.json", original / "systems" / f"{system}.json")
    measured, plan = published(root, SOME)
    results = write_results(tmp_path / "results", measured)
    content = build_submission(plan, results=results, output=tmp_path / "out")
    ours, theirs = state(tmp_path / "out" / "Dell"), state(original)
    assert {name: ours.get(name) for name in theirs} == theirs
    assert {name.split("/")[0] for name in ours.keys() - theirs.keys()} == {"benchmarks"}, "READMEs are all we add"
    rebuilt = content["submitters"]["Dell"]
    expected = check_package(original, ruleset="1.1.0", bert_train_samples=True)
    assert (rebuilt["passed"], rebuilt["messages"]) == (expected.passed, list(expected.messages))
    found = {(one["system"], one["benchmark"]): (one["errors"], one["details"]) for one in rebuilt["results"]}
    assert found == {(one.system, one.benchmark): (list(one.errors), list(one.details)) for one in expected.folders}
    accepted = {(one["system"], one["benchmark"]): one["passed"] for one in rebuilt["results"]}
    assert accepted == dict.fromkeys(SOME, False) | {SOME[0]: True, SOME[2]: True}
    bert = next(one for one in rebuilt["results"] if one["benchmark"] == "bert")
    assert "2022-03-29" in bert["later_rules"][0]
