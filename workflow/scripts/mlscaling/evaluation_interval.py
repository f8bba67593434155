"""How many training samples lie between two evaluations, which may depend on the global batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationInterval:
    """A fixed number of samples, or one that grows linearly with the global batch size."""

    samples: int
    """Training samples between evaluations, before anything is added."""
    per_global_batch_size: float = 0.0
    """Samples to add for each sample of the global batch."""
    multiple_of: int = 1
    """What the sum is rounded down to."""

    @classmethod
    def from_configuration(cls, value: int | Mapping[str, float]) -> Self:
        """From `evaluate_every_samples` of a workload's scale."""
        return cls(samples=value) if isinstance(value, int) else cls(**value)  # type: ignore[arg-type]

    def at(self, global_batch_size: int) -> int:
        """Samples between evaluations at a global batch size."""
        total = self.samples + self.per_global_batch_size * global_batch_size
        return math.floor(total / self.multiple_of) * self.multiple_of
