"""Precision, fused optimisers, compilation and CUDA graphs, with the CPU in the place of a GPU."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
import torch
from mlscaling import acceleration, loaders, trainer
from mlscaling.acceleration import Precision
from mlscaling.distributed import Ranks
from mlscaling.execution_options import graph_problem
from mlscaling.process_settings import configure
from mlscaling.workloads import workload_by_name, workload_names
from mlscaling.workloads.base import Workload

ALONE = Ranks(rank=0, local_rank=0, world_size=1)
CPU = torch.device("cpu")


def training_of(spec) -> trainer.Training:
    return trainer.Training(spec, workload=workload_by_name(spec.workload, spec), place=ALONE, device=CPU)


def bert(articles: Path, **changes):
    return tiny_runs.run_spec("bert", data_dir=articles, **changes)


def stepped(training: trainer.Training, *, num_steps: int = 2) -> list[torch.Tensor]:
    requests = loaders.TrainRequests(training.spec, place=ALONE, num_steps=num_steps)
    batches = loaders.loader(training.workload.samples("train"), requests, num_workers=0, device=CPU)
    training.train(iter(batches), num_steps=num_steps)
    return [value.detach().clone() for value in training.model.parameters()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# --- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_lower_precision_rounds_the_passes_but_not_the_weights(articles: Path, name: str) -> None:
    exact = stepped(training_of(bert(articles)))
    rounded = stepped(training_of(bert(articles, options={"precision": name})))
    assert {value.dtype for value in rounded} == {torch.float32}
    assert not same(exact, rounded)
    assert all(torch.allclose(one, other, atol=0.05) for one, other in zip(exact, rounded, strict=True))


def test_a_step_whose_gradients_overflow_is_skipped_and_its_scale_halved() -> None:
    """Weights, optimiser and schedule stay; the next step is taken with the smaller scale."""
    precision = Precision({"precision": "float16"}, device=CPU)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    taken = []
    for gradient in (float("inf"), 0.5):
        weight.grad = None
        precision.backward((weight * gradient).sum())
        taken.append((precision.step(optimizer), weight.item(), precision.loss_scale))
    half = acceleration.INITIAL_LOSS_SCALE / 2
    assert taken == [(False, 1.0, half), (True, 0.5, half)]


def test_skipped_steps_are_counted_and_do_not_move_the_schedule(articles: Path, monkeypatch) -> None:
    monkeypatch.setattr(acceleration, "INITIAL_LOSS_SCALE", 2.0**26)
    training = training_of(bert(articles, options={"precision": "float16"}))
    start = [value.detach().clone() for value in training.model.parameters()]
    assert same(start, stepped(training, num_steps=1))
    assert (training.skipped_steps, training.schedule.last_epoch) == (1, 0)
    stepped(training, num_steps=11)
    assert training.schedule.last_epoch + training.skipped_steps == 12
    assert training.schedule.last_epoch > 0
    assert trainer.tracked(training, throughput=1.0) == {"throughput": 1.0, "skipped_steps": training.skipped_steps}
    assert trainer.tracked(training_of(bert(articles)), throughput=1.0) == {"throughput": 1.0}


# --- optimisers ------------------------------------------------------------------------------------------------------


def test_fused_optimiser_is_the_same_with_its_groups() -> None:
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    groups = [{"params": [first], "weight_decay": 0.1}, {"params": [second], "weight_decay": 0.0, "lr": 2.0}]
    plain = torch.optim.SGD(groups, lr=1.0, momentum=0.9, foreach=True)
    fused = acceleration.fused(plain)
    assert type(fused) is torch.optim.SGD
    for one, other in zip(plain.param_groups, fused.param_groups, strict=True):
        assert (other["fused"], other["foreach"]) == (True, None)
        assert {**one, "fused": None, "foreach": None} == {**other, "fused": None, "foreach": None}
        assert one["params"][0] is other["params"][0]


def test_optimisers_without_a_fused_step_stay_as_they_are(articles: Path) -> None:
    found = training_of(bert(articles)).optimizer
    assert acceleration.fused(found) is found


def test_a_gpu_gets_the_fused_optimiser_and_the_cpu_does_not(monkeypatch) -> None:
    """`meta` stands for the GPU: a device that is no CPU."""
    asked = []
    monkeypatch.setattr(acceleration, "fused", lambda optimizer: asked.append(type(optimizer)) or optimizer)
    spec = tiny_runs.run_spec("resnet", global_batch_size=64)
    training_of(spec)
    assert asked == []
    monkeypatch.setattr(trainer.Training, "_wrapped", lambda self: self.model)
    device = type("Device", (), {"type": "cuda"})()
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *arguments, **options: self)
    trainer.Training(spec, workload=workload_by_name("resnet", spec), place=ALONE, device=device)
    assert asked == [torch.optim.SGD]


# --- memory layout and process ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_layout_of_resnet_is_an_option_of_its_model(channels_last: bool) -> None:
    spec = tiny_runs.run_spec("resnet", model={"channels_last": channels_last})
    found = workload_by_name("resnet", spec)
    model, seen = found.model(), []
    model.layer1[0].conv2.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    found.loss(model, found.synthetic_batch(2))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert model.layer1[0].conv2.weight.is_contiguous(memory_format=layout)
    assert seen[0].is_contiguous(memory_format=layout)


@pytest.mark.parametrize(
    ("device", "static_shapes", "searches"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_cudnn_searches_for_algorithms_only_where_shapes_stay(monkeypatch, device, static_shapes, searches) -> None:
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *arguments, **options: None)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda name: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not searches)
    configure(tiny_runs.run_spec("bert"), device=torch.device(device), static_shapes=static_shapes)
    assert torch.backends.cudnn.benchmark is searches


# --- before the run starts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workload_names())
def test_a_synthetic_batch_trains_like_a_real_one(name: str) -> None:
    found = workload_by_name(name, tiny_runs.run_spec(name))
    batch = found.synthetic_batch(2)
    if batch is None:
        assert not found.static_shapes, "batches of one shape can be made up"
        return
    model = found.model().train()
    found.loss(model, batch).backward()
    assert all(torch.isfinite(value.grad).all() for value in model.parameters() if value.grad is not None)


@pytest.mark.parametrize("workload", ["resnet", "bert"])
def test_warming_up_leaves_no_trace(workload: str, request) -> None:
    data = request.getfixturevalue("digits" if workload == "resnet" else "articles")
    spec = tiny_runs.run_spec(workload, data_dir=data, model={"dropout": 0.1} if workload == "bert" else {})
    cold, warm = training_of(spec), training_of(spec)
    torch.manual_seed(1)
    assert warm.warm_up()
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3)), "random numbers go on as if nothing had happened"
    for one, other in zip(cold.model.state_dict().values(), warm.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert all(value.grad is None for value in warm.model.parameters())


def test_without_a_synthetic_batch_nothing_is_warmed_up(articles: Path, monkeypatch) -> None:
    monkeypatch.setattr("mlscaling.workloads.bert.BertWorkload.synthetic_batch", Workload.synthetic_batch)
    assert training_of(bert(articles)).warm_up() is False


def test_compiled_models_are_compiled_before_run_start_and_train_the_same(
    articles: Path, tmp_path, monkeypatch
) -> None:
    compiles = []

    def backend(module, inputs):
        compiles.append((tmp_path / "log.txt").read_text().count("run_start") if (tmp_path / "log.txt").exists() else 0)
        return module.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    spec = bert(articles, target=2.0, evaluate_every_samples=64, hyperparameters={"max_samples": 128})
    spec = dataclasses.replace(spec, options={"compile": True}, gradient_accumulation_steps=2, local_batch_size=8)
    trainer.train(spec, log_file=tmp_path / "log.txt")
    assert compiles, "nothing was compiled"
    assert set(compiles) == {0}, "some of it was compiled in the timed run"
    torch._dynamo.reset()
    trainer.train(dataclasses.replace(spec, options={}), log_file=tmp_path / "plain.txt")
    one, other = (tiny_runs.series(tiny_runs.events(tmp_path / f"{name}.txt")) for name in ("log", "plain"))
    assert one == other


# --- CUDA graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {}, "device": "cpu"}, ""),
        ({}, ""),
        ({"device": "cpu"}, "cuda_graphs needs a system of device cuda, this one is cpu"),
        ({"gradient_accumulation_steps": 4}, "cuda_graphs needs gradient_accumulation_steps 1, not 4"),
        (
            {"static_shapes": False},
            "cuda_graphs needs batches of one shape, and those of workload w differ (static_shapes)",
        ),
    ],
)
def test_what_graphs_need(changes: dict, message: str) -> None:
    asked = {
        "options": {"cuda_graphs": True},
        "device": "cuda",
        "gradient_accumulation_steps": 1,
        "workload": "w",
        "static_shapes": True,
    }
    assert graph_problem(**asked | changes) == message


def test_a_run_that_cannot_have_graphs_is_a_config_error(articles: Path) -> None:
    with pytest.raises(ValueError, match="mlscaling config error: cuda_graphs needs a system of device cuda"):
        training_of(bert(articles, options={"cuda_graphs": True}))


def test_graphs_without_a_synthetic_batch_are_a_config_error(articles: Path, monkeypatch) -> None:
    monkeypatch.setattr("mlscaling.workloads.bert.BertWorkload.synthetic_batch", Workload.synthetic_batch)
    with pytest.raises(
        ValueError, match="mlscaling config error: cuda_graphs needs workload bert to make a synthetic batch"
    ):
        training_of(bert(articles, options={"cuda_graphs": True}, device="cuda"))


@pytest.mark.parametrize(("workload", "num_tensors"), [("resnet", 1), ("bert", 6)])
def test_graphs_are_captured_from_what_the_loss_gives_the_model(
    workload: str, num_tensors: int, request, monkeypatch
) -> None:
    """A stand-in runs the passes as PyTorch's capture does: gradients, statistics and random numbers move meanwhile."""
    captured = []

    def capture(model, inputs):
        leaves = torch.utils._pytree.arg_tree_leaves(*inputs)
        assert not (torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled())
        assert not model._forward_pre_hooks
        for _ in range(3):
            outputs = torch.utils._pytree.tree_leaves(model(*inputs))
            torch.autograd.grad([value.sum() for value in outputs], list(model.parameters()))
        captured.append(leaves)
        return model

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    data = request.getfixturevalue("digits" if workload == "resnet" else "articles")
    options = {"precision": "bfloat16"}
    plain = tiny_runs.run_spec(workload, data_dir=data, options=options)
    with_graphs = dataclasses.replace(plain, device="cuda", options={**options, "cuda_graphs": True})
    expected, found = stepped(training_of(plain)), stepped(training_of(with_graphs))
    assert len(captured) == 1
    assert len(captured[0]) == num_tensors
    assert {len(value) for value in captured[0]} == {plain.local_batch_size}
    assert same(expected, found)


