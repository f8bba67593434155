"""A study's configuration: what it expands to, and that every problem is reported at once."""

from __future__ import annotations

import copy
import math
import re
from pathlib import Path

import pytest
import yaml
from mlscaling.spec import RunSpec
from mlscaling.study import StudyError, check_study, load_study, planned, run_seed, run_spec

ROOT = Path(__file__).resolve().parents[2]
CONFIG_DIR = ROOT / "config"
CURVE = {"workload": "resnet", "system": "emulated_cpu", "nodes": [1, 2], "weak": {"local_batch_size": 64}, "runs": 5}
STUDY = {"study": "unit", "round": "1.1.0", "scale": "tiny", "curves": [CURVE]}


def study_with(curve: dict | None = None, **keys: object) -> dict:
    """The valid study with some keys of it, or of its only curve, replaced; `...` removes a key."""
    study = copy.deepcopy(STUDY)
    for target, changes in ((study, keys), (study["curves"][0], curve or {})):
        for key, value in changes.items():
            if value is ...:
                del target[key]
            else:
                target[key] = value
    return study


def copy_of_config(target: Path) -> None:
    for folder in ("workloads", "systems", "rounds", "datasets"):
        (target / folder).mkdir()
        for source in (CONFIG_DIR / folder).glob("*.yaml"):
            (target / folder / source.name).write_bytes(source.read_bytes())


def errors_of(study: dict) -> list[str]:
    return [str(problem) for problem in check_study(study, config_dir=CONFIG_DIR, file="my.yaml")]


def test_valid_study_expands_to_points_in_order() -> None:
    study = load_study(STUDY, config_dir=CONFIG_DIR)
    assert [point.path for point in study.points] == ["emulated_cpu/resnet/n1", "emulated_cpu/resnet/n2"]
    assert [point.global_batch_size for point in study.points] == [64, 128]
    assert [point.local_batch_size for point in study.points] == [64, 64]
    assert [point.batch_policy for point in study.points] == ["weak", "weak"]
    assert study.points[0].required_runs == 5
    assert study.points[0].trimmed_runs == 1


@pytest.mark.parametrize(
    ("curve", "batch_sizes", "local"),
    [
        ({"weak": ..., "strong": {"global_batch_size": 128}}, [128, 128], [128, 64]),
        ({"weak": ..., "explicit": {"global_batch_sizes": [64, 128]}}, [64, 128], [64, 64]),
        ({"weak": {"local_batch_size": 32}, "gradient_accumulation_steps": 2}, [64, 128], [32, 32]),
    ],
)
def test_batch_policies(curve: dict, batch_sizes: list[int], local: list[int]) -> None:
    points = load_study(study_with(curve), config_dir=CONFIG_DIR).points
    assert [point.global_batch_size for point in points] == batch_sizes
    assert [point.local_batch_size for point in points] == local


