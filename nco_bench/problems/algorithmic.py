"""The algorithmic tasks with classes as answers: instances, what an answer must look like, and how it is scored.

Instance: token features ``(L, F)`` and the exact labels, one per token or one for the instance.
Solution: integers, as many as labels: 0 or 1, or classes 0..n (predecessors of Floyd-Warshall).
Score: fraction of right answers of the instance. Higher is better. F1 of the positive class is not a mean over instances, so
`counts` gives what it is pooled from.

The tasks with real numbers as answers are `nco_bench.problems.algorithmic_regression`.

Version history: 1 (first).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.tasks import Task, task

NAME = "algorithmic"
VERSION = "1"
OBJECTIVE = "max"
REGRESSION = "algorithmic-regression"


@dataclass(frozen=True, eq=False)
class TaskInstance:
    """One instance of a task, of either problem.

    Attributes
    ----------
    name
        Unique within its dataset.
    task_name, variant
        As in `nco_bench.problems.tasks`.
    inputs
        ``(L, F)`` float32 token features, perturbed where the dataset says so.
    targets
        ``(L,)`` or ``()`` labels of the clean instance.
    """

    name: str
    task_name: str
    variant: str
    inputs: NDArray[np.float32]
    targets: NDArray[Any]
    problem: str = field(default="", init=False)
    task: Task = field(default=None, init=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        found = task(self.task_name, self.variant)
        object.__setattr__(self, "task", found)
        object.__setattr__(self, "problem", REGRESSION if found.regression else NAME)
        object.__setattr__(self, "inputs", np.asarray(self.inputs, dtype=np.float32))
        object.__setattr__(self, "targets", np.asarray(self.targets))
        shape = self.inputs.shape
        if len(shape) != 2 or shape[1] != found.width:
            raise BadInputError(
                f"{self.name}: inputs have shape {shape}; {found.name} has (L, {found.width})."
            )
        expected = () if found.output == "pooled" else shape[:1]
        if self.targets.shape != expected:
            raise BadInputError(f"{self.name}: labels have shape {self.targets.shape}; expected {expected}.")
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.targets).all()):
            raise BadInputError(f"{self.name}: an input or a label is not a finite number.")

    @property
    def n(self) -> int:
        """Length; nodes for the graph tasks."""
        return isqrt(len(self.inputs)) if self.task.graph else len(self.inputs)

    @property
    def convention(self) -> str:
        """How an answer is scored: ``accuracy`` or ``mse``."""
        return "mse" if self.task.regression else "accuracy"

    @property
    def answers(self) -> int:
        """Numbers in a solution."""
        return self.targets.size

    def asked(self) -> TaskInstance:
        """Return the instance without its labels, all 0, as a solver that is not ours is given it."""
        return replace(self, targets=np.zeros_like(self.targets))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the instance, for hashing and storage."""
        named = np.array(f"{self.task_name}:{self.variant}")
        return {"inputs": self.inputs, "targets": self.targets, "task": named}


def from_arrays(name: str, convention: str, arrays: Mapping[str, NDArray[Any]]) -> TaskInstance:
    """Build an instance from its arrays; undoes `TaskInstance.arrays`."""
    task_name, _, variant = str(arrays["task"]).partition(":")
    return TaskInstance(name, task_name, variant, arrays["inputs"], arrays["targets"])


def misshapen(instance: TaskInstance, solution: Any) -> tuple[str, ...]:
    """Say whether an answer is not a flat array of integers of the right length."""
    answer = np.asarray(solution)
    if answer.ndim != 1 or not np.issubdtype(answer.dtype, np.integer):
        return (f"an answer is a flat array of integers, got {answer.dtype} with shape {answer.shape}",)
    if len(answer) != instance.answers:
        return (f"{len(answer)} answers, expected {instance.answers}",)
    return ()


def violations(instance: TaskInstance, solution: Any) -> tuple[str, ...]:
    """Say what is wrong with an answer: its form, or a class that does not exist."""
    wrong = misshapen(instance, solution)
    if wrong:
        return wrong
    answer, largest = np.asarray(solution), instance.n if instance.task.answer == "classes" else 1
    outside = (answer < 0) | (answer > largest)
    if outside.any():
        return (f"class {int(answer[outside][0])} is outside 0..{largest}",)
    return ()


def score(instance: TaskInstance, solution: NDArray[np.integer]) -> float:
    """Fraction of the answers that are right."""
    return float((solution == instance.targets.reshape(-1)).mean())


def score_batch(instances: Sequence[TaskInstance], solutions: Sequence[Any]) -> NDArray[np.float64] | None:
    """Score a batch of answers at once; None where one by one must be judged: other tasks or lengths, or a violation."""
    stacked = stack_batch(instances, solutions)
    if stacked is None:
        return None
    answers, truth = stacked
    first = instances[0]
    largest = first.n if first.task.answer == "classes" else 1
    if (answers < 0).any() or (answers > largest).any():
        return None
    return (answers == truth).mean(axis=1)


def stack_batch(
    instances: Sequence[TaskInstance], solutions: Sequence[Any]
) -> tuple[NDArray[np.integer], NDArray[Any]] | None:
    """Return ``(B, A)`` answers and labels; None where these are of several tasks or shapes."""
    shape, task_of_all = (instances[0].answers,), instances[0].task
    if any(i.answers != shape[0] or i.task != task_of_all for i in instances):
        return None
    if any(not isinstance(s, np.ndarray) or s.shape != shape or s.dtype.kind not in "iu" for s in solutions):
        return None
    return np.stack(solutions), np.stack([i.targets.reshape(-1) for i in instances])


def counts(instance: TaskInstance, solution: NDArray[np.integer]) -> dict[str, float]:
    """Count what pooled metrics are made of.

    Returns
    -------
    dict
        ``tp``, ``fp``, ``fn``, ``tn`` of the positive class; for classes beyond 0 and 1 ``correct`` and ``tokens``.
    """
    truth = instance.targets.reshape(-1)
    if instance.task.answer == "classes":
        return {"correct": int((solution == truth).sum()), "tokens": len(truth)}
    answer = np.asarray(solution).astype(np.int64, copy=False)  # uint64 beside int64 would become float64
    table = np.bincount(2 * truth.astype(np.int64) + answer, minlength=4).tolist()
    return {"tp": table[3], "fp": table[1], "fn": table[2], "tn": table[0]}
