"""The vendor's study from committed facts: its numbers, its three figures, their footnotes."""

from __future__ import annotations

import importlib
import itertools
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from docutils.core import publish_doctree
from figure_checks import check_legible
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mlscaling import mlcommons, plots
from mlscaling.facts import read_facts
from mlscaling.plots import style
from mlscaling.published_study import study_of, system_of_folder
from mlscaling.seed_figures import CURVES, keywords_of, main, study_of_figure
from mlscaling.seed_text import read_text
from test_plots import texts, words

ROOT = Path(__file__).resolve().parents[2]
FACTS, TEXT = ROOT / "config" / "published" / "dell_v1.1.csv", ROOT / "config" / "published" / "seed_text.yaml"


@cache
def given(name: str) -> dict[str, Any]:
    return keywords_of(name, facts=read_facts(FACTS), text=read_text(TEXT))


@cache
def drawn(name: str) -> Figure:
    figure = module(name).draw(**given(name))
    figure.set_dpi(200)  # as it is saved: letters are fitted to pixels
    with style.theme():
        FigureCanvasAgg(figure).draw()
    return figure


def module(name: str) -> Any:
    return importlib.import_module(f"mlscaling.plots.seed.{name}")


def row_of(frame: pd.DataFrame, workload: str, nodes: int) -> pd.Series:
    return frame[(frame["workload"] == workload) & (frame["nodes"] == nodes)].iloc[0]


# --- the numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "minutes", "speedup", "efficiency", "throughput", "convergence"),
    [
        (1, 62.949, 1.00, 1.0, 1.0, 1.0),
        (2, 32.087, 1.96, 0.981, 0.981, 1.0),
        (4, 17.336, 3.63, 0.908, 0.908, 1.0),
        (8, 10.586, 5.95, 0.743, 0.956, 0.778),
    ],
)
def test_r750xa_resnet(
    nodes: int, minutes: float, speedup: float, efficiency: float, throughput: float, convergence: float
) -> None:
    study = study_of_figure("r750xa_resnet", facts=read_facts(FACTS), text=read_text(TEXT))
    point, row = row_of(study.points, "resnet", nodes), row_of(study.scaling, "resnet", nodes)
    assert point["time_to_train_min"] == pytest.approx(minutes, abs=1e-3)
    assert row["speedup"] == pytest.approx(speedup, abs=5e-3)
    assert row["efficiency"] == pytest.approx(efficiency, abs=5e-4)
    assert row["throughput_efficiency"] == pytest.approx(throughput, abs=5e-4)
    assert row["convergence_efficiency"] == pytest.approx(convergence, abs=5e-4)
    assert abs(row["efficiency"] - row["throughput_efficiency"] * row["convergence_efficiency"]) < 1e-12
    assert point["verdict"] == row["verdict"] == "valid"


def test_what_the_batch_size_explains_at_eight_nodes() -> None:
    study = study_of_figure("r750xa_resnet", facts=read_facts(FACTS), text=read_text(TEXT))
    row, point = row_of(study.scaling, "resnet", 8), row_of(study.points, "resnet", 8)
    assert (point["global_batch_size"], point["convergence"]) == (13056, 45)
    assert [round(row[name], 3) for name in ("samples_ratio", "inherent_ratio", "avoidable_ratio")] == [1.286, 1.202, 1.070]  # fmt: skip
    rcp = study.rcps["R750xax4A100-PCIE-80GB/resnet/n8"]
    assert [round(rcp[name], 2) for name in ("mean", "limit")] == [42.07, 41.31]
    assert [round(rcp["full"][name], 2) for name in ("mean", "limit")] == [45.5, 44.68]
    assert (rcp["status"], rcp["full"]["status"], round(rcp["full"]["normalization"], 4)) == ("interpolated", "exact", 1.0111)  # fmt: skip


@pytest.mark.parametrize(
    ("workload", "one", "two", "speedup", "finding"),
    [
        ("bert", 38.855, 26.547, 1.4636, False),
        ("maskrcnn", 83.774, 48.788, 1.7171, False),
        ("resnet", 56.326, 30.123, 1.8699, False),
        ("rnnt", 106.542, 35.068, 3.0381, True),
        ("ssd", 16.244, 8.736, 1.8595, False),
    ],
)
def test_xe8545(workload: str, one: float, two: float, speedup: float, finding: bool) -> None:
    study = study_of_figure("xe8545", facts=read_facts(FACTS), text=read_text(TEXT))
    assert row_of(study.points, workload, 1)["time_to_train_min"] == pytest.approx(one, abs=1e-3)
    assert row_of(study.points, workload, 2)["time_to_train_min"] == pytest.approx(two, abs=1e-3)
    row = row_of(study.scaling, workload, 2)
    assert row["speedup"] == pytest.approx(speedup, abs=1e-4)
    assert row["finding"].startswith("efficiency above 1") == finding
    assert ("local batch size 64 → 256" in row["finding"]) == finding


def test_ssd_of_r750xa_which_the_text_leaves_out() -> None:
    study = study_of(read_facts(FACTS), study="s", title="t", system="R750xax4A100-PCIE-80GB", benchmarks=["ssd"])
    row = row_of(study.scaling, "ssd", 8)
    parts = ("speedup", "efficiency", "throughput_efficiency", "convergence_efficiency")
    assert [round(row[name], 3) for name in parts] == [5.270, 0.659, 0.790, 0.833]