@pytest.mark.parametrize(
    ("study", "expected"),
    [
        (study_with({"workload": "resnet50"}), "my.yaml: curves[0].workload = 'resnet50': there is no workload of that name; legal values: "),
        (study_with({"system": "laptop"}), "my.yaml: curves[0].system = 'laptop': there is no system of that name; legal values: "),
        (study_with(round="9.9"), "my.yaml: round = '9.9': there is no round of that name; legal values: 0.7.0, 1.0.0, 1.1.0"),
        (study_with({"nodes": [0]}), "my.yaml: curves[0].nodes[0] = 0: must be at least 1"),
        (study_with({"nodes": []}), "my.yaml: curves[0].nodes = []: needs at least 1 entry"),
        (study_with({"nodes": [1, 1]}), "my.yaml: curves[0].nodes = [1, 1]: has the same entry twice"),
        (study_with({"nodes": "1, 2"}), "my.yaml: curves[0].nodes = '1, 2': must be a list, in brackets: [1, 2]"),
        (study_with({"nodes": 2}), "my.yaml: curves[0].nodes = 2: must be a list, in brackets: [2]"),
        (study_with({"runs": math.inf}), "my.yaml: curves[0].runs = inf: must be a finite number"),
        (study_with(round=1.1), 'my.yaml: round = 1.1: must be text; YAML reads it as something else unless it stands in quotes: "1.1"'),
        (study_with({"system": {"name": "x"}}), "my.yaml: curves[0].system = {'name': 'x'}: must be text: "),
        (study_with({"nodes": [64]}), "my.yaml: curves[0].nodes[0] = 64: system emulated_cpu has max_nodes = 4"),
        (study_with({"strong": {"global_batch_size": 64}}), "my.yaml: curves[0]: needs exactly one of strong, weak, explicit, and has strong and weak"),
        (study_with({"weak": ...}), "my.yaml: curves[0]: needs exactly one of strong, weak, explicit, and has none of them"),
        (study_with({"weak": None}), "my.yaml: curves[0]: needs exactly one of strong, weak, explicit, and has none of them"),
        (study_with({"weak": ..., "strong": {"global_batch_size": 64}, "nodes": [3]}), "my.yaml: curves[0].nodes[0] = 3: global batch size 64 is not divisible by 3 ranks × 1 accumulation steps; nearest legal: 63 or 66"),
        (study_with({"weak": {"local_batch_size": 7}}), "global batch size 7 has no hyper-parameters in "),
        (study_with({"weak": ..., "explicit": {"global_batch_sizes": [64]}}), "my.yaml: curves[0].explicit.global_batch_sizes = [64]: needs one entry for each of the 2 node counts"),
        (study_with({"repeats": 3}), "my.yaml: curves[0].repeats = 3: is not a known key; legal keys: allocation, explicit, gradient_accumulation_steps, nodes, published, runs, strong, system, weak, workload"),
        (study_with(scal="tiny"), "my.yaml: scal = 'tiny': is not a known key; legal keys: accept_missing_runs, anonymize, compile, cuda_graphs, curves, "),
        (study_with({"runs": 10**9}), "my.yaml: curves[0].runs = 1000000000: must be at most 1000"),
        (study_with(compile="true"), "my.yaml: compile = 'true': must be true or false (on the command line, True or False)"),
        (study_with(study="datasets"), "my.yaml: study = 'datasets': must match "),
        (study_with({"runs": ...}), "my.yaml: curves[0]: misses the key runs"),
        (study_with(scale="huge"), "my.yaml: scale = 'huge': legal values: ['tiny', 'full']"),
        (study_with(plots=["speed_up"]), "my.yaml: plots[0] = 'speed_up': is not a figure; legal values: "),
        (study_with(study="../other"), "my.yaml: study = '../other': must match "),
        ({**STUDY, "curves": [CURVE, CURVE]}, "my.yaml: curves = 'emulated_cpu/resnet/n1': two curves have this point; "),
    ],
)  # fmt: skip
def test_each_problem_names_file_key_value_and_what_is_legal(study: dict, expected: str) -> None:
    assert any(expected in error for error in errors_of(study)), errors_of(study)


def test_all_problems_are_reported_at_once() -> None:
    study = study_with({"workload": "nothing", "system": "nowhere", "weak": ...}, round="0.1", plots=["pie"])
    errors = errors_of(study)
    for key in ("round", "plots[0]", "curves[0].workload", "curves[0].system", "curves[0]: needs exactly one"):
        assert sum(key in error for error in errors) == 1, (key, errors)
    with pytest.raises(StudyError, match="the study has 5 problems"):
        load_study(study, config_dir=CONFIG_DIR, file="my.yaml")


def test_what_breaks_the_schema_hides_nothing_else() -> None:
    curves = [{**CURVE, "nodes": 2}, {**CURVE, "workload": "nothing"}, {**CURVE, "system": "nowhere"}]
    errors = errors_of({**STUDY, "curves": curves, "plots": "pie", "scal": "tiny", "round": 1.1})
    for key in ("curves[0].nodes", "curves[1].workload", "curves[2].system", "plots = ", "scal = ", "round = "):
        assert sum(f"my.yaml: {key}" in error for error in errors) == 1, (key, errors)
    assert len(errors) == 6


def test_a_study_without_curves_or_a_scale_is_reported() -> None:
    for name in ("curves", "scale", "study", "round"):
        errors = errors_of({key: value for key, value in STUDY.items() if key != name})
        assert errors == [f"my.yaml: misses the key {name}"]


def test_too_few_runs_are_a_warning_and_labelled() -> None:
    study = load_study(study_with({"runs": 3}), config_dir=CONFIG_DIR, file="my.yaml")
    assert [problem.severity for problem in study.warnings] == ["warning"]
    assert "round 1.1.0 requires 5; points will be labelled incomplete" in str(study.warnings[0])


