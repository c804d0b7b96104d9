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


def nearest_visits_by_tree(
    points: NDArray[np.float64], demand: NDArray[np.int64], capacity: int
) -> NDArray[np.int64]:
    """Build the routes of `nearest_visits` by Euclidean distance in about O(N log N) time, ties included.

    Parameters
    ----------
    points
        ``(1 + V, D)``, the depot first.
    demand, capacity
        As in `nearest_visits`, which says what is returned, too.
    """
    n = len(points)
    wanted = np.concatenate([[0], demand])
    near = _Near(points, min(NEIGHBOURS, n - 1))
    visited = bytearray(n)
    visited[0] = 1
    left = _Fitting(points, visited, wanted)
    squares = ((points[1:] - points[0]) ** 2).sum(1)
    by_weight, by_distance = (iter((1 + np.argsort(of, kind="stable")).tolist()) for of in (demand, squares))
    light = next(by_weight, 0)
    needs = wanted.tolist()
    sequence, node, room = [0], 0, capacity
    for done in range(n - 1):
        while visited[light]:
            light = next(by_weight)
        if needs[light] > room:
            sequence.append(0)
            node, room = 0, capacity
        if node == 0:  # an empty vehicle has room for any
            found = next(one for one in by_distance if not visited[one])
        else:
            found = next((one for one in near.of(node) if not visited[one] and needs[one] <= room), 0)
        node = found or left.nearest(node, room, n - 1 - done)
        visited[node] = 1
        room -= needs[node]
        sequence.append(node)
    return np.array([*sequence, 0])


class _Near:
    """The K nodes nearest to each, ties by number; without those that one further away may be as near as."""

    def __init__(self, points: NDArray[np.float64], k: int) -> None:
        found = np.sort(cKDTree(points).query(points, k=k + 1)[1].reshape(len(points), -1), axis=1)
        squares = ((points[found] - points[:, None]) ** 2).sum(2)
        order = np.argsort(squares, axis=1, kind="stable")
        squares = np.take_along_axis(squares, order, axis=1)
        whole = k + 1 == len(points)
        self._sure = np.where(squares < squares[:, -1:], 1, int(whole)).sum(1).tolist()
        self._nodes = np.take_along_axis(found, order, axis=1).tolist()

    def of(self, node: int) -> list[int]:
        """Return those of a node, the nearest first."""
        found: list[int] = self._nodes[node][: self._sure[node]]
        return found


class _Fitting:
    """A k-d tree of the customers that are left, built again whenever half of them are gone."""

    def __init__(self, points: NDArray[np.float64], visited: bytearray, wanted: NDArray[np.int64]) -> None:
        self._points, self._visited, self._wanted = points, np.frombuffer(visited, dtype=np.uint8), wanted
        self._nodes = np.empty(0, np.int64)
        self._tree: cKDTree | None = None

    def nearest(self, node: int, room: int, left: int) -> int:
        """Return the nearest of the `left` unvisited customers that fits, of several the lowest; there must be one."""
        if self._tree is None or 2 * left < len(self._nodes):
            self._nodes = np.flatnonzero(self._visited == 0)
            self._tree = cKDTree(self._points[self._nodes])
        width = 2 * NEIGHBOURS
        while True:
            width = min(width, len(self._nodes))
            found = self._nodes[np.atleast_1d(self._tree.query(self._points[node], k=width)[1])]
            squares = ((self._points[found] - self._points[node]) ** 2).sum(1)
            fits = (self._visited[found] == 0) & (self._wanted[found] <= room)
            if fits.any():
                least = squares[fits].min()
                if least < squares.max() or width == len(self._nodes):  # none beyond is as near
                    return int(found[fits & (squares == least)].min())
            width *= 4


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
