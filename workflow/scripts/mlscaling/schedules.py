"""Learning-rate schedules of MLPerf's references: zero-based step → factor on the base learning rate.

The references count steps from one, so the first step trains with one step's worth of warm-up, not with zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def warmup_then_polynomial(
    *, warmup_steps: int, decay_steps: int, power: float, end_factor: float
) -> Callable[[int], float]:
    """Linear warm-up, then polynomial decay that starts after it (MLPerf ResNet, `PolynomialDecayWithWarmup`).

    `decay_steps` counts from the end of the warm-up, as `opt_learning_rate_decay_steps` of the round's RCPs does.
    """

    def factor(step: int) -> float:
        number = step + 1
        if number <= warmup_steps:
            return number / warmup_steps
        left = 1 - min(1.0, (number - warmup_steps) / decay_steps)
        return float(end_factor + (1 - end_factor) * left**power)

    return factor


def warmup_then_falls(
    *, warmup_steps: float, warmup_slope: float, fall_steps: Sequence[float], fall_factor: float
) -> Callable[[int], float]:
    """Linear warm-up, then a constant rate that falls after some steps (MLPerf SSD and Mask R-CNN).

    `warmup_slope` is what the factor gains in each of `warmup_steps`; it begins at 0 where they would begin lower.
    """

    def factor(step: int) -> float:
        number = step + 1
        warmed = 1 - max(0.0, warmup_steps - number) * warmup_slope
        return max(0.0, warmed) * fall_factor ** sum(number > fall for fall in fall_steps)

    return factor


def warmup_within_linear_decay(*, start_step: int, warmup_steps: int, training_steps: int) -> Callable[[int], float]:
    """Linear decay over all of `training_steps`, replaced by linear warm-up in its first steps (MLPerf BERT reference,
    `optimization.py`): `start_warmup_step` may be negative, so that training begins with part of the warm-up done."""

    def factor(step: int) -> float:
        number = step + 1
        warmed = number - start_step
        if warmed < warmup_steps:
            return warmed / warmup_steps
        return max(0.0, 1 - number / training_steps)

    return factor


def warmup_hold_exponential(
    *, steps_per_epoch: int, warmup_epochs: float, hold_epochs: float, gamma: float, end_factor: float
) -> Callable[[int], float]:
    """Linear warm-up, a plateau, then decay by `gamma` from one epoch to the next (MLPerf RNN-T reference, `lr_policy`
    `exponential`), never below `end_factor`."""
    warmup_steps, held_steps = warmup_epochs * steps_per_epoch, (warmup_epochs + hold_epochs) * steps_per_epoch

    def factor(step: int) -> float:
        number = step + 1
        if number < warmup_steps:
            return (number + 1) / (warmup_steps + 1)
        if number < held_steps:
            return 1.0
        epoch = step // steps_per_epoch + 1
        return max(end_factor, float(gamma ** (epoch - warmup_epochs - hold_epochs)))

    return factor
