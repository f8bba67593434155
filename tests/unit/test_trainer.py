"""The training loop: its steps, its samples, its log, and that equal runs are equal."""

from __future__ import annotations

import collections
import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch
from mlscaling import distributed, loaders, stopping, trainer
from mlscaling.distributed import Ranks
from mlscaling.workloads import workload_by_name

ALONE = Ranks(rank=0, local_rank=0, world_size=1)


def small(workload: str, data_dir: Path, **changes):
    """A run of two short evaluations that never reaches its target."""
    horizon = {"max_epochs": 2} if workload == "resnet" else {"max_samples": 256}
    extra = {} if workload == "resnet" else {"evaluate_every_samples": 128}
    hyperparameters = {**horizon, **changes.pop("hyperparameters", {})}
    return tiny_runs.run_spec(
        workload, data_dir=data_dir, target=2.0, hyperparameters=hyperparameters, **{**extra, **changes}
    )


FEW = {"train_samples": 128, "eval_samples": 33, "evaluate_every_samples": 128}


# --- ranks -----------------------------------------------------------------------------------------------------------

TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
SLURM = {"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environment", "world_size", "expected"),
    [
        (TORCHRUN, 4, (3, 1, 4)),
        (SLURM, 4, (2, 0, 4)),
        (TORCHRUN | SLURM, 4, (3, 1, 4)),
        ({}, 1, (0, 0, 1)),
        # A batch script is no step: one rank beside its allocation's four tasks is alone.
        ({name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}, 1, (0, 0, 1)),
    ],
)
def test_ranks(environment, world_size: int, expected) -> None:
    found = distributed.ranks(world_size=world_size, environment=environment)
    assert (found.rank, found.local_rank, found.world_size) == expected


@pytest.mark.parametrize(
    ("environment", "world_size", "message"),
    [
        (TORCHRUN, 2, "WORLD_SIZE=4, but the run has 2 ranks"),
        (SLURM, 1, "SLURM_NTASKS=4, but the run has 1 ranks"),
        ({}, 2, "the run has 2 ranks, but neither RANK nor SLURM_PROCID"),
        ({"RANK": "0"}, 1, "RANK is set, so LOCAL_RANK, WORLD_SIZE must be set too"),
    ],
)
def test_ranks_that_contradict_the_run(environment, world_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed.ranks(world_size=world_size, environment=environment)


@pytest.mark.parametrize(
    ("visible", "local_rank", "expected"), [(4, 3, "cuda:3"), (1, 3, "cuda:0"), (1, 0, "cuda:0"), (2, 2, None)]
)
def test_gpu_is_chosen_by_local_rank(monkeypatch, visible: int, local_rank: int, expected: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    if expected is None:
        with pytest.raises(ValueError, match="local rank 2 has no GPU of its own: 2 visible"):
            distributed.device_of("cuda", local_rank=local_rank)
    else:
        assert str(distributed.device_of("cuda", local_rank=local_rank)) == expected


def test_unknown_device_and_absent_gpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="legal: cpu, cuda"):
        distributed.device_of("gpu", local_rank=0)
    with pytest.raises(ValueError, match="sees no GPU"):
        distributed.device_of("cuda", local_rank=0)


# --- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Twenty-four steps an epoch, an evaluation after each.
        ({"global_batch_size": 64}, {"num_steps": 24 * 3, "nums": [1], "units": 1, "samples": 1536}),
        # Every second epoch, three epochs at most: one block.
        ({"evaluate_every_samples": 3072}, {"num_steps": 2 * 24, "nums": [1, 2], "units": 2, "samples": 3072}),
        # The batch does not divide the epoch: one more, filled step.
        (
            {"train_samples": 1500, "evaluate_every_samples": 1500},
            {"num_steps": 72, "nums": [1], "units": 1, "samples": 1500},
        ),
        # Counted in samples, rounded up to whole steps.
        (
            {"convergence_unit": "samples", "evaluate_every_samples": 100, "hyperparameters": {"max_samples": 640}},
            {"num_steps": 10, "nums": [0], "units": 128, "samples": 128},
        ),
    ],
)
def test_plan(changes, expected) -> None:
    defaults = {"global_batch_size": 64, "hyperparameters": {"max_epochs": 3}}
    steps = stopping.plan(tiny_runs.run_spec("resnet", **{**defaults, **changes}))
    found = {
        "num_steps": steps.num_steps,
        "nums": steps.epoch_nums(0),
        "units": steps.trained_units(0),
        "samples": steps.trained_samples(0),
    }
    assert found == expected
    assert steps.epoch_nums(2)[0] - expected["nums"][0] == 2 * expected["units"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local_batch_size": 60}, "global_batch_size 64 is not local_batch_size 60 × 1 ranks"),
        ({"evaluate_every_samples": 1000}, "evaluate_every_samples 1000 is no multiple of train_samples 1536"),
        (
            {"hyperparameters": {}},
            "global_batch_size 64: hyper-parameter 'max_epochs', where the run gives up, is missing",
        ),
    ],
)
def test_specs_that_cannot_be_trained(changes, message: str) -> None:
    spec = dataclasses.replace(tiny_runs.run_spec("resnet", global_batch_size=64), **changes)
    with pytest.raises(ValueError, match=message):
        stopping.plan(spec)


