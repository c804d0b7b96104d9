"""Clarke and Wright's savings (Operations Research, 1964): every customer has a route of its own, and routes are joined at
their ends as long as they fit, the largest saving first.

Of each customer only the K nearest are looked at, then the nearest of those that are still ends, so that time and memory
are O(N K log N). With K = N - 1 it is the algorithm as published, in its parallel form.

Letters in shapes: N nodes, the depot first; P pairs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.compiling import njit
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Solved, SolverOptions
from nco_bench.solvers.small import all_points, easy_routes, integer_demand, join_routes

NEAR = 100
"""Customers that each may be joined with, of those around it."""


class Savings(ChildSolver):
    """Savings for the CVRP; distances are Euclidean whatever the rounding, nothing is random."""

    NAME = "savings"
    SOLVE = "nco_bench.solvers.classical.savings:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {"near": (int, NEAR)}
    QUICK = True

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.params["near"] < 1:
            raise BadInputError(f"{self.NAME}: near={self.params['near']} must be at least 1.")

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse route length limits and matrices."""
        for instance in dataset:
            if getattr(instance, "max_route_length", None) is not None:
                return f"{self.NAME} knows no limit on route lengths, which {dataset.name} has"
            if getattr(instance, "customers", None) is None:
                return f"{self.NAME} needs coordinates, {dataset.name} has matrices only"
        return super().check(dataset, backend)


def warm_up(params: dict[str, Any]) -> None:
    """Compile before the clock starts."""
    savings_routes(np.random.default_rng(0).random((8, 2)), np.ones(7, dtype=np.int64), 3)


def solve(
    instance: CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved:
    """Build one solution; runs in the child."""
    easy = easy_routes(instance)
    if easy is not None:
        return easy
    return savings_routes(all_points(instance), *integer_demand(instance), params["near"])


def savings_routes(
    points: NDArray[np.float64], demand: NDArray[np.integer], capacity: float, near: int = NEAR
) -> NDArray[np.int64]:
    """Build routes.

    Parameters
    ----------
    points
        ``(N, 2)`` or ``(N, 3)``, the depot first; distances are Euclidean.
    demand, capacity
        ``(N - 1,)`` of the customers; none is above the capacity.
    near
        K.

    Returns
    -------
    array
        Customers with 0 for each visit of the depot, at both ends too.
    """
    n = len(points)
    home = np.linalg.norm(points[1:] - points[0], axis=1)
    root, load = np.arange(n - 1), demand.astype(np.float64)
    ends = np.full((n - 1, 2), -1)
    open_ends, joined = np.arange(n - 1), True
    while joined and len(open_ends) > 1:
        a, b, apart = _pairs(points[1:][open_ends], min(near, len(open_ends) - 1))
        a, b = open_ends[a], open_ends[b]
        saved = home[a] + home[b] - apart
        worth = np.flatnonzero(saved > 0)
        order = worth[np.argsort(-saved[worth], kind="stable")]
        joined = bool(_join(a[order], b[order], root, load, ends, float(capacity)))
        open_ends = np.flatnonzero(ends[:, 1] < 0)
    sequence, starts = _sequence(ends)
    return join_routes(np.split(sequence + 1, starts[1:]))


def _pairs(
    points: NDArray[np.float64], near: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return pairs of near points, ``(P,)`` each, and how far apart they are; few pairs are there twice."""
    apart, other = cKDTree(points).query(points, k=near + 1)
    farthest = apart[:, -1]
    one, other, apart = np.repeat(np.arange(len(points)), near + 1), other.ravel(), apart.ravel()
    keep = (one < other) | ((one > other) & (apart >= farthest[other]))  # else the other one's list has it
    return one[keep], other[keep], apart[keep]


@njit(cache=True)
def _join(a, b, root, load, ends, capacity):  # type: ignore[no-untyped-def]
    """Join routes at the customers of each pair in turn, where both are ends and fit; return whether any were.

    `root` leads from a customer to the one that stands for its route, whose `load` is the route's; `ends` are the
    neighbours of each, -1 for the depot.
    """
    joined = False
    for k in range(len(a)):
        i, j = a[k], b[k]
        if ends[i, 1] >= 0 or ends[j, 1] >= 0:
            continue
        one, other = _found(root, i), _found(root, j)
        if one == other or load[one] + load[other] > capacity:
            continue
        root[other] = one
        load[one] += load[other]
        ends[i, 1 if ends[i, 0] >= 0 else 0] = j
        ends[j, 1 if ends[j, 0] >= 0 else 0] = i
        joined = True
    return joined


@njit(cache=True)
def _found(root, node):  # type: ignore[no-untyped-def]
    while root[node] != node:
        root[node] = root[root[node]]
        node = root[node]
    return node


@njit(cache=True)
def _sequence(ends):  # type: ignore[no-untyped-def]
    """Return the customers route by route, and the places where routes begin."""
    n = len(ends)
    sequence, starts, seen = np.empty(n, np.int64), [0][:0], np.zeros(n, np.bool_)
    at = 0
    for first in range(n):
        if seen[first] or ends[first, 1] >= 0:
            continue
        starts.append(at)
        before, node = -1, first
        while node >= 0:
            sequence[at], seen[node] = node, True
            at += 1
            onward = ends[node, 0] if ends[node, 0] != before else ends[node, 1]
            before, node = node, onward
    return sequence, starts
