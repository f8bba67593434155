"""Two studies side by side: what changed, verdicts with their intervals, matching, the figure, and the exit status."""

from __future__ import annotations

import copy
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic_study as made
from docutils.core import publish_doctree
from figure_checks import check_legible
from matplotlib.backends.backend_agg import FigureCanvasAgg
from mlscaling.comparison import figure
from mlscaling.comparison.changes import change_of
from mlscaling.comparison.command import main
from mlscaling.comparison.compare import Comparison, compare, to_dict
from mlscaling.comparison.sides import Side, SidePoint
from mlscaling.comparison.text import comparison_text
from mlscaling.likeness import CurvePoint
from mlscaling.mlcommons import NOT_VERIFIED
from mlscaling.mlperf.summary import RunSummary
from mlscaling.plots import style
from published_tree import DESCRIPTION
from results_folders import RECORD, Measured, published, trained, write_results
from test_plots import texts

INF = math.inf


def side_of(study: made.Study, label: str, **records: Any) -> Side:
    """A side in memory; `records` are run records by point path."""
    runs, rows = study.runs, study.points.to_dict("records")
    points = []
    for planned, row in zip(study.planned.points, rows, strict=True):
        found = [
            RunSummary.from_dict(v["summary"]) for (path, _), v in study.compliance.items() if path == planned.path
        ]
        mine = runs[
            (runs[["system", "workload", "nodes"]] == [planned.system, planned.workload, planned.nodes]).all(axis=1)
        ]
        measured = CurvePoint(nodes=planned.nodes, summaries=found, records=records.get(planned.path, ()))
        points.append(SidePoint(planned=planned, runs=mine, row=row, measured=measured, published=False))
    return Side(
        label=label, name=f"side_{label}", study="made_up", title=study.planned.title, ruleset="1.1.0", scale="full",
        notes=study.planned.notes, points=tuple(points),
    )  # fmt: skip


def five(times: list[float], *, label: str, epochs: int = 6, **changes: Any) -> Side:
    """One point whose runs take these minutes; infinite ones do not converge."""
    point = made.point(num_runs=len(times), required=len(times), emulated=False, **changes)
    study = made.study([point], times={("resnet", 1): 1}, epochs={("resnet", 1): epochs})
    study.compliance = {
        (point.path, run): made.verdict(9, epochs, status="aborted") if time == INF else made.verdict(time, epochs)
        for run, time in enumerate(times)
    }
    return side_of(study, label)


def compared(a: Side, b: Side, *, threshold: float = 2, **mapping: str) -> Comparison:
    return compare(a, b, threshold_percent=threshold, mapping=mapping)


# --- published logs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dell(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Results folders of three published curves of one node."""
    root, folders = shared_data / "training_results_v1.1", {}
    for name, system, benchmark in (
        ("rnnt", "XE8545x4A100-SXM-80GB", "rnnt"),
        ("r750xa", "R750xax4A100-PCIE-80GB", "resnet"),
        ("r750xa_8368", "R750xax4A100-PCIE-80GB-8368", "resnet"),
    ):
        measured, _ = published(root, [(system, benchmark)])
        folders[name] = write_results(tmp_path_factory.mktemp("dell") / name, measured, study=name)
    return folders


