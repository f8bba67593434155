"""A results tree in, scores and verdicts out: nothing raises, nothing is written, every entry has a score or a reason."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlscaling import tables
from mlscaling.facts import facts_of, read_facts
from mlscaling.mlperf.system import from_values
from mlscaling.published import import_record, survey
from mlscaling.results_tree import results_of
from mlscaling.survey_command import main
from mlscaling.survey_text import MAX_COLUMNS, survey_text
from published_tree import add_description, add_results, content, runs, sampled, state, with_batch

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "config" / "published" / "dell_v1.1.csv"
FIVE = ("bert", "maskrcnn", "resnet", "rnnt", "ssd")


@pytest.fixture(scope="module")
def dell(shared_data: Path) -> pd.DataFrame:
    """The survey of the Dell tree, made once."""
    return survey(shared_data / "training_results_v1.1", "1.1.0")


def row_of(frame: pd.DataFrame, system: str, benchmark: str) -> dict[str, Any]:
    (row,) = frame[(frame["system"] == system) & (frame["benchmark"] == benchmark)].to_dict("records")
    return row


# --- the published Dell tree ------------------------------------------------------------------------------------------


def test_every_group_of_the_dell_tree_has_the_known_score(dell: pd.DataFrame, shared_data: Path) -> None:
    with (shared_data / "dell_v1.1_scores.csv").open() as file:
        known = {(row["system"], row["benchmark"]): row for row in csv.DictReader(file)}
    assert len(dell) == len(known) == 51
    assert dell["num_runs"].sum() == 440
    for (system, benchmark), row in known.items():
        ours = row_of(dell, system, benchmark)
        assert ours["time_to_train_min"] == pytest.approx(float(row["score_olympic_min"]), abs=1e-3), system
        assert ours["convergence"] == pytest.approx(float(row["conv_olympic_mean"]), rel=1e-4), (system, benchmark)
        assert (ours["num_converged"], ours["required_runs"]) == (int(row["n_success"]), int(row["required_runs"]))
        assert (ours["nodes"], ours["accelerators"]) == (int(row["nodes"]), int(row["accelerators"]))


@pytest.mark.parametrize(
    ("system", "benchmark", "minutes"),
    [
        ("R750xax4A100-PCIE-80GB", "resnet", 62.949),
        ("2xR750xax4A100-PCIE-80GB", "resnet", 32.087),
        ("4xR750xax4A100-PCIE-80GB", "resnet", 17.336),
        ("8xR750xax4A100-PCIE-80GB", "resnet", 10.586),
        ("XE8545x4A100-SXM-80GB", "bert", 38.855),
        ("2xXE8545x4A100-SXM-80GB", "bert", 26.547),
        ("XE8545x4A100-SXM-80GB", "rnnt", 106.542),
        ("2xXE8545x4A100-SXM-80GB", "rnnt", 35.068),
    ],
)
def test_scores_of_the_seed(dell: pd.DataFrame, system: str, benchmark: str, minutes: float) -> None:
    assert row_of(dell, system, benchmark)["time_to_train_min"] == pytest.approx(minutes, abs=1e-3)


def test_rcp_verdicts_and_normalised_scores_of_the_dell_tree(dell: pd.DataFrame) -> None:
    assert (dell["rcp_passed"].sum(), (~dell["rcp_passed"].dropna()).sum(), dell["rcp_passed"].isna().sum()) == (
        45,
        2,
        4,
    )
    failed = dell[dell["verdict"] == "invalid"]
    assert sorted(failed["system"] + "/" + failed["benchmark"]) == ["DSS8440x10A100-PCIE-80GB/ssd", "R750xax4A100-PCIE-80GB/rnnt"]  # fmt: skip
    assert failed["reason"].str.startswith("RCP test failed: ").all()
    assert failed["normalized_time_to_train_min"].isna().all()
    assert row_of(dell, "2xR750xax4A100-PCIE-80GB", "resnet")["normalized_time_to_train_min"] == pytest.approx(32.22799, abs=1e-5)  # fmt: skip
    largest = row_of(dell, "8xR750xax4A100-PCIE-80GB", "resnet")
    assert [round(largest[name], 2) for name in ("rcp_mean", "rcp_limit", "full_rcp_mean", "full_rcp_limit")] == [42.07, 41.31, 45.5, 44.68]  # fmt: skip
    assert round(largest["full_normalization"], 4) == 1.0111


def test_case_c8_one_aborted_run_of_five_is_dropped_as_the_slowest(dell: pd.DataFrame) -> None:
    aborted = dell[(dell["num_converged"] < dell["num_runs"]) & (dell["benchmark"] == "resnet")]
    assert len(aborted) == 3
    assert (aborted["verdict"] == "valid").all()
    assert aborted["reason"].str.fullmatch(r"run \d did not converge").all()
    assert aborted["time_to_train_min"].notna().all()


def test_case_c13_descriptions_that_contradict(dell: pd.DataFrame) -> None:
    findings = row_of(dell, "8xR750xax4A100-PCIE-80GB", "resnet")["findings"]
    assert "accelerator_memory: accelerator_memory_capacity is '40 GB', but accelerator_model_name is" in findings
    rnnt = row_of(dell, "DSS8440x8A100-PCIE-80GB", "rnnt")["findings"]
    assert "platform_differs: submission_platform is '1xDSS8440x10A100-PCIE-80GB' in the logs" in rnnt
    assert "says 10 accelerators, accelerators_per_node is 8" in rnnt


def test_the_dell_tree_is_the_same_afterwards_and_memory_stays_low(shared_data: Path, tmp_path: Path) -> None:
    tree = shared_data / "training_results_v1.1"
    before = state(tree)
    assert len(before) == 452
    measure = (  # a process's own ru_maxrss would start at that of the tests, which it was forked from
        "import resource, sys\nfrom mlscaling.survey_command import main\nstatus = main(sys.argv[1:])\n"
        "own = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "workers = 2 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
        "print('MIB', (own + workers) // 1024)\nsys.exit(status)"
    )
    command = [sys.executable, "-c", measure, str(tree), "--round", "1.1", "--csv", str(tmp_path / "survey.csv")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "scripts")}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert int(done.stdout.rsplit("MIB", 1)[1]) <= 512
    assert state(tree) == before
    assert len(pd.read_csv(tmp_path / "survey.csv")) == 51


def test_committed_facts_are_those_of_the_logs(shared_data: Path, tmp_path: Path) -> None:
    committed = read_facts(FACTS)
    systems = list(dict.fromkeys(committed["system"]))
    made = facts_of(shared_data / "training_results_v1.1", "1.1.0", systems=systems, benchmarks=FIVE)
    tables.write_table(made, tmp_path / "facts.csv")
    assert (tmp_path / "facts.csv").read_bytes() == FACTS.read_bytes()


# --- the official tools on the same files -----------------------------------------------------------------------------


def part_of_dell(shared_data: Path, tmp_path: Path, *, every: int) -> Path:
    """A copy of the tree with some of its systems, or with all of them; the second has the five benchmarks of the seed."""
    source, target = shared_data / "training_results_v1.1" / "Dell", tmp_path / "Dell"
    (target / "systems").mkdir(parents=True)
    for system in sampled(sorted(path.name for path in (source / "results").iterdir()), start=1, every=every):
        shutil.copytree(source / "results" / system, target / "results" / system, copy_function=shutil.copyfile)
        shutil.copyfile(source / "systems" / f"{system}.json", target / "systems" / f"{system}.json")
    for folder in target.rglob("*/"):
        folder.chmod(0o755)
    return target


@pytest.mark.slow
def test_official_checkers_beside_ours(shared_data: Path, tmp_path: Path) -> None:
    tree = part_of_dell(shared_data, tmp_path, every=4)
    before = state(tree)
    frame = survey(tree, "1.1.0", official=True)
    passed = frame["official_rcp_passed"]
    if len(frame) == 51:
        assert frame["official_num_compliant"].sum() == 206  # of 440 logs, see test_compliance
        assert (passed.sum(), (~passed.dropna()).sum(), passed.isna().sum()) == (45, 2, 4)
    assert passed.sum() >= len(FIVE)
    assert (passed.fillna(False) == frame["rcp_passed"].fillna(False)).all()
    assert frame["official_description_passed"].all()
    bert = row_of(frame, "2xXE8545x4A100-SXM-80GB", "bert")
    assert (bert["num_compliant"], bert["official_num_compliant"], bert["verdict"]) == (10, 0, "valid")
    assert bert["official_findings"].startswith("all logs: published; fails the current compliance_checker because")
    assert state(tree) == before


@pytest.mark.slow
def test_scores_equal_the_official_summarisers_wherever_it_gives_one(
    dell: pd.DataFrame, shared_data: Path, tmp_path: Path
) -> None:
    """Its first run on a fresh copy gives raw scores: it scores before its RCP check writes scaling.json."""
    target = part_of_dell(shared_data, tmp_path, every=12)
    command = ["-m", "mlperf_logging.result_summarizer", str(target), "training", "1.1.0", "-csv", "x.csv"]
    subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, timeout=600, check=True)
    official = pd.read_csv(tmp_path / "x.csv").set_index("system")
    scored = [(system, name) for system in official.index for name in official.columns[11:-2] if official.loc[system, name] > 0]  # fmt: skip
    assert {benchmark for _, benchmark in scored} >= set(FIVE) - {"bert"}  # whose logs the current checker refuses
    assert len(scored) == 37 or len(list(target.glob("results/*"))) < 12
    for system, benchmark in scored:
        ours = row_of(dell, system, benchmark)["time_to_train_min"]
        assert ours == pytest.approx(official.loc[system, benchmark], abs=1e-3), (system, benchmark)


# --- trees of our own: every fault is a row ---------------------------------------------------------------------------

TWICE = content(seed=1)
CASES: dict[str, tuple[list[bytes], bool, str, str]] = {
    # name → logs, scored, verdict, reason
    "one_aborted": ([*runs(4), content(seed=9, status="aborted", qualities=(0.1, 0.2))], True, "invalid", "run 4 did not converge"),
    "two_aborted": ([*runs(3), *(content(seed=s, status="aborted", qualities=(0.1,)) for s in (8, 9))], False, "invalid", "2 of 5 runs did not converge"),
    "three_of_five": (runs(3), True, "incomplete", "incomplete, 3 of 5"),
    "two_of_five": (runs(2), False, "incomplete", "incomplete, 2 of 5"),
    "six_of_five": (runs(6), True, "invalid", "6 runs; a submission has exactly 5"),
    "mixed_batch": ([*runs(4), with_batch(content(seed=9), 128)], False, "invalid", "global_batch_size"),
    "same_log_twice": ([*runs(3), TWICE, TWICE], True, "invalid", "are the same file"),
    "same_seeds": ([content(seed=7, minutes=10 + run) for run in range(5)], True, "invalid", "same seeds [7]"),
    "cut_in_half": ([*runs(4), content(seed=9)[:3000]], True, "invalid", "run 4 failed"),
    "empty_logs": ([b""] * 5, False, "invalid", "run"),
    "closed_in_the_logs": (runs(5, division="closed"), False, "invalid", "division is 'closed' in the log, 'open' expected"),
    "unknown_benchmark": (runs(5, benchmark="resnet50"), False, "invalid", "resnet50 is no benchmark of this round"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_faults_are_rows_with_reasons(name: str, tmp_path: Path) -> None:
    logs, scored, verdict, reason = CASES[name]
    add_results(tmp_path, logs)
    add_description(tmp_path)
    before = state(tmp_path)
    (row,) = survey(tmp_path, "1.1.0", jobs=1).to_dict("records")
    assert math.isfinite(row["time_to_train_min"]) == scored
    assert row["verdict"] == verdict
    assert reason in row["reason"]
    assert row["num_runs"] == len(logs)
    assert state(tmp_path) == before


def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path: Path) -> None:
    add_results(tmp_path, runs(5), system="good")
    broken = add_results(tmp_path, runs(4), system="bad")
    (broken / "result_4.txt").mkdir()
    (broken / "result_5.txt").symlink_to("nowhere")
    add_results(tmp_path, [], system="nothing")
    (add_results(tmp_path, [], system="named") / "result_0.log").write_bytes(TWICE)
    (tmp_path / "someone" / "results" / "bare").mkdir()
    (tmp_path / "someone" / "results" / "lost").symlink_to("nowhere")
    (tmp_path / "someone" / "results" / "README.md").write_text("not a system")
    frame = survey(tmp_path, "1.1.0")
    reasons = dict(zip(frame["system"], frame["reason"], strict=True))
    assert set(reasons) == {"good", "bad", "nothing", "named", "bare", "lost"}
    assert "result_4.txt cannot be read: Is a directory" in reasons["bad"]
    assert "result_5.txt cannot be read: No such file or directory" in reasons["bad"]
    assert reasons["nothing"] == "the folder is empty"
    assert reasons["named"] == "there is no result_<run>.txt in it, only result_0.log"
    assert reasons["bare"] == "there is no benchmark's folder in it"
    assert reasons["lost"] == "a link to a place that is not there"
    good = row_of(frame, "good", "resnet")
    assert good["time_to_train_min"] == pytest.approx(10 + 2 / 60)
    assert "description_missing: there is no systems/good.json" in good["findings"]


def test_case_c2_folders_of_any_name_and_logs_without_a_benchmark(tmp_path: Path) -> None:
    add_results(tmp_path, runs(5), benchmark="resnet50_v1.5")
    add_results(tmp_path, [b"".join(line for line in text.splitlines(True) if b"submission_benchmark" not in line) for text in runs(5)], system="mute")  # fmt: skip
    frame = survey(tmp_path, "1.1.0", jobs=1)
    named = row_of(frame, "box", "resnet")
    assert named["folder"] == "someone/results/box/resnet50_v1.5"
    assert math.isfinite(named["time_to_train_min"])
    mute = row_of(frame, "mute", "resnet")
    assert "the log has no submission_benchmark" in mute["reason"]


def test_trees_links_and_submitters(tmp_path: Path) -> None:
    add_results(tmp_path, runs(5))
    shared = add_results(tmp_path, runs(5), submitter="other", system="2xbox")
    shared.rename(tmp_path / "elsewhere")
    shared.symlink_to(tmp_path / "elsewhere")
    add_description(tmp_path, submitter="other", system="named_otherwise", system_name="2xbox", number_of_nodes=2, accelerators_per_node=1)  # fmt: skip
    both = survey(tmp_path, "1.1.0", jobs=1)
    assert both["submitter"].tolist() == ["other", "someone"]
    assert both["nodes"].tolist()[0] == 2
    pd.testing.assert_frame_equal(survey(tmp_path, "1.1.0", jobs=2), both)
    alone = survey(tmp_path / "someone", "1.1.0", jobs=1)
    assert alone["submitter"].tolist() == ["someone"]
    assert survey(tmp_path, "1.1.0", submitters=["other"], jobs=1)["submitter"].tolist() == ["other"]
    with pytest.raises(ValueError, match="there is no submitter nobody; there are other, someone"):
        survey(tmp_path, "1.1.0", submitters=["nobody"])


@pytest.mark.parametrize(
    ("ruleset", "status"),
    [
        ("0.7.0", "no_rcps"), ("1.0.0", "missing"), ("1.1.0", "missing"), ("2.1.0", "missing"), ("4.0.0", "missing"),
        ("5.0.0", ""), ("6.1.0", ""),
    ],
)  # fmt: skip
def test_every_round_has_scores_or_reasons(ruleset: str, status: str, tmp_path: Path) -> None:
    add_results(tmp_path, runs(5))
    add_description(tmp_path)
    (row,) = survey(tmp_path, ruleset, jobs=1).to_dict("records")
    assert row["rcp_status"] == status
    if status:
        assert row["time_to_train_min"] == pytest.approx(10 + 2 / 60), row["reason"]
    else:
        assert row["reason"] == "resnet is no benchmark of this round"


def test_official_columns_of_a_small_tree(tmp_path: Path) -> None:
    add_results(tmp_path, [*runs(4), content(seed=9, status="aborted", qualities=(0.1, 0.2))])
    add_description(tmp_path)
    before = state(tmp_path)
    (row,) = survey(tmp_path, "1.1.0", official=True).to_dict("records")
    assert (row["official_num_compliant"], row["official_rcp_passed"], row["official_seeds_passed"]) == (5, False, True)
    assert row["official_description_passed"] in (True, False)
    assert "rcp_checker fails: " in row["official_findings"]
    assert state(tmp_path) == before


# --- the command line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--round", "1.1"], "nowhere: there is no such folder"),
        ([".", "--round", "1.1"], "is no results tree; expected <submitter>/results/<system>"),
        ([".", "--round", "9.9"], "--round 9.9 is unknown; legal: 0.6.0, 0.7.0, 1.0.0"),
        ([".", "--round", "1.1", "--facts", "x.csv"], "--facts needs at least one --system"),
        ([".", "--round", "1.1", "--system", "nope"], "--system and --benchmark choose rows of --facts"),
    ],
)
def test_errors_are_one_message(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("survey: ")
    assert captured.out == ""


def test_the_table_is_aligned_and_at_most_140_columns_wide(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for number, (logs, *_) in enumerate(CASES.values()):
        add_results(tmp_path, logs, system=f"a-system-with-a-rather-long-name-that-goes-on-and-on-{number:02}")
    assert main([str(tmp_path), "--round", "1.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= MAX_COLUMNS
    table = [line for line in lines if line.startswith("a-system")]
    assert len(table) == len(CASES)
    assert len({line.index("resnet") for line in table}) == 1
    letters = {letter for line in table for letter in line.split()[-1].split(",")}
    footnotes = {line.split()[0] for line in lines if re.match(r"[a-z]{1,2} ", line)}
    assert letters <= footnotes | {"valid", "invalid", "incomplete"}
    assert any(line.startswith("Minutes: MLPerf's Olympic mean") for line in lines)


def test_official_columns_appear_only_when_asked(tmp_path: Path) -> None:
    add_results(tmp_path, runs(5))
    frame = survey(tmp_path, "1.1.0", jobs=1)
    assert "official" not in survey_text(frame, title="t")
    frame["official_num_compliant"] = 3
    frame["official_rcp_passed"] = False
    frame["rcp_passed"] = True
    text = survey_text(frame, title="t")
    assert "official" in text
    assert "3/5" in text
    assert "the official RCP checker fails, ours does not agree" in text


# --- facts and records ------------------------------------------------------------------------------------------------


def test_facts_of_a_tree_are_read_back(tmp_path: Path) -> None:
    add_results(tmp_path, [*runs(4), content(seed=9, status="aborted", qualities=(0.1, 0.2))])
    add_description(tmp_path)
    made = facts_of(tmp_path, "1.1.0", systems=["box"])
    tables.write_table(made, tmp_path / "facts.csv")
    pd.testing.assert_frame_equal(read_facts(tmp_path / "facts.csv"), made)
    assert made["run_time_ms"].tolist() == [600_000 + 1000 * run for run in range(4)] + [600_000]
    assert made["status"].tolist() == ["success"] * 4 + ["aborted"]
    assert made["convergence"].isna().tolist() == [False] * 4 + [True]
    assert made["log"].iloc[0] == "someone/results/box/resnet/result_0.txt"
    assert made["accelerators"].tolist() == [2] * 5


@pytest.mark.parametrize(
    ("values", "message"),
    [({"systems": ["tub"]}, "no results of system tub"), ({"systems": ["box"], "benchmarks": ["ssd"]}, "no results of system box")],
)  # fmt: skip
def test_facts_that_are_not_there_are_named(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    add_results(tmp_path, runs(5))
    add_description(tmp_path)
    with pytest.raises(ValueError, match=message):
        facts_of(tmp_path, "1.1.0", **values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("run_time_ms", "time"), "is no table of facts; expected, in this order: round"),
        (lambda text: text.replace(",3776911,", ",soon,"), "line 2: run_time_ms is 'soon', expected Int64"),
    ],
)
def test_damaged_facts_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    frame = read_facts(FACTS)
    frame = frame[frame["benchmark"] == "resnet"]
    frame.loc[frame.index[0], "run_time_ms"] = 3776911
    tables.write_table(frame, tmp_path / "facts.csv")
    (tmp_path / "facts.csv").write_text(change((tmp_path / "facts.csv").read_text()))
    with pytest.raises(ValueError, match=re.escape(message)):
        read_facts(tmp_path / "facts.csv")


def test_facts_need_a_description(tmp_path: Path) -> None:
    add_results(tmp_path, runs(5))
    with pytest.raises(ValueError, match=r"systems/box\.json: number_of_nodes and accelerators_per_node are needed"):
        facts_of(tmp_path, "1.1.0", systems=["box"])


def test_import_record_holds_description_and_hash(tmp_path: Path) -> None:
    folder = add_results(tmp_path, runs(1))
    add_description(tmp_path)
    (results,) = results_of(tmp_path)
    record = json.loads(json.dumps(import_record(results, results.logs[0], root=tmp_path)))
    assert record["source"]["log"] == "someone/results/box/resnet/result_0.txt"
    assert record["source"]["sha256"] == state(folder)["result_0.txt"]
    description = from_values(record["description"])
    assert (description.num_nodes, description.accelerator) == (1, "GPU9-80GB")
    assert description.values["other_software_stack.nccl"] == "2.1"


def test_a_tree_may_be_reached_through_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    add_results(real, runs(1))
    link.symlink_to(real)
    (results,) = results_of(link)
    for log_root in (real, link):
        log = log_root / "someone/results/box/resnet/result_0.txt"
        for root in (real, link):
            assert import_record(results, log, root=root)["source"]["log"] == "someone/results/box/resnet/result_0.txt"
