"""Long Range Arena (Tay et al., 2021): one class for a long sequence of tokens. The referee's side.

Instance: whole-number tokens ``(L,)`` and the right class; Retrieval has two texts, one behind the other.
Solution: one integer, the class.
Score: 1 for the right class, else 0; the mean over a set is the accuracy. Higher is better.

Version history: 1 (first).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.lra.instance import LRAInstance
from nco_bench.problems.lra.table import LRA_TASKS, LRATask, lra_task

__all__ = ["LRA_TASKS", "LRAInstance", "LRATask", "from_arrays", "lra_task", "score", "violations"]

NAME = "lra"
VERSION = "1"
OBJECTIVE = "max"


def from_arrays(name: str, convention: str, arrays: Mapping[str, NDArray[Any]]) -> LRAInstance:
    """Build an instance from its arrays; undoes `LRAInstance.arrays`."""
    return LRAInstance(
        name, str(arrays["task"]), arrays["tokens"], int(arrays["label"]), int(arrays["second"])
    )


def violations(instance: LRAInstance, solution: Any) -> tuple[str, ...]:
    """Say what is wrong with an answer: its form, or a class that does not exist."""
    answer = np.asarray(solution)
    if answer.shape != (1,) or not np.issubdtype(answer.dtype, np.integer):
        return (f"an answer is an array of one integer, got {answer.dtype} with shape {answer.shape}",)
    if not 0 <= answer[0] < instance.task.classes:
        return (f"class {int(answer[0])} is outside 0..{instance.task.classes - 1}",)
    return ()


def score(instance: LRAInstance, solution: NDArray[np.integer]) -> float:
    """Return 1 where the class is right, else 0."""
    return float(solution[0] == instance.label)


def counts(instance: LRAInstance, solution: NDArray[np.integer]) -> dict[str, float]:
    """Count what the pooled accuracy is made of, as `algorithmic.counts` does for classes."""
    return {"correct": int(solution[0] == instance.label), "tokens": 1}
