"""Farthest insertion: always the city farthest from the tour, put where it lengthens the tour least.

Rosenkrantz, Stearns and Lewis (1977). It starts with node 0 and the node farthest from it, so nothing is random and
the seed has no effect. O(N^2) time, O(N) memory: each step is a few vectorised passes over N numbers (a second at
5,000 nodes, about 4 s at 10,000). It follows the instance's own distances, whatever the convention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.distances import edge_rule
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Solved
from nco_bench.solvers.small import easy_tour, join_fixed_edges

Row = Callable[[int], NDArray[np.float64]]
"""Distances of one node to all."""


class FarthestInsertion(ChildSolver):
    """Farthest insertion for the TSP."""

    NAME = "farthest-insertion"
    SOLVE = "nco_bench.solvers.classical.farthest_insertion:solve"
    MAX_N: ClassVar[dict[str, int]] = {"tsp": 100_000}
    QUICK = True


def solve(
    instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved:
    """Build one tour; runs in the child."""
    easy = easy_tour(instance)
    if easy is not None:
        return easy
    return join_fixed_edges(instance, insert_farthest(distance_row(instance), instance.n))


def distance_row(instance: TSPInstance) -> Row:
    """Return a function that gives the ``(N,)`` distances of a node to all nodes."""
    if instance.convention == "explicit":
        matrix = instance.matrix
        assert matrix is not None
        return lambda node: matrix[node]
    coords = instance.coords
    assert coords is not None
    if instance.convention == "euclidean":
        x, y = np.ascontiguousarray(coords.T)
        return lambda node: np.hypot(x - x[node], y - y[node])
    rule = edge_rule(instance.convention)
    return lambda node: rule(coords, coords[node])


def insert_farthest(row: Row, n: int) -> NDArray[np.int64]:
    """Build a tour of `n` >= 2 nodes from their distances.

    The edges of the partial tour are kept as two arrays by position of insertion: edge k leads from ``tail[k]`` to the
    successor of that node. Inserting x into edge k shortens it to (tail, x) and appends the edge (x, old head).
    """
    to_tour = row(0).copy()
    to_tour[0] = -1.0
    second = int(to_tour.argmax())
    rows_second = row(second)
    np.minimum(to_tour, rows_second, out=to_tour)
    to_tour[[0, second]] = -1.0
    tail, head, length = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n)
    tail[:2], head[:2] = (0, second), (second, 0)
    length[:2] = rows_second[0]
    for size in range(2, n):
        node = int(to_tour.argmax())
        distance = row(node)
        edge = int((distance[tail[:size]] + distance[head[:size]] - length[:size]).argmin())
        end = head[edge]
        tail[size], head[size], length[size] = node, end, distance[end]
        head[edge], length[edge] = node, distance[tail[edge]]
        np.minimum(to_tour, distance, out=to_tour)
        to_tour[node] = -1.0
    successor = np.empty(n, dtype=np.int64)
    successor[tail] = head
    return _walk(successor)


def _walk(successor: NDArray[np.int64]) -> NDArray[np.int64]:
    follow = successor.tolist()
    tour, node = [0], follow[0]
    while node != 0:
        tour.append(node)
        node = follow[node]
    return np.array(tour)