def test_omitted_and_null_keys_mean_the_same() -> None:
    omitted = load_study(STUDY, config_dir=CONFIG_DIR)
    null = load_study(study_with({"gradient_accumulation_steps": None}, data_root=None), config_dir=CONFIG_DIR)
    assert omitted == null
    assert omitted.data_root == "data"


def test_whole_numbers_written_with_a_point_are_whole_numbers() -> None:
    curve = {"nodes": [1.0, 2.0], "runs": 5.0, "weak": {"local_batch_size": 64.0}}
    with_points = load_study(study_with(curve), config_dir=CONFIG_DIR)
    assert (
        run_spec(with_points, with_points.points[0], run=0).to_json()
        == run_spec(
            load_study(STUDY, config_dir=CONFIG_DIR), load_study(STUDY, config_dir=CONFIG_DIR).points[0], run=0
        ).to_json()
    )


def test_a_run_that_is_not_planned_has_no_spec() -> None:
    study = load_study(STUDY, config_dir=CONFIG_DIR)
    with pytest.raises(ValueError, match=r"has no run 5: study unit plans 5, from 0"):
        run_spec(study, study.points[0], run=5)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("opt_base_learning_rate", "1e-1", "is text to YAML"),
        ("opt_momentum", float("nan"), "must be a finite number"),
        ("max_epochs", 0, "must be a whole number, at least 1"),
    ],
)
def test_odd_hyperparameters_are_reported_before_anything_runs(
    tmp_path: Path, name: str, value: object, message: str
) -> None:
    copy_of_config(tmp_path)
    path = tmp_path / "workloads" / "resnet.yaml"
    workload = yaml.safe_load(path.read_text())
    workload["scales"]["tiny"]["hyperparameters"][1][name] = value
    path.write_text(yaml.safe_dump(workload))
    errors = [str(problem) for problem in check_study(STUDY, config_dir=tmp_path)]
    of_record = re.compile(rf"hyperparameters\[(1|global_batch_size=64)\]\.{name}")
    assert any(of_record.search(error) and message in error for error in errors), errors


@pytest.mark.parametrize(
    ("keys", "name", "expected"),
    [
        (("model",), "widht", ["scales.tiny.model.widht = 0.5: is no size of the model; legal: ", "width"]),
        (("hyperparameters", 1), "opt_momentun", ["scales.tiny.hyperparameters[global_batch_size=64].opt_momentun = 0.5: is no hyper-parameter of the workload; legal: ", "opt_momentum, "]),
        (("hyperparameters", 1), "max_samples", ["hyperparameters[global_batch_size=64].max_samples", "max_epochs"]),
    ],
)  # fmt: skip
def test_misspelt_names_of_a_workload_are_found_before_anything_runs(tmp_path: Path, keys, name, expected) -> None:
    copy_of_config(tmp_path)
    path = tmp_path / "workloads" / "resnet.yaml"
    workload = yaml.safe_load(path.read_text())
    place = workload["scales"]["tiny"]
    for key in keys:
        place = place[key]
    place[name] = 1 if name.startswith("max_") else 0.5
    path.write_text(yaml.safe_dump(workload))
    (error,) = [str(p) for p in check_study(STUDY, config_dir=tmp_path) if p.severity == "error"]
    assert error.startswith(str(path))
    assert all(part in error for part in expected), error


def test_a_record_without_a_horizon_is_found_before_anything_runs(tmp_path: Path) -> None:
    copy_of_config(tmp_path)
    path = tmp_path / "workloads" / "resnet.yaml"
    workload = yaml.safe_load(path.read_text())
    del workload["scales"]["tiny"]["hyperparameters"][1]["max_epochs"]
    path.write_text(yaml.safe_dump(workload))
    errors = [str(p) for p in check_study(STUDY, config_dir=tmp_path) if p.severity == "error"]
    assert errors == [
        f"{path}: scales.tiny.hyperparameters[global_batch_size=64]: misses the key max_epochs, where a run gives up"
    ]


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ({}, "cuda_graphs needs a system of device cuda, this one is cpu"),
        ({"system": "r750xa_a100_pcie_80gb", "gradient_accumulation_steps": 2}, "cuda_graphs needs gradient_accumulation_steps 1, not 2"),
        ({"system": "r750xa_a100_pcie_80gb", "strong": {"global_batch_size": 64}, "weak": ...}, ""),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_had_are_found_before_anything_runs(curve: dict, message: str) -> None:
    found = [error for error in errors_of(study_with(curve, cuda_graphs=True)) if "cuda_graphs" in error]
    assert found == ([f"my.yaml: cuda_graphs = True: {message}"] if message else [])


