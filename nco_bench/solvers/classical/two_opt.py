"""Nearest neighbour, then 2-opt and Or-opt to a local optimum, with neighbour lists and don't-look bits (Bentley, 1992).

For each node in a queue: 2-opt moves that join it to one of its K nearest neighbours, and moves of the one to three
nodes that begin with it to a place beside such a neighbour, straight or reversed. The first improving move is made and
its end nodes are queued again. The tour is an array; the shorter side is reversed or shifted, and with ``longest=L`` moves
that would touch more than L nodes are left out, as Johnson and McGeoch (1997) did at a million nodes. O(N K) memory.
Nodes are numbered as the first tour visits them, so that what is near lies near in memory.

The inner loop is compiled by numba: at 100,000 nodes it makes some 10^8 array steps, seconds when compiled and hours in
Python, and unlike a C extension numba is a wheel that needs no compiler. The tour follows the instance's own
distances (rounded or not; GEO to within its rounding). Nothing is random: the seed has no effect. With a time
limit the tour reached by then is returned. ``start=insertion`` begins with random insertion beside near nodes instead.

CVRP: the same moves within each route (`route_two_opt`), of Clarke and Wright's savings and of insertion by angle; the
shorter of both is the answer. Savings are better for short routes, insertion for long ones of many customers.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance, score
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical import random_insertion
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.classical.nearest_neighbor import nearest_by_matrix, search_points
from nco_bench.solvers.classical.two_opt_moves import KINDS, work
from nco_bench.solvers.decoding.nearest import nearest_by_tree
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.small import (
    all_points,
    distance_matrix,
    easy_tour,
    integer_demand,
    join_fixed_edges,
)

STARTS = ("nearest", "insertion")
NEAR = 20
"""Near nodes of the insertion that is improved, for the TSP."""
STEPS_PER_CALL = 20_000


class TwoOpt(ChildSolver):
    """Nearest neighbour + 2-opt/Or-opt for the TSP; 2-opt/Or-opt within the routes of two starts for the CVRP."""

    NAME = "two-opt"
    SOLVE = "nco_bench.solvers.classical.two_opt:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {
        "neighbors": (int, 10), "longest": (int, 0), "start": (str, "nearest"),
    }  # fmt: skip
    QUICK = True
    GRACE = (1.1, 1.0)

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.params["start"] not in STARTS:
            raise BadInputError(
                f"{self.NAME}: start={self.params['start']!r} is none of {', '.join(STARTS)}."
            )

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse route length limits, CVRP matrices, and insertion where there are no flat coordinates."""
        inserts = dataset.problem == "cvrp" or self.params["start"] == "insertion"
        if inserts and find_spec("random_insertion") is None:
            return f"{self.NAME} begins with the package random-insertion here: pip install 'nco-bench[classical]'"
        for instance in dataset:
            if isinstance(instance, CVRPInstance):
                if instance.max_route_length is not None:
                    return f"{self.NAME} knows no limit on route lengths, which {dataset.name} has"
                if instance.customers is None:
                    return f"{self.NAME} needs coordinates for the CVRP, {dataset.name} has matrices only"
            elif self.params["start"] == "insertion" and instance.convention in ("explicit", "geo"):
                return (
                    f"{self.NAME}: start=insertion needs coordinates in the plane, {instance.name} has none"
                )
        return super().check(dataset, backend)


