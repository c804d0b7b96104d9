"""What every result on an algorithmic task is held against: trivial predictors, and the exact labels.

The constants of ``majority`` and ``mean`` come from a sample of the training distribution (setting ``id`` at the training
length), never from the test set's labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems import Instance
from nco_bench.problems.algorithmic import TaskInstance
from nco_bench.problems.algorithmic_regression import as_stored
from nco_bench.problems.tasks import Task, stream
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, read_params

SAMPLE = 20_000
"""Instances of the training distribution that a constant is taken from; its standard error is below 1 %."""

SAMPLE_SEED = 1


class TaskBaseline:
    """One of ``all-positive``, ``majority``, ``mean`` and ``exact``, by the name it was asked for."""

    def __init__(self, options: SolverOptions) -> None:
        read_params(options.solver, options.params)
        self.name = options.solver
        self._constants: dict[tuple[str, str], float] = {}

    def unsupported(self, dataset: Dataset) -> str | None:
        """Say which of the tasks it has no answer for."""
        instance = dataset.instances[0]
        if not isinstance(instance, TaskInstance):
            return f"answers algorithmic tasks, not {dataset.problem}"
        if self.name == "all-positive" and instance.task.answer != "binary":
            return "needs labels 0 and 1"
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Take the constant from the training distribution."""
        for instance in dataset.instances[:1]:
            if isinstance(instance, TaskInstance) and self.name in ("majority", "mean"):
                self._constant(instance.task)

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Answer each instance with its constant, or with its exact labels."""
        answers: list[Outcome] = []
        for instance in batch:
            assert isinstance(instance, TaskInstance)
            answers.append(self._answer(instance))
        progress(len(batch))
        return answers

    def _answer(self, instance: TaskInstance) -> NDArray[np.int32]:
        if self.name == "exact":
            numbers = instance.targets.reshape(-1)
        else:
            constant = 1.0 if self.name == "all-positive" else self._constant(instance.task)
            numbers = np.full(instance.answers, constant)
        return as_stored(numbers) if instance.task.regression else numbers.astype(np.int32)

    def _constant(self, task: Task) -> float:
        key = (task.name, task.variant)
        if key not in self._constants:
            self._constants[key] = training_constant(task)
        return self._constants[key]

    def batch_size(self, dataset: Dataset) -> int:
        """Return a size that keeps the harness' share small."""
        return 1024

    def close(self) -> None:
        """Nothing is held."""


def training_constant(task: Task) -> float:
    """Return the mean of the training labels of a regression task, the most frequent label of another."""
    sample = next(stream(task.name, "id", task.train_n, SAMPLE, SAMPLE_SEED, task.variant))
    if task.regression:
        return float(sample.targets.mean(dtype=np.float64))
    return float(np.bincount(sample.targets.astype(np.int64).reshape(-1)).argmax())
