"""Samples per second of the trainer ÷ those of a bare PyTorch loop over the same model, loader and optimiser.

Both train in one process on one core, in turns of an epoch each, so that whatever else the host does hits both alike;
the ratio is that of the medians. The goal is at least 0.98.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import tiny_training

tiny_training.pin(0)

import torch  # noqa: E402
from mlscaling import stopping, trainer  # noqa: E402
from mlscaling.distributed import Ranks  # noqa: E402
from mlscaling.mlperf.log import RunLog  # noqa: E402
from mlscaling.workloads import workload_by_name  # noqa: E402

CPU = torch.device("cpu")
PLACE = Ranks(rank=0, local_rank=0, world_size=1)


def prepared(spec: Any) -> tuple[trainer.Training, Iterator[Any]]:
    """A training at its beginning and all its batches."""
    training = trainer.Training(spec, workload=workload_by_name(spec.workload, spec), place=PLACE, device=CPU)
    return training, trainer.loaders(training, place=PLACE, num_steps=stopping.plan(spec).num_steps)[0]


def trainer_epochs(spec: Any, log: RunLog) -> Callable[[int], None]:
    """An epoch as the trainer makes it, log lines included."""
    training, batches = prepared(spec)
    steps = stopping.plan(spec)
    return lambda number: _ignore(trainer.train_block(training, batches, steps, block=number, log=log))


def bare_epochs(spec: Any) -> Callable[[int], None]:
    """An epoch of the shortest loop that trains the same."""
    training, batches = prepared(spec)
    model, optimizer, loss = training.model, training.optimizer, training.workload.loss
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, training.workload.schedule())
    num_steps = stopping.plan(spec).steps_per_epoch

    def epoch(_: int) -> None:
        model.train()
        for _ in range(num_steps):
            optimizer.zero_grad()
            loss(model, next(batches)).backward()
            optimizer.step()
            schedule.step()

    return epoch


def _ignore(_: object) -> None:
    return None


def main() -> None:
    """Print seconds per epoch and the ratio."""
    parser = tiny_training.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=12, help="epochs of each loop; the first is not counted")
    options = parser.parse_args()
    spec = tiny_training.endless(options.workload, options.data_root, epochs=options.rounds)
    trainer.configure(spec, device=CPU)
    log = RunLog(options.data_root / "trainer_overhead.txt")
    loops = {"trainer": trainer_epochs(spec, log), "bare loop": bare_epochs(spec)}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(options.rounds):
        for name in list(loops) if number % 2 else list(loops)[::-1]:
            begin = time.perf_counter()
            loops[name](number)
            seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for name, value in medians.items():
        print(f"{options.workload}, {name}: {spec.train_samples / value:.0f} samples/s")
    ratios = [bare / own for own, bare in zip(seconds["trainer"][1:], seconds["bare loop"][1:], strict=True)]
    print(f"trainer ÷ bare loop: {medians['bare loop'] / medians['trainer']:.3f} of the medians", end="")
    print(f", {statistics.median(ratios):.3f} median of the rounds' ratios (goal ≥ 0.98)")


if __name__ == "__main__":
    main()
