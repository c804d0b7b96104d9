"""fast-tsp (Mulder, 2023): Or-opt with perturbation, in a time budget. Quick labels for training sets.

It searches until its time is up (``seconds`` per instance, or the time limit), so the same seed need not give the
same tour, and it takes no seed. Up to 20 nodes it is exact. Distances become 16-bit integers, the largest 65,535:
about 1/65,535 of the diameter per edge is lost on unrounded instances.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Solved
from nco_bench.solvers.small import distance_matrix, easy_tour, join_fixed_edges

LARGEST = 65_535
EXACT = 20
"""Nodes up to which the package looks for the optimum, whatever the time: about a second at the most."""
LOST_SECONDS = 10.0
"""What a batch takes at most, and so what a command that is killed loses."""


class FastTSP(ChildSolver):
    """The fast-tsp package in a child process."""

    NAME = "fast-tsp"
    SOLVE = "nco_bench.solvers.classical.fast_tsp_solver:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {"seconds": (float, 0.0)}
    MAX_N: ClassVar[dict[str, int]] = {"tsp": 15_000}
    QUICK = True
    GRACE = (1.5, 2.0)

    def batch_size(self, dataset: Dataset) -> int:
        """Instances per call, see `LOST_SECONDS`."""
        n = dataset.sizes[1]
        seconds = 1.0 if n <= EXACT else self.params["seconds"] or default_seconds(n)
        return max(1, min(super().batch_size(dataset), int(LOST_SECONDS / seconds)))


def default_seconds(n: int) -> float:
    """Return the seconds of search that an instance of size `n` gets where nothing is said."""
    return 0.01 + n / 2000


def warm_up(params: dict[str, Any]) -> None:
    """Import the package before the clock starts."""
    import fast_tsp  # noqa: F401


def solve(
    instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved:
    """Search for one tour; runs in the child."""
    import fast_tsp

    easy = easy_tour(instance)
    if easy is not None:
        return easy
    matrix = distance_matrix(instance)
    whole = (matrix == np.rint(matrix)).all() and matrix.max() <= LARGEST
    scaled = matrix if whole else np.rint(matrix * (LARGEST / matrix.max()))
    seconds = time_limit or params["seconds"] or default_seconds(instance.n)
    tour = fast_tsp.find_tour(scaled.astype(np.uint16), duration_seconds=seconds, max_threads=1)
    return join_fixed_edges(instance, np.array(tour))
