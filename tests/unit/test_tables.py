"""Tables from verdicts and attempts: columns, statuses, verdicts, scaling, reading and writing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic_study as made
from mlscaling import evidence, metrics, runs, scoring, tables
from mlscaling.mlperf.summary import RunSummary
from mlscaling.planned import Planned

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"


def five_runs(**changes) -> made.Study:
    """One point whose five runs take 10, 11, 12, 13, 14 minutes."""
    point = made.point(**changes)
    study = made.study([point], times={("resnet", 1): 1}, epochs={("resnet", 1): 6})
    study.compliance = {(point.path, run): made.verdict(10.0 + run, 6) for run in range(point.num_runs)}
    return study


PATH = "emulated_cpu/resnet/n1"


# --- runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "attempts", "expected"),
    [
        pytest.param(made.verdict(12, 6), [], ("success", "", 1, "passed", ""), id="imported log"),
        pytest.param(made.verdict(12, 6), [made.attempt(), made.attempt(1, status="completed", failure_class="")],
                     ("success", "", 2, "passed", ""), id="second attempt"),
        pytest.param(made.verdict(12, 6, status="aborted"), [], ("aborted", "", 1, "passed", ""), id="target not reached"),
        pytest.param(made.verdict(12, 6, status="missing", passed=False), [],
                     ("failed", "unknown", 1, "failed", "time runs backwards"), id="truncated log"),
        pytest.param(made.verdict(12, 6, passed=False), [],
                     ("success", "", 1, "failed", "time runs backwards"), id="not compliant"),
        pytest.param(None, [], ("missing", "", 0, "", ""), id="not yet run"),
        pytest.param(None, [made.attempt()], ("failed", "node", 1, "", "node n3 lost"), id="crashed"),
        pytest.param(None, [made.attempt(), made.attempt(1, failure_class="network", message="NCCL")],
                     ("failed", "network", 2, "", "NCCL"), id="the last attempt names the reason"),
        pytest.param(None, [made.attempt(status="interrupted", failure_class="preempted", message="")],
                     ("failed", "preempted", 1, "", ""), id="interrupted"),
        pytest.param(None, [made.attempt(status="completed", failure_class="")],
                     ("missing", "", 1, "", ""), id="log removed after it completed"),
    ],
)  # fmt: skip
def test_every_planned_run_has_a_row_with_a_status(verdict, attempts, expected):
    study = five_runs()
    study.compliance.pop((PATH, 3))
    if verdict:
        study.compliance[PATH, 3] = verdict
    study.attempts[PATH, 3] = attempts
    table = study.runs
    assert list(table["run"]) == [0, 1, 2, 3, 4]
    row = table.iloc[3]
    columns = ("status", "failure_class", "num_attempts", "compliance", "finding")
    assert tuple(row[column] for column in columns) == expected
    assert np.isnan(row["time_to_train_min"]) == (verdict is None)


def test_seed_and_target_are_those_of_the_log_else_of_the_plan():
    study = five_runs()
    del study.compliance[PATH, 1]
    study.compliance[PATH, 2] = made.verdict(12, 6, seeds=("0x7",), target=float("nan"))
    assert list(study.runs["seed"][:3]) == [7, 101, 102]
    assert list(study.runs["target"][:3]) == [0.759, 0.759, 0.759]
    without = dataclasses.replace(study.planned.points[0], trial_seeds=())
    table = runs.runs_table(dataclasses.replace(study.planned, points=(without,)), compliance={}, attempts={})
    assert table["seed"].isna().all()


@pytest.mark.parametrize(
    ("official", "expected"),
    [({"passed": True}, "passed"), ({"passed": False}, "failed"), ({"passed": None}, ""), (None, "")],
)
def test_official_compliance_stands_beside_ours(official, expected):
    study = five_runs()
    study.compliance[PATH, 0] |= {"official": official}
    assert study.runs.loc[0, "official_compliance"] == expected
    assert study.points.loc[0, "verdict"] == "valid"  # ours decides


def test_a_verdict_of_an_unplanned_run_is_an_error():
    study = five_runs()
    study.compliance[PATH, 5] = made.verdict(12, 6)
    with pytest.raises(ValueError, match=r"compliance_5\.json of emulated_cpu/resnet/n1 .* did not plan"):
        study.runs  # noqa: B018


# --- points --------------------------------------------------------------------------------------------------------

ABORTED, FAILS, LOST = made.verdict(30, 9, status="aborted"), made.verdict(1, 6, passed=False), None


@pytest.mark.parametrize(
    ("changes", "replaced", "time", "completeness", "verdict", "reason"),
    [
        pytest.param({}, {}, 12, "complete", "valid", "", id="middle three"),
        pytest.param({}, {0: ABORTED}, 13, "complete", "valid", "run 0 did not converge", id="one aborted"),
        pytest.param({}, {0: ABORTED, 2: ABORTED}, np.nan, "complete", "invalid",
                     "2 of 5 runs did not converge, failed or are missing; at most 1 may; runs 0, 2 did not converge",
                     id="two aborted"),
        pytest.param({}, {0: FAILS}, 13, "complete", "valid", "run 0 not compliant: time runs backwards",
                     id="one not compliant is dropped as the slowest"),
        pytest.param({}, {0: FAILS, 1: FAILS}, np.nan, "complete", "invalid", "2 of 5 runs", id="two are too many"),
        pytest.param({}, {0: LOST}, 13, "incomplete, 4 of 5", "incomplete", "run 0 missing; incomplete, 4 of 5", id="one missing"),
        pytest.param({}, {0: LOST, 1: LOST}, np.nan, "incomplete, 3 of 5", "incomplete", "2 of 5 runs", id="two missing"),
        pytest.param({}, dict.fromkeys(range(5)), np.nan, "incomplete, 0 of 5", "incomplete", "no run yet", id="nothing yet"),
        pytest.param({"num_runs": 3}, {}, 11, "incomplete, 3 of 5", "incomplete", "incomplete, 3 of 5", id="three of five"),
        pytest.param({"num_runs": 2}, {}, np.nan, "incomplete, 2 of 5", "incomplete", "2 runs planned", id="two: not nan alone"),
        pytest.param({"num_runs": 6}, {0: LOST}, 13.5, "complete", "valid", "run 0 missing", id="one to spare"),
        pytest.param({"num_runs": 5, "required_runs": 10}, {}, 12, "incomplete, 5 of 10", "incomplete",
                     "incomplete, 5 of 10", id="provisional mean"),
        pytest.param({"required_runs": 10}, {0: ABORTED, 1: ABORTED}, np.nan, "incomplete, 5 of 10", "invalid",
                     "2 of 5 runs", id="more runs do not repair two aborted"),
    ],
)  # fmt: skip
def test_score_completeness_and_verdict(changes, replaced, time, completeness, verdict, reason):
    study = five_runs(**changes)
    for run, record in replaced.items():
        study.compliance.pop((PATH, run))
        if record:
            study.compliance[PATH, run] = record
    row = study.points.iloc[0]
    assert row["time_to_train_min"] == pytest.approx(time, nan_ok=True)
    assert (row["completeness"], row["verdict"]) == (completeness, verdict)
    assert row["reason"].startswith(reason)
    assert bool(row["reason"]) == bool(reason)


@pytest.mark.parametrize(
    ("rcp", "verdict", "reason", "normalized"),
    [
        pytest.param({}, "valid", "", np.nan, id="no RCP file"),
        pytest.param(made.rcp(6, mean=6.6, limit=5.9), "valid", "", 12 * 1.1, id="passed, faster than the mean"),
        pytest.param(made.rcp(6, mean=5.5, limit=5.0), "valid", "", 12, id="passed, slower than the mean"),
        pytest.param(made.rcp(6, mean=7.0, limit=6.5), "invalid",
                     "RCP test failed: 6 epochs, the limit is 6.5 (p 0.012)", np.nan, id="failed"),
        pytest.param({"status": "missing", "passed": False}, "invalid", "RCP test failed (missing)", np.nan,
                     id="none at this batch size"),
        pytest.param({"status": "no_rcps", "passed": None, "mean": None}, "valid", "", np.nan, id="none at all"),
        pytest.param(made.rcp(6, mean=5.5, limit=5.0, passed=False, normalization=None,
                              findings=[{"check": "seed_repeated", "severity": "error", "message": "equal seeds"}]),
                     "invalid", "equal seeds", np.nan, id="runs that do not belong together"),
        pytest.param(made.rcp(6, mean=5.5, limit=5.0, findings=[{"check": "any", "severity": "note", "message": "x"}]),
                     "valid", "", 12, id="notes are no fault"),
    ],
)  # fmt: skip
def test_rcp_in_the_points_table(rcp, verdict, reason, normalized):
    study = five_runs()
    study.rcps = {PATH: rcp} if rcp else {}
    row = study.points.iloc[0]
    assert (row["verdict"], row["reason"]) == (verdict, reason)
    assert row["normalized_time_to_train_min"] == pytest.approx(normalized, nan_ok=True)
    assert row["time_to_train_min"] == 12  # never normalised in place


@pytest.mark.parametrize(
    ("value", "verdict", "reason"),
    [
        (6, "incomplete", "incomplete, 5 of 10"),
        (4, "incomplete", "RCP test failed so far: 6 epochs, the limit is 5 (p 0.012); incomplete, 5 of 10"),
    ],
)
def test_rcp_of_an_incomplete_point_is_provisional(value, verdict, reason):
    study = five_runs(required_runs=10)
    study.rcps = {PATH: made.rcp(value, mean=5.5, limit=5.0, complete=False)}
    row = study.points.iloc[0]
    assert (row["verdict"], row["reason"]) == (verdict, reason)
    assert np.isnan(row["normalized_time_to_train_min"])


def test_a_point_without_score_has_no_rcp_verdict():
    study = made.no_score()
    error = {"check": "insufficient_convergence", "severity": "error", "message": "no score"}
    study.rcps = {
        f"emulated_cpu/resnet/n{nodes}": {"status": "exact", "passed": False, "mean": 6.0, "findings": [error]}
        for nodes in (2, 4)
    }
    assert study.points["rcp_passed"].isna().all()
    assert list(study.points["verdict"]) == ["valid", "invalid", "incomplete"]
    assert "RCP" not in "".join(study.points["reason"])


def test_point_intervals_are_those_of_the_metrics():
    study = five_runs()
    table = study.points
    generator = metrics.generator_of("made_up/emulated_cpu/resnet/n1/b64")
    means = metrics.resampled_means({"time": [10.0, 11, 12, 13, 14]}, trimmed=1, generator=generator)
    expected = metrics.interval(means["time"])
    columns = ["time_to_train_min", "time_to_train_min_low", "time_to_train_min_high"]
    assert tuple(table.loc[0, columns]) == (expected.value, expected.low, expected.high)
    assert expected.low < expected.value < expected.high
    assert table.loc[0, "throughput_samples_per_s"] == pytest.approx(6 * 12_000 / (12 * 60), rel=1e-12)


# --- scaling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", made.STUDIES)
def test_identities_hold_in_the_tables_after_reading_them_back(name, tmp_path):
    study = made.STUDIES[name]()
    for kind in tables.COLUMNS:
        tables.write_table(getattr(study, kind), tmp_path / f"{kind}.csv")
        pd.testing.assert_frame_equal(tables.read_table(tmp_path / f"{kind}.csv", kind), getattr(study, kind))
    scaling = tables.read_table(tmp_path / "scaling.csv", "scaling")
    points = tables.read_table(tmp_path / "points.csv", "points")
    product = scaling["throughput_efficiency"] * scaling["convergence_efficiency"]
    np.testing.assert_allclose(product, scaling["efficiency"], rtol=1e-12)
    with_rcp = scaling.dropna(subset="inherent_ratio")
    np.testing.assert_allclose(
        with_rcp["inherent_ratio"] * with_rcp["avoidable_ratio"], with_rcp["samples_ratio"], rtol=1e-12
    )
    np.testing.assert_allclose(1 / scaling["convergence_efficiency"], scaling["samples_ratio"], rtol=1e-12)
    throughput = points["samples_to_converge"] / (60 * points["time_to_train_min"])
    np.testing.assert_allclose(throughput, points["throughput_samples_per_s"], rtol=1e-12)


def test_efficiency_is_relative_to_the_smallest_measured_node_count():
    study = made.from_two_nodes()
    points, scaling = study.points.set_index("nodes"), study.scaling.set_index("nodes")
    times = points["time_to_train_min"]
    assert list(scaling["reference_nodes"]) == [2, 2, 2]
    assert list(scaling["speedup"]) == [1, times[2] / times[4], times[2] / times[8]]
    np.testing.assert_allclose(scaling["efficiency"], scaling["speedup"] / [1, 2, 4])
    assert tuple(scaling.loc[2, ["speedup_low", "speedup_high"]]) == (1, 1)


def test_a_point_without_score_is_no_reference():
    study = made.no_score()
    for run in range(2):
        study.compliance["emulated_cpu/resnet/n1", run] = ABORTED
    assert study.scaling["reference_nodes"].isna().all()
    assert study.scaling["speedup"].isna().all()
    assert list(study.scaling["verdict"]) == ["invalid", "invalid", "incomplete"]


def test_a_comparison_is_no_better_than_its_reference():
    study = made.long_curve()
    study.rcps["r750xa/resnet/n1"] = made.rcp(35, mean=40, limit=38)
    assert list(study.points["verdict"]) == ["invalid", "incomplete", "incomplete", "invalid"]
    assert list(study.scaling["verdict"]) == ["invalid"] * 4


@pytest.mark.parametrize(
    ("two_nodes_min", "local_batch", "finding"),
    [
        (0.44 / 1.7, 64, ""),
        (0.44, 64, "not significant"),
        (0.44 / 3.04, 256, "efficiency above 1 (1.5"),
    ],
)
def test_findings(two_nodes_min, local_batch, finding):
    points = [made.point(nodes=1), made.point(nodes=2, global_batch_size=64, local_batch_size=local_batch)]
    times = {("resnet", 1): 0.44, ("resnet", 2): two_nodes_min}
    study = made.study(points, times=times, epochs={("resnet", 1): 60, ("resnet", 2): 60})
    first, second = study.scaling["finding"]
    assert first == ""
    assert second.startswith(finding)
    assert bool(second) == bool(finding)
    if "above" in finding:
        assert second.endswith("the points may not be alike; local batch size 64 → 256")


def test_published_8_node_point_splits_into_inherent_and_avoidable():
    """MLPerf v1.1, Dell R750xa ResNet-50: the numbers of the headline."""
    seconds = {
        1: [62.920467, 62.918633, 62.912783, 63.008217, 63.0764],
        8: [10.595633, 10.536533, 10.5835, 10.578, 10.610683],
    }
    batch, epochs = {1: 1632, 8: 13056}, {1: 35, 8: 45}
    points = [made.point(nodes=nodes, global_batch_size=batch[nodes], batch_policy="explicit") for nodes in batch]
    study = made.study(points, times={("resnet", 1): 1, ("resnet", 8): 1}, epochs={("resnet", 1): 9, ("resnet", 8): 9})
    for point in points:
        for run, minutes in enumerate(seconds[point.nodes]):
            study.compliance[point.path, run] = made.verdict(minutes, epochs[point.nodes])
    study.rcps = {
        "emulated_cpu/resnet/n1": made.rcp(35, mean=35.0, limit=34.5),
        "emulated_cpu/resnet/n8": made.rcp(45, mean=42.07, limit=41.31, status="interpolated"),
    }
    row = study.scaling.iloc[1]
    assert row["speedup"] == pytest.approx(5.95, abs=5e-3)
    names = ("efficiency", "throughput_efficiency", "convergence_efficiency", "inherent_ratio", "avoidable_ratio")
    assert [round(row[name], 3) for name in names] == [0.743, 0.956, 0.778, 1.202, 1.070]


def test_published_logs_give_the_published_headline(shared_data):
    """MLPerf v1.1, Dell R750xa ResNet-50, from the logs: verdicts, scores, decomposition and RCPs together."""
    from mlscaling.mlperf.compliance import check_compliances
    from mlscaling.mlperf.rcp import check_point

    folders = {1: "R750xax4A100-PCIE-80GB", 2: "2xR750xax4A100-PCIE-80GB", 4: "4xR750xax4A100-PCIE-80GB"}
    folders[8] = "8xR750xax4A100-PCIE-80GB"
    batches = {1: 1632, 2: 3264, 4: 3264, 8: 13056}
    points = [made.point(nodes=nodes, global_batch_size=batch, trial_seeds=()) for nodes, batch in batches.items()]
    study = made.study(points, times={("resnet", n): 1 for n in folders}, epochs={("resnet", n): 9 for n in folders})
    for point in points:
        folder = shared_data / "training_results_v1.1/Dell/results" / folders[point.nodes] / "resnet"
        logs = [folder / f"result_{run}.txt" for run in range(5)]
        verdicts = check_compliances(logs, ruleset="1.1.0", with_official=False)
        study.compliance |= {(point.path, run): verdict for run, verdict in enumerate(verdicts)}
        summaries = [RunSummary.from_dict(verdict["summary"]) for verdict in verdicts]
        batch = point.global_batch_size
        study.rcps[point.path] = check_point(summaries, benchmark="resnet", ruleset="1.1.0", global_batch_size=batch)
    table, scaling = study.points, study.scaling
    assert list(table["time_to_train_min"].round(3)) == [62.949, 32.087, 17.336, 10.586]
    assert list(scaling["speedup"].round(2)) == [1.00, 1.96, 3.63, 5.95]
    assert list(scaling["efficiency"].round(3)) == [1, 0.981, 0.908, 0.743]
    assert list(scaling["throughput_efficiency"].round(3)) == [1, 0.981, 0.908, 0.956]
    assert list(scaling["convergence_efficiency"].round(3)) == [1, 1, 1, 0.778]
    assert list(scaling.loc[3, ["inherent_ratio", "avoidable_ratio"]].astype(float).round(3)) == [1.202, 1.070]
    assert table.loc[1, "normalized_time_to_train_min"] == pytest.approx(32.228, abs=1e-3)
    assert set(table["verdict"]) == {"valid"}


@pytest.mark.parametrize("status", ["missing", "no_rcps", "slower_than_smallest", ""])
def test_inherent_needs_an_rcp_of_the_same_batch_size(status):
    study = made.quickstart()
    study.rcps["emulated_cpu/resnet/n2"] |= {"status": status}
    assert np.isnan(study.scaling["inherent_ratio"].iloc[1])
    assert np.isfinite(study.scaling["samples_ratio"].iloc[1])


def test_adding_a_point_moves_no_other_number():
    study = made.long_curve()
    smaller = dataclasses.replace(study.planned, points=study.planned.points[:3])
    compliance = {key: value for key, value in study.compliance.items() if not key[0].endswith("n8")}
    less = dataclasses.replace(study, planned=smaller, compliance=compliance)
    pd.testing.assert_frame_equal(less.points, study.points.iloc[:3])
    pd.testing.assert_frame_equal(less.scaling, study.scaling.iloc[:3])


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text.replace("speedup_low,", ""), r"misses columns \['speedup_low'\]"),
        (lambda text: text.replace("finding", "findings"), r"unknown \['findings'\]"),
        (
            lambda text: text.replace("emulated_cpu,resnet,1", "emulated_cpu,resnet,one"),
            r"line 2: nodes is 'one', expected int64",
        ),
        (lambda text: "", "is empty"),
    ],
)
def test_reading_a_wrong_table_names_file_and_reason(edit, message, tmp_path):
    path = tmp_path / "scaling.csv"
    tables.write_table(made.quickstart().scaling, path)
    path.write_text(edit(path.read_text()))
    with pytest.raises(ValueError, match=f"scaling.csv.*{message}"):
        tables.read_table(path, "scaling")


def test_unknown_kind_of_table():
    with pytest.raises(ValueError, match="legal values: runs, points, scaling"):
        tables.table([], kind="curves")


def write_study(study: made.Study, results: Path) -> SimpleNamespace:
    """The files that the table adapters read."""
    results.mkdir(exist_ok=True)
    planned = {"study": study.planned.study, "title": study.planned.title, "notes": list(study.planned.notes)}
    planned["points"] = [dataclasses.asdict(point) | {"unused": 1} for point in study.planned.points]
    files = {results / "planned.json": planned}
    compliance = {
        results / "validation" / path / f"compliance_{run}.json": record
        for (path, run), record in study.compliance.items()
    }
    rcp = {results / "validation" / path / "rcp.json": record for path, record in study.rcps.items()}
    attempts = {
        results / "attempts" / path / f"run_{run}" / f"attempt_{record['attempt']}" / "attempt.json": record
        for (path, run), records in study.attempts.items()
        for record in records
    }
    runs = {results / "runs" / path / f"run_{run}.json": record for (path, run), record in study.records.items()}
    for (path, run), report in study.preflights.items():
        attempts[results / "attempts" / path / f"run_{run}" / "attempt_0" / "preflight.json"] = report
    for path, record in (files | compliance | rcp | attempts | runs).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    lists = {"compliance": compliance, "rcp": rcp, "records": runs}
    lists = {name: [*map(str, files_of_kind)] for name, files_of_kind in lists.items()}
    return SimpleNamespace(planned=str(results / "planned.json"), **lists)


def run_adapter(name: str, **snakemake) -> None:
    source = (SCRIPTS / f"{name}.py").read_text()
    exec(compile(source, name, "exec"), {"snakemake": SimpleNamespace(**snakemake)})


@pytest.mark.parametrize("name", ["long_curve", "empty"])
def test_adapters_make_the_tables_from_files(name, tmp_path):
    study = made.STUDIES[name]()
    inputs = write_study(study, tmp_path)
    paths = {kind: str(tmp_path / f"{kind}.csv") for kind in tables.COLUMNS}
    params = SimpleNamespace(attempts_dir=str(tmp_path / "attempts"))
    for kind in tables.COLUMNS:
        given = SimpleNamespace(**(vars(inputs) | paths))
        run_adapter(f"make_{kind}_table", input=given, output=SimpleNamespace(table=paths[kind]), params=params)
    for kind, path in paths.items():
        pd.testing.assert_frame_equal(tables.read_table(path, kind), getattr(study, kind))


def test_attempts_are_read_in_their_order(tmp_path):
    study = five_runs()
    study.attempts = {(PATH, 2): [made.attempt(number) for number in range(12)]}
    write_study(study, tmp_path)
    found = evidence.read_attempts(tmp_path / "attempts")
    assert {key: [record["attempt"] for record in records] for key, records in found.items()} == {
        (PATH, 2): [*range(12)]
    }


@pytest.mark.parametrize(("text", "message"), [('{"passed": tr', r"compliance_0.json: line 1: not JSON"), ("[]", "expected a JSON object, found list")])  # fmt: skip
def test_damaged_evidence_names_the_file(text, message, tmp_path):
    path = tmp_path / "s" / "w" / "n1" / "compliance_0.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        evidence.read_compliance([path])


def test_incomplete_plan_names_file_and_fields(tmp_path):
    path = tmp_path / "planned.json"
    path.write_text(json.dumps({"study": "s", "points": [{"system": "a"}]}))
    with pytest.raises(ValueError, match=r"planned.json: points\[0\]: misses workload, nodes"):
        Planned.from_file(path)


def test_tables_and_summary_import_no_plotting():
    code = "import sys; from mlscaling import evidence, runs, scoring, summary, tables, plots; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "mlscaling.scoring" in loaded
    assert not {"matplotlib", "seaborn", "torch", "scipy", "mlperf_logging"} & set(loaded)
    assert scoring.__name__ in loaded
