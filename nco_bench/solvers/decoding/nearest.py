"""Nearest neighbour: always the nearest node not yet visited; for the CVRP the nearest that fits, else the depot.

The solver ``nearest-neighbor`` and the initial solutions of RRC and PRC come from here. NumPy and SciPy only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

NEIGHBOURS = 12


def nearest_by_tree(points: NDArray[np.float64], start: int = 0) -> NDArray[np.int64]:
    """Build a nearest-neighbour tour of ``(N, D)`` points."""
    n = len(points)
    if n < 2:
        return np.arange(n)
    k = min(NEIGHBOURS, n - 1)
    near = cKDTree(points).query(points, k=k + 1)[1].tolist()
    visited = bytearray(n)
    tour = [start]
    visited[start] = 1
    left = _Unvisited(points, visited)
    node = start
    for _ in range(n - 1):
        for candidate in near[node]:
            if not visited[candidate]:
                node = candidate
                break
        else:
            node = left.nearest(node)
        visited[node] = 1
        tour.append(node)
    return np.array(tour)


class _Unvisited:
    """A k-d tree of the nodes that are left, built again whenever half of them are gone."""

    def __init__(self, points: NDArray[np.float64], visited: bytearray) -> None:
        self._points, self._visited = points, visited
        self._nodes = np.arange(len(points))
        self._tree: cKDTree | None = None

    def nearest(self, node: int) -> int:
        """Return the unvisited node nearest to `node`; there must be one."""
        width = 2 * NEIGHBOURS
        while True:
            if self._tree is None:
                flags = np.frombuffer(self._visited, dtype=np.uint8)
                self._nodes = self._nodes[flags[self._nodes] == 0]
                self._tree = cKDTree(self._points[self._nodes])
            size = len(self._nodes)
            found = np.atleast_1d(self._tree.query(self._points[node], k=min(width, size))[1])
            for at in found.tolist():
                candidate = int(self._nodes[at])
                if not self._visited[candidate]:
                    return candidate
            width *= 4
            if width > 64 * NEIGHBOURS or width > 4 * size:
                self._tree = None
                width = 2 * NEIGHBOURS


def nearest_visits(
    demand: NDArray[np.int64],
    capacity: int,
    distances: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
) -> NDArray[np.int64]:
    """Build routes customer by customer; O(N^2) time.

    Parameters
    ----------
    demand
        ``(V,)`` of customers 1 .. V, none above the capacity.
    capacity
        Of a vehicle.
    distances
        From a node to some customers ``(M,)``; any increasing function of the distance serves.

    Returns
    -------
    array
        Customers, with 0 for every visit of the depot, at both ends too.
    """
    left, wanted = np.arange(1, len(demand) + 1), demand.copy()
    sequence, node, room = [0], 0, capacity
    while len(left):
        distance = distances(node, left)
        distance[wanted > room] = np.inf
        at = int(distance.argmin())
        if distance[at] == np.inf:
            sequence.append(0)
            node, room = 0, capacity
            continue
        node = int(left[at])
        room -= int(wanted[at])
        sequence.append(node)
        # The order of what is left is kept, so that ties go to the lower number.
        left, wanted = np.delete(left, at), np.delete(wanted, at)
    return np.array([*sequence, 0])


def squared_distances(
    points: NDArray[np.float64],
) -> Callable[[int, NDArray[np.int64]], NDArray[np.float64]]:
    """Return squared Euclidean distances between rows of ``(N, D)`` points, for `nearest_visits`."""

    def squared(node: int, left: NDArray[np.int64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = ((points[left] - points[node]) ** 2).sum(1)
        return found

    return squared
