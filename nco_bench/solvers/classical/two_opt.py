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

CVRP: insertion by angle, then the same moves within each route (`route_two_opt`).
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.distances import EARTH_RADIUS_KM
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical import random_insertion
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.classical.nearest_neighbor import nearest_by_matrix, search_points
from nco_bench.solvers.decoding.nearest import nearest_by_tree
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.small import all_points, distance_matrix, easy_tour, join_fixed_edges

KINDS = {
    "euclidean": 0, "tsplib-nint": 1, "cvrplib-nint": 1, "ceil": 2, "att": 3, "geo": 4, "manhattan": 5, "maximum": 6,
    "explicit": 7,
}  # fmt: skip
STARTS = ("nearest", "insertion")
NEAR, NEAR_CVRP = 20, 40
"""Near nodes of the insertion that is improved."""
STEPS_PER_CALL = 20_000
IMPROVEMENT = 1e-10
"""Smallest gain of a move, relative to the longest edge; keeps rounding errors from cycling."""


class TwoOpt(ChildSolver):
    """Nearest neighbour + 2-opt/Or-opt for the TSP; insertion + 2-opt/Or-opt within routes for the CVRP."""

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
    """Compile before the clock starts."""
    points = np.random.default_rng(0).random((20, 2))
    few = {**params, "neighbors": 5}
    solve(TSPInstance("warm-up", points), 0, None, few)
    if params.get("backend") is None or params["start"] == "insertion":
        solve(CVRPInstance("warm-up", points[0], points[1:], np.ones(19), 5), 0, None, few)


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Build and improve one solution; runs in the child."""
    stop = None if time_limit is None else time.perf_counter() + time_limit
    if isinstance(instance, CVRPInstance) or params["start"] == "insertion":
        near = NEAR_CVRP if isinstance(instance, CVRPInstance) else NEAR
        built = random_insertion.solve(instance, seed, time_limit, {"order": "", "near": near})
        return built if isinstance(built, Solved | Failure) else improved(instance, built, params, stop)
    easy = easy_tour(instance)
    if easy is not None:
        return easy
    if instance.convention == "explicit":
        tour = nearest_by_matrix(distance_matrix(instance))
    else:
        tour = nearest_by_tree(search_points(instance))
    return improved(instance, tour, params, stop)


def improved(
    instance: TSPInstance | CVRPInstance,
    solution: NDArray[np.integer],
    params: dict[str, Any],
    stop: float | None = None,
) -> NDArray[np.integer]:
    """Bring a tour, or each route, to a local optimum, or as far as `stop` allows (routes: always all of them)."""
    kind = KINDS[instance.convention]
    if isinstance(instance, CVRPInstance):
        from nco_bench.solvers.classical.route_two_opt import (
            improve_routes,
        )  # compiles what it needs from here

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
        _work(moved, position, near, points, matrix, kind, queue, queued, state, STEPS_PER_CALL)
    found: NDArray[np.int32] = tour.astype(np.int32)[moved]
    return found


@njit(cache=True)
def _distance(points, matrix, kind, a, b):  # type: ignore[no-untyped-def]
    if kind == 7:
        return matrix[a, b]
    x, y = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1]
    if kind == 5:
        return np.floor(abs(x) + abs(y) + 0.5)
    if kind == 6:
        return max(np.floor(abs(x) + 0.5), np.floor(abs(y) + 0.5))
    if kind == 4:
        z = points[a, 2] - points[b, 2]
        chord = min(1.0, 0.5 * np.sqrt(x * x + y * y + z * z))
        return np.floor(2.0 * EARTH_RADIUS_KM * np.arcsin(chord) + 1.0)
    square = x * x + y * y
    if kind == 3:
        return np.ceil(np.sqrt(square / 10.0))
    length = np.sqrt(square)
    if kind == 1:
        return np.floor(length + 0.5)
    return np.ceil(length) if kind == 2 else length


@njit(cache=True)
def _push(queue, queued, state, node):  # type: ignore[no-untyped-def]
    if queued[node] == 0:
        queued[node] = 1
        queue[(state[0] + state[1]) % len(queue)] = node
        state[1] += 1


@njit(cache=True)
def _work(tour, position, near, points, matrix, kind, queue, queued, state, steps):  # type: ignore[no-untyped-def]
    """Take up to `steps` nodes from the queue and try to improve the tour at each."""
    for _ in range(steps):
        if state[1] == 0:
            return
        node = queue[state[0]]
        state[0] = (state[0] + 1) % len(queue)
        state[1] -= 1
        queued[node] = 0
        while _two_opt(tour, position, near, points, matrix, kind, queue, queued, state, node) or _or_opt(
            tour, position, near, points, matrix, kind, queue, queued, state, node
        ):
            pass


@njit(cache=True)
def _two_opt(tour, position, near, points, matrix, kind, queue, queued, state, a):  # type: ignore[no-untyped-def]
    n = len(tour)
    for step in (1, -1):
        b = tour[(position[a] + step) % n]
        ab = _distance(points, matrix, kind, a, b)
        for k in range(near.shape[1]):
            c = near[a, k]
            gain = ab - _distance(points, matrix, kind, a, c)
            if gain <= IMPROVEMENT * ab:
                break
            if c in (a, b):
                continue
            d = tour[(position[c] + step) % n]
            gain += _distance(points, matrix, kind, c, d) - _distance(points, matrix, kind, b, d)
            if d != a and gain > IMPROVEMENT * ab:
                inside = (step * (position[c] - position[b])) % n + 1
                if min(inside, n - inside) > state[2]:
                    continue
                if step == 1:
                    _reverse(tour, position, position[b], position[c])
                else:
                    _reverse(tour, position, position[c], position[b])
                for node in (a, b, c, d):
                    _push(queue, queued, state, node)
                return True
    return False


@njit(cache=True)
def _reverse(tour, position, i, j):  # type: ignore[no-untyped-def]
    """Reverse the path from position i forward to position j, or the rest of the cycle if that is shorter."""
    n = len(tour)
    inside = (j - i) % n + 1
    if 2 * inside > n:
        i, j = (j + 1) % n, (i - 1) % n
        inside = n - inside
    for _ in range(inside // 2):
        u, v = tour[i], tour[j]
        tour[i], tour[j] = v, u
        position[v], position[u] = i, j
        i, j = i + 1, j - 1
        if i == n:
            i = 0
        if j < 0:
            j = n - 1


@njit(cache=True)
def _or_opt(tour, position, near, points, matrix, kind, queue, queued, state, a):  # type: ignore[no-untyped-def]
    """Move the 1 to 3 nodes that begin with `a`, in either direction, so that `a` comes beside a near neighbour."""
    n = len(tour)
    for step in (1, -1):
        p = tour[(position[a] - step) % n]
        for size in range(1, min(4, n - 2)):
            e = tour[(position[a] + step * (size - 1)) % n]
            q = tour[(position[a] + step * size) % n]
            removed = _distance(points, matrix, kind, p, a) + _distance(points, matrix, kind, e, q)
            saved = removed - _distance(points, matrix, kind, p, q)
            for k in range(near.shape[1]):
                c = near[a, k]
                gain = saved - _distance(points, matrix, kind, a, c)
                if gain <= IMPROVEMENT * removed:
                    break
                if ((position[c] - position[a]) * step) % n < size:
                    continue
                for side in (1, -1):
                    f = tour[(position[c] + side) % n]
                    if ((position[f] - position[a]) * step) % n < size:
                        continue
                    more = _distance(points, matrix, kind, c, f) - _distance(points, matrix, kind, e, f)
                    if gain + more > IMPROVEMENT * removed:
                        first = position[a] if step == 1 else position[e]
                        left = c if side == 1 else f
                        ahead = (position[left] - (first + size)) % n + 1
                        if min(ahead, n - size - ahead) > state[2]:
                            continue
                        _shift(tour, position, first, size, position[left], (step == 1) != (side == 1))
                        for node in (p, q, a, e, c, f):
                            _push(queue, queued, state, node)
                        return True
    return False


@njit(cache=True)
def _shift(tour, position, first, size, left, backwards):  # type: ignore[no-untyped-def]
    """Move the `size` nodes from position `first` on to after the node at position `left`, reversed if `backwards`."""
    n = len(tour)
    segment = np.empty(size, dtype=np.int32)
    for k in range(size):
        segment[size - 1 - k if backwards else k] = tour[(first + k) % n]
    ahead = (left - (first + size)) % n + 1
    if 2 * ahead <= n - size:
        for k in range(ahead):
            node, at = tour[(first + size + k) % n], (first + k) % n
            tour[at] = node
            position[node] = at
        start = (first + ahead) % n
    else:
        behind = n - size - ahead
        for k in range(behind):
            node, at = tour[(first - 1 - k) % n], (first + size - 1 - k) % n
            tour[at] = node
            position[node] = at
        start = (first - behind) % n
    for k in range(size):
        at = (start + k) % n
        tour[at] = segment[k]
        position[segment[k]] = at
