"""Random insertion: cities in a random order, each put where it lengthens the tour least. O(N^2) time, O(N) memory.

The native code is the package ``random-insertion`` (MIT), the one behind GLOP (Ye et al., 2024) and SIT's Table 1. It
works in float32, so coordinates are moved and scaled to the unit square first. The order is a permutation drawn from
``numpy.random.default_rng(seed)``: the same seed gives the same tour.

CVRP: the package visits customers in the given order and keeps routes within the capacity. Its own default order is
by angle around the depot (``order=angle``, deterministic, what GLOP uses); ``order=random`` draws it; ``order=sit`` is
by angle too, with the older code that SIT shipped and measured, whose quirk `nco_bench.solvers.decoding.insertion` explains:
its routes are far longer. Distances are Euclidean whatever the rounding; GEO and matrix instances of the TSP are
solved on their matrix.

``near=K`` looks for places beside the K nearest cities alone (`near_insertion`), in linear time: a million nodes take
seconds, and from some 20 on tours are as short. CVRP: routes then grow side by side.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.small import (
    distance_matrix,
    easy_routes,
    easy_tour,
    integer_demand,
    join_fixed_edges,
    join_routes,
)

ORDERS = ("angle", "random", "sit")
MATRIX_CONVENTIONS = ("explicit", "geo")


class RandomInsertion(ChildSolver):
    """Random insertion for TSP and CVRP."""

    NAME = "random-insertion"
    SOLVE = "nco_bench.solvers.classical.random_insertion:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {"order": (str, ""), "near": (int, 0)}
    QUICK = True

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.params["order"] not in ("", *ORDERS):
            raise BadInputError(
                f"{self.NAME}: order={self.params['order']!r} is none of {', '.join(ORDERS)}."
            )

        if self.params["near"] < 0 or (self.params["near"] and self.params["order"] == "sit"):
            raise BadInputError(
                f"{self.NAME}: near={self.params['near']} is not a number of cities; with order=sit leave it out."
            )

    def batch_size(self, dataset: Dataset) -> int:
        """Instances per call; SIT's variant is not native code and takes a second for 1,000 customers."""
        return 1 if self.params["order"] == "sit" else super().batch_size(dataset)

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse route length limits, CVRP matrices and matrices that do not fit."""
        if self.params["near"] and find_spec("numba") is None:
            return f"{self.NAME}: near={self.params['near']} needs numba: pip install 'nco-bench[classical]'"
        if dataset.problem == "cvrp":
            if any(i.max_route_length is not None for i in dataset if isinstance(i, CVRPInstance)):
                return f"{self.NAME} knows no limit on route lengths, which {dataset.name} has"
            if any(i.customers is None for i in dataset if isinstance(i, CVRPInstance)):
                return f"{self.NAME} needs coordinates for the CVRP, {dataset.name} has matrices only"
        elif self.params["order"] in ("angle", "sit"):
            return f"{self.NAME}: order={self.params['order']} is for the CVRP"
        return None


def warm_up(params: dict[str, Any]) -> None:
    """Import the package before the clock starts."""
    import random_insertion

    points = np.random.default_rng(0).random((8, 2))
    random_insertion.tsp_random_insertion(points)
    if params["near"]:
        from nco_bench.solvers.classical.near_insertion import insert_near, insert_near_routes

        insert_near(points, np.arange(8), 2)
        insert_near_routes(points, np.ones(8, dtype=np.int64), 4, np.arange(1, 8), 2)


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Build one solution; runs in the child."""
    if isinstance(instance, CVRPInstance):
        return _routes(instance, seed, params["order"] or "angle", params["near"])
    return _tour(instance, seed, params["near"])


def _tour(instance: TSPInstance, seed: int, near: int) -> NDArray[np.integer] | Solved:
    import random_insertion

    easy = easy_tour(instance)
    if easy is not None:
        return easy
    order = np.random.default_rng(seed).permutation(instance.n)
    if instance.convention in MATRIX_CONVENTIONS:
        tour, _ = random_insertion.atsp_random_insertion(distance_matrix(instance), order)
    elif near:
        from nco_bench.solvers.classical.near_insertion import insert_near

        assert instance.coords is not None
        tour = insert_near(unit_square(instance.coords), order, near)
    else:
        assert instance.coords is not None
        tour, _ = random_insertion.tsp_random_insertion(unit_square(instance.coords), order)
    return join_fixed_edges(instance, tour.astype(np.int64))


def _routes(
    instance: CVRPInstance, seed: int, order: str, near: int
) -> NDArray[np.integer] | Solved | Failure:
    easy = easy_routes(instance)
    if easy is not None:
        return easy
    assert instance.depot is not None
    assert instance.customers is not None
    points = np.concatenate([instance.depot[None], instance.customers])
    demand, capacity = integer_demand(instance, positive=not near)
    if not near and capacity >= 2**32:
        return Failure("failed", "demands of 0 among real ones do not fit the package's 32-bit loads")
    if order == "sit":
        return join_routes(_insert_as_sit(points, demand, capacity))
    points = unit_square(points)
    if order == "random":
        visits = np.random.default_rng(seed).permutation(instance.n)
    else:
        away = points[1:] - points[0]
        visits = np.argsort(np.arctan2(away[:, 1], away[:, 0]), kind="stable")
    if near:
        from nco_bench.solvers.classical.near_insertion import insert_near_routes

        return insert_near_routes(points, np.concatenate([[0], demand]), capacity, visits + 1, near)
    return join_routes([route + 1 for route in _insert(points, demand, capacity, visits)])


def _insert_as_sit(
    points: NDArray[np.float64], demand: NDArray[np.int64], capacity: int
) -> list[NDArray[np.int64]]:
    from nco_bench.solvers.decoding.insertion import insert_cvrp

    # Unscaled as there: in float32 other scales move ties, and with them 0.03 % of the mean length of CVRP-1000.
    customers, starts = insert_cvrp(points.astype(np.float32), np.concatenate([[0], demand]), capacity)
    return np.split(customers, np.flatnonzero(starts)[1:])


def _insert(
    points: NDArray[np.float64], demand: NDArray[np.int64], capacity: int, order: NDArray[np.integer]
) -> list[NDArray[np.int64]]:
    """Call the package's core: its wrapper reserves too few routes and loses customers where most fill a vehicle."""
    from random_insertion import _core

    n = len(demand)
    visits, starts = np.zeros((1, n), dtype=np.uint32), np.zeros((1, n + 2), dtype=np.uint32)
    _core.cvrp_random_parallel(
        np.ascontiguousarray(points[None, 1:], dtype=np.float32),
        np.ascontiguousarray(points[None, 0], dtype=np.float32),
        np.ascontiguousarray(demand[None], dtype=np.uint32),
        capacity,
        np.ascontiguousarray(order[None], dtype=np.uint32),
        1,
        visits,
        starts,
    )  # fmt: skip
    bounds = [int(v) for v in starts[0]]
    return [visits[0, i:j].astype(np.int64) for i, j in pairwise(bounds) if j > i]


def unit_square(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move and scale ``(N, 2)`` points to the unit square with one scale for both axes, for float32 codes."""
    low = points.min(0)
    extent = float((points.max(0) - low).max())
    return (points - low) / (extent or 1.0)