def test_with_compile_its_own_graphs_are_used(articles: Path, monkeypatch) -> None:
    modes = []
    monkeypatch.setattr(torch, "compile", lambda model, mode: modes.append(mode) or model)
    training_of(bert(articles, device="cuda", options={"compile": True, "cuda_graphs": True}))
    assert modes == ["reduce-overhead"]


# --- two ranks -------------------------------------------------------------------------------------------------------

TWO_RANKS = """
import functools, hashlib, json, sys
from pathlib import Path
import torch
from mlscaling import acceleration, distributed, trainer
from mlscaling.spec import RunSpec
from mlscaling.workloads import workload_by_name
acceleration.INITIAL_LOSS_SCALE = 2.0**20
torch.compile = functools.partial(torch.compile, backend="eager")
place, device = distributed.ranks(world_size=2), torch.device("cpu")
distributed.join(place, device=device)
for file in sys.argv[1:]:
    spec = RunSpec.from_file(Path(file))
    training = trainer.Training(spec, workload=workload_by_name(spec.workload, spec), place=place, device=device)
    if spec.options.get("compile"):
        assert training.warm_up()
    batches, _ = trainer.loaders(training, place=place, num_steps=8)
    training.train(batches, num_steps=8)
    weights = b"".join(value.detach().numpy().tobytes() for value in training.model.parameters())
    found = [training.precision.loss_scale, training.skipped_steps, training.schedule.last_epoch]
    print(json.dumps([hashlib.sha256(weights).hexdigest(), *found]), flush=True)
del training, batches
distributed.leave()
distributed.exit_process(0)
"""


