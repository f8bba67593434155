"""Figures: what is drawn equals the tables, nothing overlaps, the same tables give the same bytes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic_study as made
from docutils.core import publish_doctree
from figure_checks import check_legible
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.text import Text
from mlscaling import plots, wording
from mlscaling.plots import style
from mlscaling.tables import read_table
from test_tables import SCRIPTS, run_adapter, write_study

SCORED = ["convergence", "efficiency", "speedup", "spread", "time_to_train"]
FIGURES = sorted([*SCORED, "network"])
ALL = [*itertools.product(FIGURES, made.STUDIES)]


@cache
def given(name: str) -> dict:
    study = made.STUDIES[name]()
    context = plots.Context(planned=study.planned, rcps=study.rcps, network=study.network)
    return {"runs": study.runs, "points": study.points, "scaling": study.scaling, "context": context}


@cache
def drawn(plot: str, name: str) -> Figure:
    figure = plots.module_of(plot).draw(**given(name))
    with style.theme():
        FigureCanvasAgg(figure).draw()
    return figure


def texts(figure: Figure) -> list[Text]:
    """Every text that a reader sees: tick labels outside the limits are not drawn."""
    hidden = {text for axes in figure.axes if not axes.get_visible() for text in axes.findobj(Text)}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = {text for tick in axis._update_ticks() for text in (tick.label1,)}
            hidden |= {text for tick in axis.get_major_ticks() for text in (tick.label1,)} - shown
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if text not in hidden]


def words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in texts(figure)).split())


def markers(axes, *, colour=None):
    """(marker, fill, x, y) of the point markers."""
    lines = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_markersize() == 6.5]
    lines = [line for line in lines if not same_color(line.get_markerfacecolor(), "white")]
    return [(line.get_marker(), line.get_fillstyle(), line.get_xdata()[0], line.get_ydata()[0]) for line in lines]


# --- every figure of every study -----------------------------------------------------------------------------------


def test_all_figures_are_tested():
    assert plots.names() == FIGURES
    with pytest.raises(ValueError, match="there is no figure 'style'; legal values: convergence, efficiency"):
        plots.module_of("style")


@pytest.mark.parametrize(("plot", "name"), ALL)
def test_texts_are_legible_inside_and_apart(plot, name):
    figure = drawn(plot, name)
    check_legible(figure, texts(figure))


@pytest.mark.parametrize(("plot", "name"), ALL)
def test_legend_and_notes_are_outside_of_the_data(plot, name):
    figure = drawn(plot, name)
    for axes in figure.axes:
        for legend in figure.legends:
            assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize(("plot", "name"), ALL)
def test_emulation_and_notes_are_on_the_figure_and_in_the_caption(plot, name):
    keywords = given(name)
    caption = plots.module_of(plot).caption(**keywords)
    emulated = any(point.emulated for point in keywords["context"].planned.points)
    assert (wording.EMULATED in words(drawn(plot, name))) == emulated
    assert ("Emulated nodes on one host." in caption) == emulated
    for note in keywords["context"].planned.notes:
        assert note in words(drawn(plot, name))
        assert note in caption


@pytest.mark.parametrize(("plot", "name"), ALL)
def test_captions_are_clean_rst_and_start_with_the_docstring(plot, name):
    module = plots.module_of(plot)
    caption = module.caption(**given(name))
    publish_doctree(caption, settings_overrides={"halt_level": 2})
    assert caption.startswith(module.__doc__.strip())
    assert ("No point has a score yet." in caption) == (name == "empty" and plot in SCORED)
    assert ("No network was measured: " in caption) == (given(name)["context"].network.empty and plot == "network")


@pytest.mark.parametrize(("plot", "name"), [*itertools.product(FIGURES, ["long_curve", "empty"]), ("spread", "five_workloads")])  # fmt: skip
def test_the_same_tables_give_the_same_bytes_and_the_csv_is_what_is_drawn(plot, name, tmp_path):
    contents = []
    for attempt in ("a", "b"):
        outputs = {form: tmp_path / f"{plot}{attempt}.{form}" for form in ("svg", "png", "csv", "caption")}
        plots.write(plot, **given(name), outputs=outputs)
        contents.append([path.read_bytes() for path in outputs.values()])
    assert contents[0] == contents[1]
    assert b"<svg" in contents[0][0]
    assert b"<dc:date>" not in contents[0][0]
    assert contents[0][1].startswith(b"\x89PNG")
    expected = plots.module_of(plot).data(**given(name))
    assert pd.read_csv(tmp_path / f"{plot}a.csv").shape == expected.shape
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("plot", SCORED)
def test_empty_figure_says_what_became_of_the_runs(plot):
    assert "no converged run yet 20 planned runs: 20 missing" in words(drawn(plot, "empty"))


def test_numbers_of_every_figure_are_those_of_the_tables():
    keywords = given("long_curve")
    points, scaling, runs = keywords["points"], keywords["scaling"], keywords["runs"]
    for plot, table, columns in (
        ("time_to_train", points, ["time_to_train_min", "time_to_train_min_low", "time_to_train_min_high", "verdict"]),
        ("convergence", points, ["convergence", "convergence_low", "convergence_high", "rcp_mean", "rcp_limit"]),
        ("speedup", scaling, ["speedup", "speedup_low", "speedup_high", "verdict", "finding"]),
        ("efficiency", scaling, ["efficiency", "throughput_efficiency", "convergence_efficiency_low", "samples_ratio"]),
        ("spread", runs, ["time_to_train_min", "num_attempts", "run"]),
    ):
        data = plots.module_of(plot).data(**keywords)
        rows = data[data["run"].isna()] if table is points else data
        pd.testing.assert_frame_equal(rows[columns].reset_index(drop=True), table[columns], check_dtype=False)


# --- each figure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plot", ["time_to_train", "speedup", "convergence"])
def test_filling_says_the_verdict(plot):
    (axes,) = drawn(plot, "long_curve").axes
    fills = {"valid": "full", "incomplete": "left", "invalid": "none"}
    assert [fill for _, fill, _, _ in markers(axes)] == [
        fills[verdict] for verdict in given("long_curve")["scaling"]["verdict"]
    ]
    assert "incomplete point invalid point" in words(drawn(plot, "long_curve"))


def test_time_to_train_shows_every_run():
    (axes,) = drawn("time_to_train", "long_curve").axes
    runs = given("long_curve")["runs"]
    dots = np.concatenate([line.get_ydata() for line in axes.lines if line.get_marker() == "."])
    good = runs.loc[runs["status"] == "success", "time_to_train_min"]
    np.testing.assert_array_equal(np.sort(dots), np.sort(good))
    lost = [line.get_marker() for line in axes.lines if line.get_marker() in "x+"]
    assert sorted(lost) == ["+", "x"]
    (label,) = [text for text in axes.texts if text.get_text() == "no result"]
    assert label.get_window_extent().x1 < axes.get_window_extent().x0
    np.testing.assert_array_equal([y for *_, y in markers(axes)], given("long_curve")["points"]["time_to_train_min"])


@pytest.mark.parametrize(
    ("name", "lines"),
    [("long_curve", [(1, 1)]), ("from_two_nodes", [(2, 1)]), ("single_point", []), ("no_score", [])],
)
def test_ideal_line_goes_through_the_first_measured_point(name, lines):
    (axes,) = drawn("speedup", name).axes
    ideal = [line for line in axes.lines if line.get_color() == style.GREY]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in ideal] == lines
    for line in ideal:
        slope = np.diff(line.get_ydata()) / np.diff(line.get_xdata())
        assert slope[0] == pytest.approx(line.get_ydata()[0] / line.get_xdata()[0])


def test_speedup_names_its_reference_where_it_is_not_one_node():
    assert "relative to 2 nodes" in words(drawn("speedup", "from_two_nodes"))
    assert "relative to" not in words(drawn("speedup", "quickstart"))
    assert "ResNet-50: on 2 nodes only" in words(drawn("speedup", "single_point"))
    assert "no score" in words(drawn("speedup", "no_score"))


def test_alarm_and_missing_significance_are_on_the_figures():
    for plot in ("speedup", "efficiency"):
        assert "RNN-T, xe8545, 2 nodes: efficiency above 1" in words(drawn(plot, "five_workloads"))
    study = made.study(
        [made.point(nodes=1), made.point(nodes=2)],
        times={("resnet", 1): 0.44, ("resnet", 2): 0.43},
        epochs={("resnet", 1): 6, ("resnet", 2): 6},
    )
    context = plots.Context(planned=study.planned)
    figure = plots.module_of("speedup").draw(
        runs=study.runs, points=study.points, scaling=study.scaling, context=context
    )
    assert "ResNet-50, 2 nodes: speed-up not significant, its 95 % interval includes 1." in words(figure)


def test_efficiency_bars_are_the_product_of_the_marks():
    (axes,) = drawn("efficiency", "long_curve").axes
    scaling = given("long_curve")["scaling"]
    np.testing.assert_array_equal([bar.get_height() for bar in axes.patches], scaling["efficiency"])
    marks = {shape: [line.get_ydata()[0] for line in axes.lines if line.get_marker() == shape] for shape in "^D"}
    np.testing.assert_allclose(np.multiply(marks["^"], marks["D"]), scaling["efficiency"], rtol=1e-12)
    assert [bar.get_hatch() for bar in axes.patches] == [None, "///", "///", None]
    assert same_color(axes.patches[3].get_facecolor(), "white")  # invalid: hollow
    last = scaling.iloc[-1]
    values = (100 * last[name] for name in ("throughput_efficiency", "convergence_efficiency", "efficiency"))
    assert "8 nodes {:.1f} × {:.1f} = {:.1f} %".format(*values) in words(drawn("efficiency", "long_curve"))


def test_convergence_shows_rcp_limit_and_full_set():
    (axes,) = drawn("convergence", "long_curve").axes
    curves = [line.get_ydata()[1:-1] for line in axes.lines if len(line.get_ydata()) == 6]
    points = given("long_curve")["points"]
    np.testing.assert_array_equal(curves, [points["rcp_mean"], points["rcp_limit"]])
    stars = [line for line in axes.lines if line.get_marker() == "*"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in stars] == [([256], [37.4])]
    assert "No RCP for ResNet-50 at 128." in words(drawn("convergence", "single_point"))


def test_spread_marks_dropped_and_repeated_runs():
    data = plots.module_of("spread").data(**given("long_curve"))
    first = data[data["nodes"] == 1].set_index("run")
    assert list(first.index[first["num_attempts"] > 1]) == [1]
    assert first["dropped"].sum() == 2
    assert first.loc[3, "dropped"]  # did not converge: dropped as the slowest
    assert first.loc[first["time_to_train_min"].idxmin(), "dropped"]
    kept = first.loc[~first["dropped"], "time_to_train_min"]
    assert kept.mean() == pytest.approx(given("long_curve")["points"]["time_to_train_min"][0], rel=1e-12)
    assert "needed several attempts" in words(drawn("spread", "long_curve"))


@pytest.mark.parametrize("workload", ["resnet", "bert", "ssd", "maskrcnn", "rnnt", "unheard_of"])
def test_a_workload_looks_the_same_whatever_else_is_shown(workload):
    alone = style.colour(workload), style.marker(workload)
    among = style.colour(workload, workloads=made.TITLES), style.marker(workload, workloads=made.TITLES)
    assert alone == among
    others = {name: (style.colour(name), style.marker(name)) for name in made.TITLES if name != workload}
    assert alone[0] not in {colour for colour, _ in others.values()}
    assert alone[1] not in {marker for _, marker in others.values()}


def test_adapter_draws_from_files(tmp_path):
    study = made.long_curve()
    inputs = write_study(study, tmp_path)
    for kind in ("runs", "points", "scaling", "network"):
        setattr(inputs, kind, str(tmp_path / f"{kind}.csv"))
    params = SimpleNamespace(attempts_dir=str(tmp_path / "attempts"))
    for kind in ("runs", "points", "scaling", "network"):
        output = SimpleNamespace(table=str(tmp_path / f"{kind}.csv"))
        run_adapter(f"make_{kind}_table", input=inputs, output=output, params=params)
    output = {form: str(tmp_path / f"speedup.{form}") for form in ("svg", "png", "csv", "caption")}
    run_adapter("plot", input=inputs, output=output, wildcards=SimpleNamespace(plot="speedup"))
    assert all(Path(path).stat().st_size for path in output.values())
    assert (
        read_table(tmp_path / "scaling.csv", "scaling")["speedup"].tolist()
        == pd.read_csv(output["csv"])["speedup"].tolist()
    )


def test_a_figure_imports_no_other_figure():
    code = "import sys; from mlscaling import plots; plots.module_of('spread'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=True
    ).stdout.split()
    figures = {name for name in FIGURES if f"mlscaling.plots.{name}" in loaded}
    assert figures == {"spread"}