def test_logs_against_themselves_are_no_change(dell: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(dell["rnnt"]), str(dell["rnnt"])]) == 0
    text = capsys.readouterr().out
    assert "106.542 → 106.542" in text
    assert "No change: nothing is significantly faster or slower." in text
    assert "the same logs on both sides" in text
    assert "→" not in text.split("What changed")[1].split("minutes, A → B")[0]
    assert main(["compare", str(dell["rnnt"]), str(dell["rnnt"]), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    time = content["points"][0]["changes"]["time"]
    assert (time["change_percent"], time["verdict"]) == (0, "not significant")
    assert time["low_percent"] < -1 < 1 < time["high_percent"], "the sides must not draw the same runs"


def test_two_cpus_are_named_before_the_time(dell: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(dell["r750xa"]), str(dell["r750xa_8368"])]) == 0
    text = capsys.readouterr().out
    assert "62.949 → 64.131  +1.9 % (+1.5 to +2.0)" in text
    cpu = "CPU: Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz → Intel(R) Xeon(R) Platinum 8368 CPU @ 2.40GHz"
    assert 0 < text.index(cpu) < text.index("62.949")
    assert "below the threshold at 1 of 1 point" in text
    assert main(["compare", str(dell["r750xa"]), str(dell["r750xa_8368"]), "--threshold", "1", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert [(one["category"], one["setting"]) for one in content["changed"]] == [
        ("hardware", "processor"), ("hardware", "host_processor_frequency"),
    ]  # fmt: skip
    assert content["points"][0]["changes"]["time"]["change_percent"] == pytest.approx(1.878, abs=1e-3)
    assert cpu in content["regressions"][0].split("Slower:")[0]


def test_a_training_against_a_published_result(dell: dict[str, Path], tmp_path: Path) -> None:
    """Different words for one thing are compared; what only one side states is no change."""
    cpu = {"host": {**RECORD["host"], "processor": "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz"}}
    system = {"system": {**RECORD["system"], "accelerators_per_node": 4}}
    times = [60.0, 60.1, 60.2, 60.3, 60.4]
    mine = trained(times, epochs=35, record={**cpu, **system}, train_samples=1_281_167)
    folder = write_results(tmp_path / "mine", [mine])
    assert main(["compare", str(dell["r750xa"]), str(folder), "--output", str(tmp_path / "out")]) == 0
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    changed = {one["setting"]: (one["a"], one["b"]) for one in content["changed"]}
    assert changed["accelerator"] == (["NVIDIA A100-PCIE-80GB (300W)"], ["GPU9"])
    assert "processor" not in changed
    assert "accelerators_per_node" not in changed
    assert changed["opt_name"] == (["lars"], ["sgd"])
    assert "torch" in content["stated_by_one_side_only"]["b"]
    assert content["points"][0]["changes"]["time"]["verdict"] == "faster"
    assert any(NOT_VERIFIED in note and note.startswith("B was trained") for note in content["notes"])
    assert "GPU9" in (tmp_path / "out" / "comparison.txt").read_text()


# --- what changed -----------------------------------------------------------------------------------------------------


def with_system(**changes: str) -> dict[str, Any]:
    return {**RECORD, "system": {**RECORD["system"], **changes}}


def test_the_environment_is_named_before_a_regression_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C14: the same configuration in docker and under pyxis, 36 % apart."""
    times = [100.0, 100.5, 101.0, 101.5, 102.0]
    docker = write_results(tmp_path / "docker", [trained(times)])
    faster = [time / 1.36 for time in times]
    pyxis = write_results(tmp_path / "pyxis", [trained(faster, seed=90, record=with_system(container="pyxis"))])
    assert main(["compare", str(docker), str(pyxis)]) == 0
    text = capsys.readouterr().out
    assert text.index("container: docker → pyxis") < text.index("−26.5 %")
    assert main(["compare", str(pyxis), str(docker)]) == 1
    text = capsys.readouterr().out
    assert text.index("container: pyxis → docker") < text.index("+36.0 %") < text.index("Regression at 1 of 1 points.")
    assert "ResNet-50, 1 node: changed: container: pyxis → docker. Slower: time +36.0 %" in " ".join(text.split())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"packages": {"torch": "2.15.0"}}, [("environment", "torch: 2.14.1 → 2.15.0")]),
        ({"code": {"commit": "fedcba9876543210", "dirty": True}}, [("environment", "commit: 0123456789ab → fedcba987654 with changes")]),
        ({"host": {**RECORD["host"], "kernel": "Linux 6.2"}}, [("environment", "kernel: Linux 6.1 → Linux 6.2")]),
        ({"host": {**RECORD["host"], "hostname": "n2"}}, [("hardware", "host names: node1 → n2")]),
        ({"system": {**RECORD["system"], "accelerators_per_node": 4}}, [("hardware", "accelerators_per_node: 2 → 4")]),
        ({"system": {**RECORD["system"], "launcher": "mpirun"}}, [("environment", "launcher: srun → mpirun")]),
        ({"spec": {"options": {"precision": "bfloat16"}, "model": {}}}, [("hyper-parameters", "precision: float32 → bfloat16")]),
        ({"packages": {}}, []),
    ],
)  # fmt: skip
def test_differences_have_a_category(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    study = made.study([made.point()], times={("resnet", 1): 1}, epochs={("resnet", 1): 6})
    path = study.planned.points[0].path
    a, b = (side_of(study, label, **{path: [record]}) for label, record in (("A", RECORD), ("B", {**RECORD, **change})))
    assert [(one.category, one.words) for one in compared(a, b).differences] == expected


def test_a_difference_at_some_points_says_where() -> None:
    study = made.study([made.point(nodes=n) for n in (1, 2)], times={("resnet", 1): 1, ("resnet", 2): 1}, epochs={("resnet", 1): 6, ("resnet", 2): 6})  # fmt: skip
    first, second = (point.path for point in study.planned.points)
    other = {**RECORD, "packages": {"torch": "2.15.0"}}
    a = side_of(study, "A", **{first: [RECORD], second: [RECORD]})
    b = side_of(study, "B", **{first: [RECORD], second: [RECORD, other]})
    comparison = compared(a, b)
    (found,) = comparison.differences
    assert (found.words, found.points) == ("torch: 2.14.1 → 2.14.1 and 2.15.0", (second,))
    assert "torch: 2.14.1 → 2.14.1 and 2.15.0 (only at ResNet-50, 2 nodes)" in comparison_text(comparison)


def test_hardware_from_a_doubtful_description_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C13: 40 GB for an accelerator whose model name says 80 GB."""
    folders = [
        write_results(tmp_path / label, [trained(BASE, seed=seed, record={"description": {**DESCRIPTION, **changes}})])
        for label, seed, changes in (("a", 1, {}), ("b", 50, {"accelerator_memory_capacity": "40 GB"}))
    ]
    assert main(["compare", *map(str, folders)]) == 0
    text = capsys.readouterr().out
    assert "accelerator_memory_capacity: 80 GB → 40 GB" in text
    assert "doubtful: B, box: accelerator_memory_capacity is '40 GB', but accelerator_model_name is 'GPU9-80GB'" in text
    assert "doubtful: A, box: accelerator_memory" not in text


# --- verdicts ---------------------------------------------------------------------------------------------------------

BASE = [10.0, 10.1, 10.2, 10.3, 10.4]


@pytest.mark.parametrize(
    ("a", "b", "threshold", "expected"),
    [
        (BASE, [1.1 * t for t in BASE], 2, "slower"),
        (BASE, [0.9 * t for t in BASE], 2, "faster"),
        (BASE, [1.1 * t for t in BASE], 11, "below the threshold"),
        (BASE, [t + 0.05 for t in BASE], 0, "not significant"),
        (BASE, [5.0, 9.0, 12.0, 15.0, 20.0], 2, "not significant"),
        (BASE, [10.0, 10.1, 10.2, INF, INF], 2, "no score"),
        (BASE, [*BASE[:4], INF], 2, "not significant"),
        ([10.0] * 5, [10.5] * 5, 2, "slower"),
        ([10.0] * 5, [10.0] * 5, 0, "not significant"),
    ],
)
def test_verdict_on_time(a: list[float], b: list[float], threshold: float, expected: str) -> None:
    sides = five(a, label="A"), five(b, label="B")
    change = compared(*sides, threshold=threshold).points[0].changes["time"]
    assert change.verdict == expected
    assert (change.ratio.low <= change.ratio.value <= change.ratio.high) == (expected != "no score")


def test_time_is_convergence_over_throughput_and_only_what_runs_slower_is_slower() -> None:
    """10 % more epochs at the same speed: time and convergence are worse, throughput is not."""
    a, b = five(BASE, label="A", epochs=10), five([1.1 * t for t in BASE], label="B", epochs=11)
    (point,) = compared(a, b).points
    ratios = {name: change.ratio.value for name, change in point.changes.items()}
    assert ratios["time"] == pytest.approx(ratios["convergence"] / ratios["throughput"])
    assert {name: change.verdict for name, change in point.changes.items()} == {
        "time": "slower", "throughput": "not significant", "convergence": "slower",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "regression"),
    [
        (BASE, [*BASE[:3], INF, INF], "A has a score and B has none: 2 of 5 runs did not converge"),
        ([*BASE[:3], INF, INF], BASE, ""),
        ([*BASE[:3], INF, INF], [*BASE[:3], INF, INF], ""),
    ],
)
def test_a_lost_score_is_a_regression(a: list[float], b: list[float], regression: str) -> None:
    comparison = compared(five(a, label="A"), five(b, label="B"))
    assert [regression in text for text in comparison.regressions] == [True] * bool(regression)
    json.dumps(to_dict(comparison), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"target": 0.97}, "not the same task: target 0.759 in A, 0.97 in B"),
        ({"train_samples": 9000}, "not the same task: an epoch has 12,000 samples in A, 9,000 in B"),
    ],
)
def test_unlike_tasks_have_no_verdict(change: dict[str, Any], remark: str) -> None:
    a, b = five(BASE, label="A", train_samples=12_000), {"train_samples": 12_000, **change}
    comparison = compared(a, five([2 * t for t in BASE], label="B", **b))
    (point,) = comparison.points
    assert {change.verdict for change in point.changes.values()} == {"not comparable"}
    assert point.remarks == (remark,)
    assert comparison.num_tests == 0
    assert "Nothing could be tested" in comparison_text(comparison)
    assert comparison.regressions == ()