def warm_up(params: dict[str, Any]) -> None:
    """Compile what the problem needs before the clock starts."""
    points = np.random.default_rng(0).random((20, 2))
    few = {**params, "neighbors": 5}
    if params.get("problem") == "cvrp":
        solve(CVRPInstance("warm-up", points[0], points[1:], np.ones(19), 5), 0, None, few)
    else:
        solve(TSPInstance("warm-up", points), 0, None, few)


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Build and improve one solution; runs in the child."""
    stop = None if time_limit is None else time.perf_counter() + time_limit
    if isinstance(instance, CVRPInstance) or params["start"] == "insertion":
        near = 0 if isinstance(instance, CVRPInstance) else NEAR
        built = random_insertion.solve(instance, seed, time_limit, {"order": "", "near": near})
        if isinstance(built, Solved | Failure):
            return built
        found = improved(instance, built, params, stop)
        if not isinstance(instance, CVRPInstance) or params["start"] == "insertion" or _is_over(stop):
            return found
        from nco_bench.solvers.classical.savings import savings_routes  # compiled only where it is used

        demand, capacity = integer_demand(instance)
        other = improved(instance, savings_routes(all_points(instance), demand, capacity), params, stop)
        return min(found, other, key=lambda one: score(instance, one))
    easy = easy_tour(instance)
    if easy is not None:
        return easy
    if instance.convention == "explicit":
        tour = nearest_by_matrix(distance_matrix(instance))
    else:
        tour = nearest_by_tree(search_points(instance))
    return improved(instance, tour, params, stop)


def _is_over(stop: float | None) -> bool:
    return stop is not None and time.perf_counter() >= stop


def improved(
    instance: TSPInstance | CVRPInstance,
    solution: NDArray[np.integer],
    params: dict[str, Any],
    stop: float | None = None,
) -> NDArray[np.integer]:
    """Bring a tour, or each route, to a local optimum, or as far as `stop` allows (routes: always all of them)."""
    kind = KINDS[instance.convention]
    if isinstance(instance, CVRPInstance):
        from nco_bench.solvers.classical.route_two_opt import improve_routes  # compiled only where it is used

        return improve_routes(solution, _flat(all_points(instance)), kind, params["neighbors"])
    count = max(1, min(params["neighbors"], instance.n - 1))
    if instance.convention == "explicit":
        matrix = distance_matrix(instance)
        points, near = np.zeros((1, 3)), _near_by_matrix(matrix, count)
    else:
        matrix, flat = np.zeros((1, 1)), search_points(instance)
        points, near = _flat(flat), cKDTree(flat).query(flat, k=count + 1)[1]
    tour = improve(solution, near, points, matrix, kind, stop, params["longest"])
    return join_fixed_edges(instance, tour)


def _flat(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points with a third coordinate, 0 unless they have one, ``(N, 3)``."""
    whole = np.zeros((len(points), 3))
    whole[:, : points.shape[1]] = points
    return whole


def _near_by_matrix(matrix: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    return np.argsort(matrix, axis=1, kind="stable")[:, : count + 1]


def improve(
    tour: NDArray[np.integer],
    near: NDArray[np.integer],
    points: NDArray[np.float64],
    matrix: NDArray[np.float64],
    kind: int,
    stop: float | None = None,
    longest: int = 0,
) -> NDArray[np.int32]:
    """Improve a tour to a local optimum, or until the clock (`time.perf_counter`) passes `stop`.

    Parameters
    ----------
    tour
        ``(N,)`` nodes in order.
    near
        ``(N, K)`` neighbours, nearest first; a node may be its own neighbour.
    points, matrix
        ``(N, 3)`` coordinates, or the ``(N, N)`` distances for the kind of ``explicit``.
    kind
        See `KINDS`.
    longest
        Nodes that one move may touch; 0 for any number.
    """
    n = len(tour)
    place = np.empty(n, dtype=np.int32)
    place[tour] = np.arange(n, dtype=np.int32)
    near = place[near[tour]]
    if kind == KINDS["explicit"]:
        matrix = np.ascontiguousarray(matrix[np.ix_(tour, tour)])
    else:
        points = np.ascontiguousarray(points[tour])
    moved, position = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    queue, queued = moved.copy(), np.ones(n, dtype=np.uint8)
    state = np.array([0, n, longest or n], dtype=np.int64)
    while state[1] and (stop is None or time.perf_counter() < stop):
        work(moved, position, near, points, matrix, kind, queue, queued, state, STEPS_PER_CALL)
    found: NDArray[np.int32] = tour.astype(np.int32)[moved]
    return found