def test_full_scale_takes_what_the_rounds_rcps_have() -> None:
    gpu = {"system": "r750xa_a100_pcie_80gb", "nodes": [1], "weak": ..., "strong": {"global_batch_size": 1632}}
    by_round = {
        name: load_study(study_with(gpu, scale="full", round=name), config_dir=CONFIG_DIR)
        for name in ("1.0.0", "1.1.0")
    }
    decays = {name: run_spec(study, study.points[0], run=0).hyperparameters for name, study in by_round.items()}
    assert decays["1.1.0"]["opt_learning_rate_decay_steps"] == 27476
    errors = errors_of(study_with({**gpu, "strong": {"global_batch_size": 1600}}, scale="full"))
    assert any("global batch size 1600 has no hyper-parameters" in e and "[1632, 3264, 4096, " in e for e in errors), (
        errors
    )
    errors = errors_of(study_with(gpu, scale="full", round="4.1.0"))
    assert any("round 4.1.0 has no benchmark resnet" in error for error in errors), errors


def test_seeds_differ_between_runs_points_and_studies_and_are_stable() -> None:
    study, other = load_study(STUDY, config_dir=CONFIG_DIR), load_study(study_with(study="b"), config_dir=CONFIG_DIR)
    seeds = [run_seed(point, run=run) for s in (study, other) for point in s.points for run in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 < seed < 2**31 for seed in seeds)
    assert run_seed(study.points[0], run=0) == 1560527655


def test_run_spec_survives_json_and_refuses_what_it_does_not_know() -> None:
    study = load_study(STUDY, config_dir=CONFIG_DIR)
    spec = run_spec(study, study.points[1], run=2)
    assert RunSpec.from_json(spec.to_json()) == spec
    assert spec.world_size == 2
    with pytest.raises(ValueError, match=r"unknown fields \['colour'\]"):
        RunSpec.from_json(spec.to_json().replace('{"accel', '{"colour":1,"accel'))
    with pytest.raises(ValueError, match="incomplete"):
        RunSpec.from_json("{}")


def test_run_spec_does_not_depend_on_what_does_not_change_the_measurement() -> None:
    """Else moving data, adding a node count or a run would re-run finished trainings."""
    study = load_study(STUDY, config_dir=CONFIG_DIR)
    more = load_study(
        study_with({"nodes": [1, 2, 4], "runs": 9}, data_root="/elsewhere", title="x"), config_dir=CONFIG_DIR
    )
    for point, again in zip(study.points, more.points, strict=False):
        assert run_spec(study, point, run=1) == run_spec(more, again, run=1)


def test_planned_has_a_seed_for_each_run() -> None:
    record = planned(load_study(STUDY, config_dir=CONFIG_DIR))["points"][1]
    assert record["nodes"] == 2
    assert len(record["trial_seeds"]) == record["num_runs"] == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "key 'a' is given twice"),
        ("- 1\n", "must be a mapping"),
        ("a: [1\n", "is not valid YAML"),
        (b"a: \xff\n", "is not UTF-8 text"),
    ],
)
def test_unreadable_yaml_is_a_problem_not_a_traceback(tmp_path: Path, text: str | bytes, message: str) -> None:
    from mlscaling.configuration import read_yaml

    path = tmp_path / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    _, problems = read_yaml(path)
    assert message in str(problems[0])
    assert str(path) in str(problems[0])


def test_broken_workload_file_is_reported_with_its_path(tmp_path: Path) -> None:
    copy_of_config(tmp_path)
    path = tmp_path / "workloads" / "resnet.yaml"
    workload = yaml.safe_load(path.read_text())
    workload["scales"]["tiny"]["dataset"] = "imagenette"
    path.write_text(yaml.safe_dump(workload))
    errors = [str(problem) for problem in check_study(STUDY, config_dir=tmp_path)]
    assert any(f"{path}: scales.tiny.dataset = 'imagenette': there is no dataset" in error for error in errors), errors