def test_many_points_are_held_to_five_percent_together() -> None:
    """What is barely significant by itself is not among a hundred tests; how many there were is always said."""
    a, b = five(BASE, label="A"), five([t + 0.25 for t in BASE], label="B")
    pair = a.points[0], b.points[0]
    one, many = (change_of(pair, (a, b), threshold_percent=0, num_tests=n).changes["time"] for n in (1, 100))
    assert (one.ratio, one.verdict) == (many.ratio, "slower")
    assert (one.holds_for_all, many.holds_for_all) == (True, False)
    assert "1 point tested, time and throughput of each: 2 tests" in comparison_text(compared(a, b))


# --- matching ---------------------------------------------------------------------------------------------------------


def grid(label: str, *points: tuple[str, str, int]) -> Side:
    """Points by system, workload and nodes."""
    planned = [made.point(workload, nodes=nodes, system=system) for system, workload, nodes in points]
    keys = {(p.workload, p.nodes): 1.0 for p in planned}
    return side_of(made.study(planned, times=keys, epochs=dict.fromkeys(keys, 400)), label)


@pytest.mark.parametrize(
    ("a", "b", "mapping", "pairs", "only_a", "only_b"),
    [
        ([("x", "resnet", 1)], [("y", "resnet", 1)], {}, 1, 0, 0),
        ([("x", "resnet", 1), ("x", "resnet", 2)], [("y", "resnet", 2), ("y", "bert", 2)], {}, 1, 1, 1),
        ([("x", "resnet", 1), ("z", "resnet", 1)], [("z", "resnet", 1)], {}, 1, 1, 0),
        ([("x", "resnet", 1), ("z", "resnet", 1)], [("z", "resnet", 1)], {"x": "z"}, 1, 1, 0),
        ([("x", "resnet", 1), ("z", "resnet", 1)], [("x", "resnet", 1), ("z", "resnet", 1)], {"x": "z", "z": "x"}, 2, 0, 0),
    ],
)  # fmt: skip
def test_matching(a: Any, b: Any, mapping: dict[str, str], pairs: int, only_a: int, only_b: int) -> None:
    matched = compared(grid("A", *a), grid("B", *b), **mapping).matched
    assert (len(matched.pairs), len(matched.only_a), len(matched.only_b)) == (pairs, only_a, only_b)
    for one, other in matched.pairs:
        assert (one.planned.workload, one.planned.nodes) == (other.planned.workload, other.planned.nodes)
        assert matched.systems[one.planned.system] == other.planned.system