def test_case_c10_each_number_of_rnnt_says_which_it_is() -> None:
    frame = module("rnnt_revised").data(**given("rnnt_revised"))
    rnnt = frame[frame["workload"] == "rnnt"]
    assert list(zip(rnnt["what"], rnnt["minutes_1_node"].round(2), rnnt["speedup"].round(3), rnnt["verified"], strict=True)) == [
        ("published logs", 106.54, 3.038, True), ("published", 105.6, 3.011, False),
        ("revised", 77.31, 2.205, False), ("revised", 77.37, 2.206, False),
    ]  # fmt: skip
    point = row_of(given("xe8545")["points"], "rnnt", 1)
    assert point["normalized_time_to_train_min"] == pytest.approx(107.4929, abs=1e-4)


def test_facts_of_another_system_are_named() -> None:
    with pytest.raises(ValueError, match="the facts have no runs of tub and resnet"):
        study_of(read_facts(FACTS), study="s", title="t", system="tub", benchmarks=["resnet"])


@pytest.mark.parametrize(
    ("folder", "system"),
    [("8xR750xax4A100", "R750xax4A100"), ("R750xax4A100", "R750xax4A100"), ("2x2U", "2x2U"), ("16xbox", "box")],
)
def test_systems_of_folders(folder: str, system: str) -> None:
    assert system_of_folder(folder) == system


# --- the figures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CURVES)
def test_texts_are_legible_inside_and_apart(name: str) -> None:
    figure = drawn(name)
    check_legible(figure, texts(figure))
    for axes, legend in itertools.product(figure.axes, figure.legends):
        assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize("name", CURVES)
def test_footnotes_name_round_division_source_and_trademark(name: str) -> None:
    shown = words(drawn(name))
    caption = module(name).caption(**given(name))
    publish_doctree(caption, settings_overrides={"halt_level": 2})
    for text in (shown, caption.replace("\\", "")):
        assert "MLPerf Training v1.1, closed division, Dell" in text
        assert "github.com/mlcommons/training_results_v1.1" in text
        assert "not verified by MLCommons Association" in text
        assert mlcommons.TRADEMARK in text
        assert (mlcommons.NOT_VERIFIED in text) == (name == "rnnt_revised")


def test_figure_1_shows_both_sets_of_rcps_and_the_decomposition() -> None:
    shown = words(drawn("r750xa_resnet"))
    assert "efficiency 74.3 % = throughput 95.6 % × convergence 77.8 %" in shown
    assert "1.286× the epochs of 1 node = 1.202× inherent to the batch size (RCP) × 1.070× avoidable" in shown
    assert "interpolate to 42.07 epochs (limit 41.31); the full set has a record of 45.50 (limit 44.68)" in shown


def test_figure_3_shows_the_discrepancies() -> None:
    shown = words(drawn("rnnt_revised"))
    assert "The text gives the published one-node time as 105.6 minutes; its logs give 106.54." in shown
    assert "The text gives the revised one-node time as both 77.31 and 77.37 minutes." in shown
    assert shown.count("× unverified") == 3


def test_a_claim_that_was_verified_is_not_called_unverified(tmp_path: Path) -> None:
    text = TEXT.read_text().replace("verified: false", "verified: true")
    (tmp_path / "text.yaml").write_text(text)
    keywords = keywords_of("rnnt_revised", facts=read_facts(FACTS), text=read_text(tmp_path / "text.yaml"))
    assert not any("Unverified" in note for note in keywords["context"].planned.notes)
    assert module("rnnt_revised").data(**keywords)["verified"].all()


def test_the_figures_are_no_study_figures() -> None:
    assert "seed" not in plots.names()
    assert not set(CURVES) & set(plots.names())


# --- the command line -------------------------------------------------------------------------------------------------------


def test_the_command_writes_twelve_files_and_the_same_bytes_again(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        command = [sys.executable, str(ROOT / "workflow" / "scripts" / "seed_figures.py"), "--output", str(tmp_path / folder)]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 12
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in ("one", "two"))
    assert sorted(one) == sorted(f"figure_{n}.{form}" for n in (1, 2, 3) for form in ("svg", "png", "csv", "rst"))
    assert one == two
    drawn_data = pd.read_csv(tmp_path / "one" / "figure_1.csv")
    assert drawn_data["speedup"].round(2).tolist() == [1.0, 1.96, 3.63, 5.95]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("value", "soon", "claims[1].value is 'soon'"),
        ("nodes", None, "claims[1].nodes is missing"),
        ("verified", "no", "claims[1].verified is 'no'"),
        ("colour", "red", "claims[1].colour is unknown; legal: what, value"),
    ],
)
def test_a_damaged_text_is_refused(key: str, value: Any, message: str, tmp_path: Path, capsys: Any) -> None:
    data = yaml.safe_load(TEXT.read_text())
    data["claims"][1] = {**data["claims"][1], key: value}
    if value is None:
        del data["claims"][1][key]
    (tmp_path / "text.yaml").write_text(yaml.safe_dump(data))
    shutil.copyfile(FACTS, tmp_path / "facts.csv")
    arguments = ["--text", str(tmp_path / "text.yaml"), "--facts", str(tmp_path / "facts.csv"), "--output", str(tmp_path / "o")]  # fmt: skip
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
