"""Instances too small or too degenerate for native solvers; they are solved here, exactly where exactness is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.distances import edge_rule
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.protocol import Solved

BRUTE_FORCE_NODES = 7
"""Up to here all tours are compared (360 at most)."""


def distance_matrix(instance: TSPInstance | CVRPInstance) -> NDArray[np.float64]:
    """Return the ``(N, N)`` distances of an instance's nodes (depot first), diagonal zero; for small N only."""
    if instance.matrix is not None and instance.convention == "explicit":
        matrix = instance.matrix.copy()
    else:
        points = all_points(instance)
        rule = edge_rule(instance.convention)
        matrix = np.stack([rule(points, point) for point in points])
    np.fill_diagonal(matrix, 0.0)
    return matrix


def all_points(instance: TSPInstance | CVRPInstance) -> NDArray[np.float64]:
    """Return the ``(N, 2)`` coordinates of all nodes, the depot of a CVRP first."""
    if isinstance(instance, CVRPInstance):
        assert instance.depot is not None
        assert instance.customers is not None
        return np.concatenate([instance.depot[None], instance.customers])
    assert instance.coords is not None
    return instance.coords


def easy_tour(instance: TSPInstance, up_to: int = 3) -> Solved | None:
    """Solve a TSP whose answer needs no solver: at most `up_to` nodes, or all nodes at one point.

    Parameters
    ----------
    instance
        The instance; those with fixed edges are left to the solver.
    up_to
        At most `BRUTE_FORCE_NODES`; larger instances are compared by no one.
    """
    n = instance.n
    if n <= 3:
        return Solved(np.arange(n), optimal=True)
    if instance.fixed_edges:
        return None
    if n <= up_to:
        return Solved(_best_tour(distance_matrix(instance)), optimal=True)
    coords = instance.coords
    if instance.convention not in ("explicit", "geo") and coords is not None and (coords == coords[0]).all():
        return Solved(np.arange(n), optimal=True)
    return None


def _best_tour(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    n = len(matrix)
    tours = np.array([(0, *rest) for rest in permutations(range(1, n)) if rest[0] < rest[-1]])
    lengths = matrix[tours, np.roll(tours, -1, axis=1)].sum(1)
    return tours[int(lengths.argmin())]


def easy_routes(instance: CVRPInstance) -> Solved | None:
    """Solve a CVRP with a single customer, or with all nodes at one point (filled route by route)."""
    if instance.n == 1:
        return Solved(np.array([0, 1, 0]), optimal=True)
    if instance.convention in ("explicit", "geo") or instance.customers is None:
        return None
    if (instance.customers != instance.depot).any():
        return None
    sequence, load = [0], 0.0
    for k, demand in enumerate(instance.demand.tolist(), start=1):
        if load + demand > instance.capacity:
            sequence.append(0)
            load = 0.0
        sequence.append(k)
        load += demand
    return Solved(np.array([*sequence, 0]), optimal=True)


def join_fixed_edges(instance: TSPInstance, tour: NDArray[np.integer]) -> NDArray[np.integer]:
    """Move nodes so that the tour holds the instance's fixed edges; for solvers that know nothing of them.

    Exact for disjoint edges, which is all that TSPLIB has (linhp318 fixes one); the referee judges the rest.
    """
    for a, b in instance.fixed_edges:
        order = [int(v) for v in tour]
        at = order.index(a)
        if b in (order[at - 1], order[(at + 1) % len(order)]):
            continue
        order.remove(b)
        order.insert(order.index(a) + 1, b)
        tour = np.array(order)
    return tour


def integer_demand(instance: CVRPInstance, *, positive: bool = False) -> tuple[NDArray[np.int64], int]:
    """Return demands and capacity as integers whose feasible routes are feasible in the instance too.

    Whole numbers stay as they are. Real demands are scaled to a capacity of about 1e6 and rounded up. With `positive`
    (for programs that refuse a demand of 0), demands d become ``d (N + 1) + 1`` and the capacity C becomes
    ``C (N + 1) + N``, which allows exactly the same routes.
    """
    demand, capacity = instance.demand, instance.capacity
    if demand.dtype.kind == "f" and (demand != np.floor(demand)).any():
        scale = 1e6 / capacity
        whole = np.minimum(np.ceil(demand * scale - 1e-6), 1e6).astype(np.int64)
        limit = 10**6
    else:
        whole, limit = demand.astype(np.int64), int(np.floor(capacity))
    if positive and (whole == 0).any():
        n = len(whole)
        return whole * (n + 1) + 1, limit * (n + 1) + n
    return whole, limit


def join_routes(routes: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Return the node sequence with 0 for the depot of routes given as customer numbers 1..N."""
    parts: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]
    for route in routes:
        if len(route):
            parts += [np.asarray(route, dtype=np.int64), np.zeros(1, dtype=np.int64)]
    return np.concatenate(parts)