@pytest.mark.parametrize(
    ("a", "b", "mapping", "message"),
    [
        ([("x", "resnet", 1)], [("x", "resnet", 2)], {}, "no workload at the same number of nodes.*A has x/resnet/n1; B has x/resnet/n2"),
        ([("x", "resnet", 1), ("y", "resnet", 1)], [("z", "resnet", 1)], {}, "none: their names differ.*--map A_SYSTEM=B_SYSTEM"),
        ([("x", "resnet", 1)], [("z", "resnet", 1)], {"w": "z"}, "A has no system w; it has x"),
        ([("x", "resnet", 1)], [("z", "resnet", 1)], {"x": "w"}, "B has no system w; it has z"),
    ],
)  # fmt: skip
def test_what_cannot_be_matched_says_what_there_is(a: Any, b: Any, mapping: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compared(grid("A", *a), grid("B", *b), **mapping)


# --- figure -----------------------------------------------------------------------------------------------------------


def slower(name: str) -> Comparison:
    """A made-up study against itself with every time a tenth longer, and half of its epochs more."""
    a, b = made.STUDIES[name](), made.STUDIES[name]()
    for record in b.compliance.values():
        record["summary"] = copy.deepcopy(record["summary"])
        if record["summary"]["time_to_train_min"]:
            record["summary"]["time_to_train_min"] *= 1.1
    return compared(side_of(a, "A"), side_of(b, "B"))


@pytest.mark.parametrize("name", ["long_curve", "no_score", "five_workloads", "empty"])
def test_figure_is_legible_and_draws_its_table(name: str) -> None:
    comparison = slower(name)
    drawn = figure.draw(comparison)
    with style.theme():
        FigureCanvasAgg(drawn).draw()
    check_legible(drawn, texts(drawn))
    rows = figure.data(comparison).dropna(subset=["change_percent"])
    at = [line.get_xdata()[0] for axes in drawn.axes for line in axes.lines if line.get_markersize() == 6.5]
    measures = pd.Categorical(rows["measure"], categories=["time", "throughput", "convergence"], ordered=True)
    expected = rows.assign(measure=measures).sort_values("measure", kind="stable")["change_percent"]
    assert at[::2] == pytest.approx(list(expected))
    publish_doctree(figure.caption(comparison), settings_overrides={"halt_level": 2})


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    comparison = slower("single_point")
    for folder in ("a", "b"):
        figure.write_figure(comparison, tmp_path / folder)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["comparison.csv", "comparison.png", "comparison.rst", "comparison.svg"]
    assert [(tmp_path / "a" / n).read_bytes() for n in names] == [(tmp_path / "b" / n).read_bytes() for n in names]


# --- command line -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("small") / "results", [trained(BASE)])


def test_an_unpacked_bundle_is_read_as_its_results_are(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(small), str(small.parent)]) == 0
    assert "No change" in capsys.readouterr().out


