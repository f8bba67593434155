"""The summary in the terminal and on the report's front page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
import synthetic_study as made
from docutils.core import publish_doctree, publish_parts
from docutils.writers import get_writer_class
from mlscaling import summary, tables, wording
from test_tables import run_adapter, write_study

REPORT = Path(__file__).resolve().parents[2] / "workflow" / "report"


@cache
def text_of(name: str) -> str:
    study = made.STUDIES[name]()
    return summary.text_summary(study.points, study.scaling, study.planned)


@cache
def rst_of(name: str) -> str:
    study = made.STUDIES[name]()
    return summary.rst_summary(study.points, study.scaling, study.planned)


@pytest.mark.parametrize("name", made.STUDIES)
def test_text_fits_the_terminal_and_has_a_line_for_each_point(name):
    study, lines = made.STUDIES[name](), text_of(name).splitlines()
    assert max(map(len, lines)) <= 120
    rows = [
        line.split() for line in lines if any(f"/{point.required_runs}  " in line for point in study.planned.points)
    ]
    assert len(rows) == len(study.planned.points)


def test_quickstart_reads():
    lines = text_of("quickstart").splitlines()
    row = made.quickstart().points.iloc[3]
    (line,) = [line for line in lines if line.startswith("BERT           2")]
    scaling = made.quickstart().scaling.iloc[3]
    half = max(scaling["speedup_high"] - scaling["speedup"], scaling["speedup"] - scaling["speedup_low"])
    assert line.split() == [
        "BERT", "2", "5/10", f"{row['time_to_train_min']:.4f}", f"{scaling['speedup']:.2f}", "±", f"{half:.2f}",
        f"{100 * scaling['throughput_efficiency']:.1f}", "%", f"{100 * scaling['convergence_efficiency']:.1f}", "%",
        "passed", "so", "far", "+3,200,", "p", "0.38", "incomplete", "a",
    ]  # fmt: skip
    assert "a  incomplete, 5 of 10" in lines
    assert "emulated_cpu: One CPU core per emulated node (emulated nodes on one host)" in lines


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("long_curve", "run 3 did not converge"),
        ("long_curve", "run 4 failed (network): NCCL timed out on rank 7; incomplete, 4 of 5"),
        ("long_curve", "FAILED −3.70, p 0.012"),
        ("no_score", "2 of 5 runs did not converge, failed or are missing; at most 1 may"),
        ("empty", "no run yet"),
        ("from_two_nodes", "relative to 2 nodes"),
        ("five_workloads", "efficiency above 1"),
        ("five_workloads", "Result not verified by MLCommons Association."),
        ("quickstart", "not normalised by RCP"),
    ],
)
def test_everything_to_know_is_in_both_forms(name, words):
    assert words in " ".join(text_of(name).split())
    plain = publish_doctree(rst_of(name)).astext()
    assert words.replace("incomplete, 4", "4") in " ".join(plain.split())


@pytest.mark.parametrize("name", made.STUDIES)
def test_front_page_renders_cleanly_with_the_summary(name, tmp_path):
    path = tmp_path / "summary.rst"
    path.write_text(rst_of(name))
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string((REPORT / "study.rst").read_text())
    records = [SimpleNamespace(path=tmp_path / "speedup.svg"), SimpleNamespace(path=path)]
    rst = template.render(snakemake=SimpleNamespace(config={"study": "made_up_"}), files=records, categories={})
    html = publish_parts(rst, writer=get_writer_class("html")(), settings_overrides={"halt_level": 2})["html_body"]
    assert '<h1 class="title">Scaling study made_up_</h1>' in html
    assert html.count("<tr>") == 2 * (1 + len(made.STUDIES[name]().planned.points))


def test_figure_caption_template(tmp_path):
    (tmp_path / "speedup.rst").write_text("Speed-up.\n")
    params = SimpleNamespace(caption=tmp_path / "speedup.rst")
    template = jinja2.Template((REPORT / "figure.rst").read_text())
    assert template.render(snakemake=SimpleNamespace(params=params)).strip() == "Speed-up."


def test_headline_of_the_published_8_node_point():
    row = {
        "efficiency": 0.7433, "throughput_efficiency": 0.9557, "convergence_efficiency": 0.7778, "samples_ratio": 45 / 35,
        "convergence_efficiency_low": 0.7778, "convergence_efficiency_high": 0.7778,
        "inherent_ratio": 42.07 / 35, "avoidable_ratio": 45 / 42.07, "reference_nodes": 1,
    }  # fmt: skip
    assert wording.headline(row, unit="epochs") == (
        "efficiency 74.3 % = throughput 95.6 % × convergence 77.8 %; "
        "1.286× the epochs of 1 node = 1.202× inherent to the batch size (RCP) × 1.070× avoidable"
    )
    no_rcp = row | {"inherent_ratio": float("nan"), "avoidable_ratio": float("nan")}
    assert wording.headline(no_rcp, unit="epochs").endswith(
        "; 1.286× the epochs of 1 node; what of it is inherent is not known without RCPs at both batch sizes"
    )
    fewer = row | {"inherent_ratio": 1.3, "avoidable_ratio": 0.989}
    assert wording.headline(fewer, unit="epochs").endswith(
        " = 1.300× inherent to the batch size (RCP) × 0.989×, fewer epochs than by the RCPs"
    )
    unclear = row | {"convergence_efficiency_high": 1.1}
    short = "efficiency 74.3 % = throughput 95.6 % × convergence 77.8 %"
    remark = "; the convergence is not significantly different from that of 1 node"
    assert wording.headline(unclear, unit="epochs") == short + remark
    equal = unclear | {"convergence_efficiency": 1.0}
    assert wording.headline(equal, unit="epochs") == short.replace("77.8", "100.0")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.45438, 3, "0.454"),
        (62.949, 4, "62.95"),
        (106.54, 3, "107"),
        (2812544, 3, "2,810,000"),
        (9.9996, 3, "10.0"),
        (0, 3, "0.00"),
        (-3.7, 3, "-3.70"),
        (float("nan"), 3, "–"),
        (float("inf"), 3, "–"),
    ],
)
def test_significant_digits(value, digits, text):
    assert wording.significant(value, digits) == text


@pytest.mark.parametrize(("value", "text"), [(0.38123, "0.38"), (0.0004, "<0.001"), (0.9999, ">0.99"), (0.5, "0.5")])
def test_probabilities(value, text):
    assert wording.probability(value) == text


def test_adapter_writes_both_forms(tmp_path):
    study = made.long_curve()
    inputs = write_study(study, tmp_path)
    inputs.likeness = inputs.descriptions = []
    for kind in ("points", "scaling", "network"):
        tables.write_table(getattr(study, kind), tmp_path / f"{kind}.csv")
        setattr(inputs, kind, str(tmp_path / f"{kind}.csv"))
    output = SimpleNamespace(text=str(tmp_path / "summary.txt"), rst=str(tmp_path / "summary.rst"))
    run_adapter("summarize", input=inputs, output=output)
    assert Path(output.text).read_text() == text_of("long_curve")
    assert Path(output.rst).read_text() == rst_of("long_curve")


UNLIKE = [
    {"system": "emulated_cpu", "workload": "bert", "alarm": None, "findings": [
        {"severity": "note", "message": "global_batch_size is 32 at 1 node, 64 at 2 nodes"},
        {"severity": "warning", "message": "commit is a at 1 node, b at 2 nodes"}]},
    {"system": "emulated_cpu", "workload": "resnet", "alarm": {"message": "efficiency 150 %"}, "findings": []},
]  # fmt: skip


def test_points_that_are_not_alike_are_named_alarms_first():
    study = made.STUDIES["quickstart"]()
    text = summary.text_summary(study.points, study.scaling, study.planned, likeness=UNLIKE)
    alarm, difference = "ResNet-50 on emulated_cpu: ALARM, efficiency 150 %", "the points differ: commit is a at 1 node"
    assert text.index(alarm) < text.index(f"BERT on emulated_cpu: {difference}")
    assert "global_batch_size is" not in text
    rst = summary.rst_summary(study.points, study.scaling, study.planned, likeness=UNLIKE)
    assert "**Points of a curve that are not alike**" in rst
    assert "**Points of a curve that are not alike**" not in rst_of("quickstart")


def described(nodes: int, *, passed: bool | None = True, **finding: str) -> dict:
    official = {"passed": passed, "messages": ["Missing field cooling"] if passed is False else []}
    return {"system": "box", "nodes": nodes, "findings": [finding] if finding else [], "official": official}


DESCRIPTIONS = [
    described(1, severity="note", message="not known: cooling"),
    described(2, severity="warning", message="accelerator_memory_capacity is '40 GB', but …"),
    described(4, passed=False),
    described(8, passed=None),
]


def test_descriptions_that_are_contradicted_or_refused_are_named():
    study = made.STUDIES["quickstart"]()
    text = summary.text_summary(study.points, study.scaling, study.planned, descriptions=DESCRIPTIONS)
    lines = [line for line in text.splitlines() if line.startswith("description of")]
    assert lines == [
        "description of box, 2 nodes: accelerator_memory_capacity is '40 GB', but …",
        "description of box, 4 nodes: the official system_desc_checker refuses it: Missing field cooling",
        "description of box, 8 nodes: the official system_desc_checker gives no verdict: it gives no reason",
    ]
    rst = summary.rst_summary(study.points, study.scaling, study.planned, descriptions=DESCRIPTIONS)
    assert "**System descriptions with findings**" in rst
    assert "not known" not in rst
    assert "**System descriptions with findings**" not in rst_of("quickstart")