@pytest.mark.parametrize(
    ("mode", "quality", "expected"),
    [
        ("max", 0.97, True),
        ("max", 0.9699, False),
        ("min", 0.97, True),
        ("min", 0.98, False),
        ("max", float("nan"), False),
    ],
)
def test_reached(mode: str, quality: float, expected: bool) -> None:
    spec = tiny_runs.run_spec("resnet", target=0.97, quality_mode=mode)
    assert stopping.reached(spec, quality) is expected


# --- samples ---------------------------------------------------------------------------------------------------------


def requested(spec, rank: int, *, num_steps: int):
    place = Ranks(rank=rank, local_rank=rank, world_size=spec.world_size)
    return list(loaders.TrainRequests(spec, place=place, num_steps=num_steps))


@pytest.mark.parametrize(("nodes", "steps"), [(1, 1), (2, 1), (4, 1), (2, 2), (1, 4)])
def test_each_sample_is_trained_once_an_epoch(nodes: int, steps: int) -> None:
    spec = tiny_runs.run_spec("resnet", global_batch_size=64, nodes=nodes, gradient_accumulation_steps=steps)
    parts = [requested(spec, rank, num_steps=48) for rank in range(nodes)]
    assert {len(part.indices) for rank in parts for part in rank} == {64 // (nodes * steps)}
    for epoch in (0, 1):
        used = np.concatenate([part.indices for rank in parts for part in rank if part.epoch == epoch])
        assert sorted(used.tolist()) == list(range(1536))
    first, second = (np.concatenate([part.indices for part in parts[0] if part.epoch == epoch]) for epoch in (0, 1))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_first_step_holds_the_same_samples_on_any_number_of_ranks(nodes: int) -> None:
    spec = tiny_runs.run_spec("resnet", global_batch_size=64, nodes=nodes)
    used = np.concatenate([requested(spec, rank, num_steps=1)[0].indices for rank in range(nodes)])
    assert used.tolist() == loaders.epoch_order(spec, epoch=0)[:64].tolist()


def test_the_last_step_of_an_uneven_epoch_is_filled_from_its_start() -> None:
    spec = tiny_runs.run_spec("resnet", global_batch_size=64, train_samples=150, nodes=2)
    parts = [requested(spec, rank, num_steps=3) for rank in range(2)]
    order = np.concatenate([parts[rank][step].indices for step in range(3) for rank in range(2)])
    assert len(order) == 192
    assert sorted(order[:150].tolist()) == list(range(150))
    assert order[150:].tolist() == order[:42].tolist()


@pytest.mark.parametrize(("world_size", "num_samples"), [(1, 261), (2, 261), (4, 261), (4, 3)])
def test_each_sample_is_evaluated_exactly_once(world_size: int, num_samples: int) -> None:
    shares = [
        loaders.EvalRequests(
            num_samples=num_samples, batch_size=32, place=Ranks(rank=rank, local_rank=0, world_size=world_size)
        )
        for rank in range(world_size)
    ]
    used = [int(index) for share in shares for part in share for index in part.indices]
    assert sorted(used) == list(range(num_samples))


def test_workers_bring_the_same_batches_in_the_same_order(few_digits: Path) -> None:
    spec = small("resnet", few_digits, **FEW)
    samples = workload_by_name("resnet", spec).samples("train")
    requests = loaders.TrainRequests(spec, place=ALONE, num_steps=4)
    here, elsewhere = (
        [batch[0] for batch in loaders.loader(samples, requests, num_workers=number, device=torch.device("cpu"))]
        for number in (0, 2)
    )
    assert len(here) == len(elsewhere) == 4
    assert all(torch.equal(one, other) for one, other in zip(here, elsewhere, strict=True))


# --- gradients -------------------------------------------------------------------------------------------------------


def stepped(spec, *, num_steps: int = 2) -> list[torch.Tensor]:
    """Weights after some steps."""
    workload = workload_by_name(spec.workload, spec)
    training = trainer.Training(spec, workload=workload, place=ALONE, device=torch.device("cpu"))
    requests = loaders.TrainRequests(spec, place=ALONE, num_steps=num_steps)
    batches = loaders.loader(workload.samples("train"), requests, num_workers=0, device=torch.device("cpu"))
    training.train(iter(batches), num_steps=num_steps)
    return [value.detach() for value in training.model.parameters()]


def test_accumulated_gradients_are_those_of_the_whole_batch(articles: Path) -> None:
    """Without masking, whose mean depends on how many tokens a part masks: next-sentence loss alone would be exact."""
    spec = small("bert", articles)
    whole, parts = (
        stepped(dataclasses.replace(spec, gradient_accumulation_steps=n, local_batch_size=spec.global_batch_size // n))
        for n in (1, 4)
    )
    distance = sum(float((one - other).norm()) for one, other in zip(whole, parts, strict=True))
    moved = sum(float((one - other).norm()) for one, other in zip(whole, stepped(spec, num_steps=4), strict=True))
    assert distance < 0.1 * moved


def test_compile_option_compiles_the_stepped_model(articles: Path, monkeypatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model, mode: compiled.append(mode) or model)
    stepped(small("bert", articles, options={"compile": True}), num_steps=1)
    assert compiled == [None]


def test_unknown_precision_is_refused(articles: Path) -> None:
    with pytest.raises(ValueError, match="option precision 'float8' is unknown; legal: float32, bfloat16, float16"):
        stepped(small("bert", articles, options={"precision": "float8"}))


# --- runs ------------------------------------------------------------------------------------------------------------


def test_an_aborted_run_is_valid_data_in_the_order_of_the_rules(few_digits: Path, tmp_path: Path, capsys) -> None:
    spec = small("resnet", few_digits, **FEW)
    assert trainer.train(spec, log_file=tmp_path / "log.txt") == "aborted"
    found = tiny_runs.events(tmp_path / "log.txt")
    keys = [event["key"] for event in found if event["key"] != "weights_initialization"]
    block = ["block_start", "epoch_start", "epoch_stop", "block_stop"]
    block += ["eval_start", "eval_accuracy", "eval_stop", "tracked_stats"]
    assert keys[:5] == [f"submission_{key}" for key in ("benchmark", "division", "org", "platform", "status")]
    assert keys[5:7] == ["cache_clear", "init_start"]
    start = keys.index("run_start")
    assert keys[start - 1] == "init_stop"
    assert keys[start:] == ["run_start", *block, *block, "run_stop"]
    assert found[-1]["metadata"]["status"] == "aborted"
    values = {event["key"]: event["value"] for event in found}
    assert {name: values[name] for name in ("seed", "global_batch_size", "train_samples", "eval_samples")} == {
        "seed": spec.seed,
        "global_batch_size": spec.global_batch_size,
        "train_samples": 128,
        "eval_samples": 33,
    }
    assert values["cache_clear"] is False
    assert values["tracked_stats"]["throughput"] > 0
    assert [round(quality * 33, 9) % 1 for _, quality in tiny_runs.series(found)] == [0, 0], "counted over 33 samples"
    assert len(capsys.readouterr().out.splitlines()) == 2, "one line for each evaluation"


@pytest.mark.parametrize("scale", [1, 2])
def test_bert_counts_samples(articles: Path, tmp_path: Path, scale: int) -> None:
    spec = small("bert", articles, evaluate_every_samples=128 * scale, hyperparameters={"max_samples": 256 * scale})
    trainer.train(spec, log_file=tmp_path / "log.txt")
    found = tiny_runs.events(tmp_path / "log.txt")
    evaluations = [event["metadata"] for event in found if event["key"] == "eval_accuracy"]
    assert [(row["epoch_num"], row["samples_count"]) for row in evaluations] == [
        (n, n) for n in (128 * scale, 256 * scale)
    ]
    blocks = [event["metadata"] for event in found if event["key"] == "block_start"]
    assert [(row["first_epoch_num"], row["epoch_count"]) for row in blocks] == [
        (0, 128 * scale),
        (128 * scale, 128 * scale),
    ]


def test_the_run_stops_at_the_first_evaluation_that_reaches_the_target(few_digits: Path, tmp_path: Path) -> None:
    spec = dataclasses.replace(small("resnet", few_digits, **FEW), target=0.0)
    assert trainer.train(spec, log_file=tmp_path / "log.txt") == "success"
    assert len(tiny_runs.series(tiny_runs.events(tmp_path / "log.txt"))) == 1


@pytest.mark.parametrize("workload", ["resnet", "bert"])
def test_the_official_checker_accepts_the_log(workload: str, request, few_digits: Path, tmp_path: Path) -> None:
    data = few_digits if workload == "resnet" else request.getfixturevalue("articles")
    spec = small(workload, data, **(FEW if workload == "resnet" else {}))
    trainer.train(spec, log_file=tmp_path / "log.txt")
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "1.1.0"]
    command += ["--werror", "--log_output", "checker.log", "log.txt"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "SUCCESS" in result.stderr


def test_no_data_is_touched_before_run_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/train.txt"):
        trainer.train(small("resnet", tmp_path / "nowhere"), log_file=tmp_path / "log.txt")
    assert tiny_runs.events(tmp_path / "log.txt")[-1]["key"] == "run_start"


@pytest.mark.parametrize(("split", "key"), [("train", "train_samples"), ("eval", "eval_samples")])
def test_data_of_another_size_is_refused(few_digits: Path, tmp_path: Path, split: str, key: str) -> None:
    changes = {**FEW, key: FEW[key] - 1, **({"evaluate_every_samples": 127} if split == "train" else {})}
    with pytest.raises(ValueError, match=f"split '{split}' holds {FEW[key]} samples, the run has {key} {FEW[key] - 1}"):
        trainer.train(small("resnet", few_digits, **changes), log_file=tmp_path / "log.txt")


@pytest.mark.parametrize("workload", ["resnet", "bert"])
def test_equal_runs_evaluate_alike_and_other_seeds_do_not(
    workload: str, request, few_digits: Path, tmp_path: Path
) -> None:
    data = few_digits if workload == "resnet" else request.getfixturevalue("articles")
    spec = small(workload, data, **(FEW if workload == "resnet" else {}))
    found = []
    for number, seed in enumerate((1, 1, 2)):
        log = tmp_path / f"{number}.txt"
        trainer.train(dataclasses.replace(spec, seed=seed), log_file=log)
        found.append(tiny_runs.series(tiny_runs.events(log)))
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.training
def test_ranks_evaluate_alike_however_they_are_spread_over_nodes(few_digits: Path, tmp_path: Path) -> None:
    spec = small("resnet", few_digits, global_batch_size=64, nodes=2, **FEW)
    together = dataclasses.replace(spec, nodes=1, accelerators_per_node=2)
    runs = [tiny_runs.trained(one, tmp_path / f"{n}.txt") for n, one in enumerate((spec, together))]
    first, other = (tiny_runs.series(run) for run in runs)
    assert first == other
    assert {round(quality * 33, 9) % 1 for _, quality in first} == {0}, "counted over 33 samples on two ranks"
    counted = collections.Counter(event["key"] for event in runs[0])
    assert counted["run_start"] == counted["run_stop"] == 1, "only the first rank writes"


@pytest.mark.training
def test_ranks_and_passes_are_interchangeable(articles: Path, tmp_path: Path) -> None:
    """The same four parts of each batch, as four passes of one rank or two passes of two, but for rounding."""
    runs = []
    for nodes, steps in ((1, 4), (2, 2)):
        spec = small("bert", articles, global_batch_size=32, nodes=nodes, gradient_accumulation_steps=steps)
        spec = dataclasses.replace(
            spec, evaluate_every_samples=1024, hyperparameters={**spec.hyperparameters, "max_samples": 2048}
        )
        runs.append(tiny_runs.series(tiny_runs.trained(spec, tmp_path / f"{nodes}.txt")))
    alone, together = runs
    assert [samples for samples, _ in alone] == [samples for samples, _ in together] == [1024, 2048]
    assert [quality for _, quality in together] == pytest.approx([quality for _, quality in alone], abs=0.01)


@pytest.mark.training
@pytest.mark.parametrize("name", ["resnet", "bert"])
def test_target_is_reached(name: str, digits: Path, articles: Path, tmp_path: Path) -> None:
    size = {"resnet": 64, "bert": 32}[name]
    spec = tiny_runs.run_spec(name, data_dir=digits if name == "resnet" else articles, global_batch_size=size)
    assert trainer.train(spec, log_file=tmp_path / "log.txt") == "success"
    qualities = [quality for _, quality in tiny_runs.series(tiny_runs.events(tmp_path / "log.txt"))]
    assert qualities[-1] >= spec.target > max(qualities[:-1])
