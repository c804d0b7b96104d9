"""What stands in for a stranger's solver that could not be made or prepared."""

from __future__ import annotations

from collections.abc import Sequence

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems import Instance
from nco_bench.solvers.protocol import Failure, Outcome, Progress


class Broken:
    """A solver that fails on every instance, for one reason.

    Parameters
    ----------
    failure
        What becomes of each.
    """

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return None: that it fails is to be seen."""
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Do nothing."""

    def batch_size(self, dataset: Dataset) -> int:
        """Return 1."""
        return 1

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> Sequence[Outcome]:
        """Return the failure for each instance."""
        return [self._failure] * len(batch)

    def close(self) -> None:
        """Do nothing."""