def test_a_zip_is_read_as_its_results_are(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "bundle.zip", "w") as archive:
        archive.writestr("study.json", "{}")
        for path in small.rglob("*"):
            if path.is_file():
                archive.write(path, f"results/{path.relative_to(small).as_posix()}")
    assert main(["compare", str(small), str(tmp_path / "bundle.zip")]) == 0
    assert "B  bundle.zip: Study made_up" in capsys.readouterr().out
    (tmp_path / "broken.zip").write_bytes((tmp_path / "bundle.zip").read_bytes()[:-30])
    assert main(["compare", str(small), str(tmp_path / "broken.zip")]) == 2
    assert "broken.zip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{small}", "{empty}/nowhere"], "nowhere: there is no such file or folder"),
        (["{small}", "{empty}"], "misses planned.json, tables/runs.csv, tables/points.csv"),
        (["{small}", "{small}", "--threshold", "-1"], "--threshold -1: must be at least 0"),
        (["{small}", "{small}", "--map", "box"], "--map box: expected A_SYSTEM=B_SYSTEM"),
        (["{small}", "{small}", "--map", "box=box", "--map", "box=box"], "a system is compared with one other only"),
        (["{small}", "{small}", "--map", "x=box"], "--map: A has no system x; it has box"),
    ],
)
def test_wrong_input_ends_with_2(arguments: list[str], message: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    assert main(["compare", *(word.format(small=small, empty=tmp_path) for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("compare: ")
    assert captured.out == ""


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("planned.json", "{", "planned.json: not JSON"),
        ("planned.json", '{"study": "x", "points": [3]}', "not as this workflow writes them"),
        ("tables/points.csv", "a,b\n1,2\n", "is not a points table"),
        ("validation/box/resnet/n1/compliance_0.json", "{}", "not as this workflow writes them"),
        ("runs/box/resnet/n1/run_0.json", "nonsense", "run_0.json: not JSON"),
        (
            "runs/box/resnet/n1/result_0.txt",
            "other",
            "results: runs/box/resnet/n1/result_0.txt is not the log that its verdict judged",
        ),
    ],
)
def test_damaged_results_end_with_2(file: str, content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    folder = write_results(tmp_path / "results", [trained(BASE)])
    (folder / file).write_text(content)
    assert main(["compare", str(folder), str(folder)]) == 2
    assert message in capsys.readouterr().err


def test_nothing_tested_is_no_success(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A CI must not be green because a tiny study was compared with a full one."""
    tiny = write_results(tmp_path / "tiny", [trained(BASE, seed=50)], scale="tiny")
    assert main(["compare", str(small), str(tiny)]) == 2
    assert "not the same task: scale full in A, tiny in B" in capsys.readouterr().out


def test_a_missing_run_is_a_run_without_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole: Measured = trained(BASE)
    a = write_results(tmp_path / "a", [whole])
    b = write_results(tmp_path / "b", [trained([*BASE[:3], math.nan, math.nan], seed=50)])
    assert main(["compare", str(a), str(b)]) == 1
    assert "A has a score and B has none: 2 of 5 runs did not converge, failed or are missing" in " ".join(
        capsys.readouterr().out.split()
    )
