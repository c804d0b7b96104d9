"""The trivial baseline of Long Range Arena: one class for all, the most frequent of the set's own labels.

Looking at the labels makes it the best that any constant answer can do, so a classifier above it has learned something.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems import Instance
from nco_bench.problems.lra import LRAInstance
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, read_params


class LRAMajority:
    """Answers with the most frequent class."""

    def __init__(self, options: SolverOptions) -> None:
        read_params(options.solver, options.params)
        self.constant = 0

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for other problems."""
        if isinstance(dataset.instances[0], LRAInstance):
            return None
        return f"answers Long Range Arena, not {dataset.problem}"

    def prepare(self, dataset: Dataset) -> None:
        """Count the classes."""
        labels = [i.label for i in dataset.instances if isinstance(i, LRAInstance)]
        self.constant = int(np.bincount(labels).argmax())

    def batch_size(self, dataset: Dataset) -> int:
        """Return a size that keeps the harness' share small."""
        return 1024

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Answer each instance with the constant."""
        progress(len(batch))
        return [np.array([self.constant], dtype=np.int32) for _ in batch]

    def close(self) -> None:
        """Nothing is held."""