def two_ranks(specs, folder: Path) -> list[list[list]]:
    """By rank, for each spec: digest of the weights, loss scale, skipped and taken steps."""
    files = [folder / f"{number}.json" for number in range(len(specs))]
    for file, spec in zip(files, specs, strict=True):
        file.write_text(spec.to_json())
    port = str(tiny_runs.free_port())
    common = {"PYTHONPATH": str(tiny_runs.SCRIPTS), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_RANKS, *map(str, files)],
            env={**common, **tiny_runs.rank_variables(specs[0], rank=rank, port=port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    return [[json.loads(line) for line in rank.communicate(timeout=300)[0].splitlines()] for rank in ranks]


@pytest.mark.training
def test_ranks_agree_in_float16_and_when_compiled(articles: Path, tmp_path: Path) -> None:
    """They skip the same steps; the model is wrapped for DDP, then compiled, and unsynchronised passes stay so."""
    plain = bert(articles, nodes=2, gradient_accumulation_steps=2)
    with_options = [
        dataclasses.replace(plain, options=options) for options in ({"precision": "float16"}, {"compile": True})
    ]
    first, second = two_ranks([*with_options, plain], tmp_path)
    assert first == second
    (_, scale, skipped, taken), compiled, expected = first
    assert 0 < skipped < 8
    assert (taken, scale) == (8 - skipped, 2.0 ** (20 - skipped))
    assert compiled == expected
