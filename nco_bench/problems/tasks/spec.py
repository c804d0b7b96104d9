"""What a task is made of: ranges, and clean instances with their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError


@dataclass(frozen=True)
class Ranges:
    """Inclusive ranges that instances are drawn from (Table 5 of the Tropical Attention paper).

    Attributes
    ----------
    values
        Of the values, as the setting has it; for SCC the edge probability inside a part, twice.
    target, weight
        Of targets or capacities and of weights, the same in all settings; None where the task has none.
    """

    values: tuple[Any, Any]
    target: tuple[int, int] | None = None
    weight: tuple[int, int] | None = None

    @property
    def target_range(self) -> tuple[int, int]:
        """`target`, for a task that has one."""
        return _given(self.target, "target")

    @property
    def weight_range(self) -> tuple[int, int]:
        """`weight`, for a task that has one."""
        return _given(self.weight, "weight")


def _given(found: tuple[int, int] | None, what: str) -> tuple[int, int]:
    if found is None:
        raise BadInputError(f"this task needs a {what} range; the table of tasks has none for it.")
    return found


@dataclass(frozen=True)
class Clean:
    """Unperturbed instances.

    Attributes
    ----------
    inputs
        ``(B, L, F)`` float32 token features.
    targets
        ``(B, L)`` or ``(B,)`` labels.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[Any]


@dataclass(frozen=True)
class TaskBatch:
    """Instances of one task.

    Attributes
    ----------
    inputs
        ``(B, L, F)`` float32 token features, perturbed in the setting ``noise-ood``.
    targets
        ``(B, L)`` (one per token) or ``(B,)`` (pooled): float32 0/1 or real numbers, int64 classes for
        the predecessors of ``floyd-warshall:variant=predecessors``. They belong to the clean instance.
    mask
        ``(B, L)`` flags of the tokens that count, or None where all do.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[Any]
    mask: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.inputs)
