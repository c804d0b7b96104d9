"""The algorithmic tasks with real numbers as answers: scored by the mean squared error, lower is better.

Solution: the float32 answers, their bits viewed as int32 (``answers.view(np.int32)``), since stored solutions are
integers; `as_stored` and `as_numbers` convert.

Version history: 1 (first).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.algorithmic import REGRESSION, TaskInstance, misshapen, stack_batch
from nco_bench.problems.algorithmic import from_arrays as from_arrays

NAME = REGRESSION
VERSION = "1"
OBJECTIVE = "min"


def as_stored(numbers: NDArray[np.floating]) -> NDArray[np.int32]:
    """Return answers as a solution: float32 bits viewed as int32, flat."""
    return np.ascontiguousarray(numbers, dtype="<f4").reshape(-1).view("<i4").astype(np.int32, copy=False)


def as_numbers(solution: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return the float32 answers of a solution; undoes `as_stored`."""
    return np.ascontiguousarray(solution, dtype=np.int32).view(np.float32)


def violations(instance: TaskInstance, solution: Any) -> tuple[str, ...]:
    """Say what is wrong with an answer: its form, or a number that is not finite."""
    wrong = misshapen(instance, solution)
    if wrong:
        return wrong
    answer = np.asarray(solution)
    limits = np.iinfo(np.int32)
    if answer.min() < limits.min or answer.max() > limits.max:
        return ("an entry does not fit into 32 bits; answers are float32 bits viewed as int32",)
    unusable = np.flatnonzero(~np.isfinite(as_numbers(answer)))
    if len(unusable):
        return (f"answer {int(unusable[0])} is not a finite number",)
    return ()


def score(instance: TaskInstance, solution: NDArray[np.integer]) -> float:
    """Mean squared error over the answers, float64."""
    return float(_squares(instance, solution).mean())


def score_batch(instances: Sequence[TaskInstance], solutions: Sequence[Any]) -> NDArray[np.float64] | None:
    """Score a batch of answers at once; None where one by one must be judged: other tasks or lengths, or a violation."""
    stacked = stack_batch(instances, solutions)
    if stacked is None or stacked[0].dtype != np.int32:
        return None
    numbers = as_numbers(stacked[0])
    if not np.isfinite(numbers).all():
        return None
    return ((numbers.astype(np.float64) - stacked[1]) ** 2).mean(axis=1)


def counts(instance: TaskInstance, solution: NDArray[np.integer]) -> dict[str, float]:
    """Count what the pooled error is made of: ``squared_error`` and ``tokens``."""
    squares = _squares(instance, solution)
    return {"squared_error": float(squares.sum()), "tokens": len(squares)}


def _squares(instance: TaskInstance, solution: NDArray[np.integer]) -> NDArray[np.float64]:
    return (as_numbers(solution).astype(np.float64) - instance.targets.reshape(-1)) ** 2
