"""2-opt and Or-opt within the routes of a CVRP solution, each a closed tour through the depot, as `two_opt` does them.

Letters in shapes: N nodes, the depot first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiling import njit
from nco_bench.solvers.classical.two_opt_moves import distance, work

ALL_STEPS = 2**62


def improve_routes(
    sequence: NDArray[np.integer], points: NDArray[np.float64], kind: int, neighbors: int
) -> NDArray[np.int64]:
    """Bring every route to a local optimum; customers stay in their routes.

    Parameters
    ----------
    sequence
        Customers with 0 for each visit of the depot, at both ends too.
    points
        ``(N, 3)`` coordinates.
    kind
        Of distances, see `two_opt_moves.KINDS`.
    neighbors
        Nearest nodes of the route that are considered per node.
    """
    found = sequence.astype(np.int64)
    _improve_routes(found, np.flatnonzero(found == 0), points, kind, neighbors)
    return found


@njit(cache=True)
def _improve_routes(sequence, depots, points, kind, neighbors):  # type: ignore[no-untyped-def]
    matrix = np.zeros((1, 1))
    for r in range(len(depots) - 1):
        nodes = sequence[depots[r] : depots[r + 1]].copy()  # the depot, then its customers
        n = len(nodes)
        if n < 4:
            continue
        own = points[nodes]
        tour = np.arange(n).astype(np.int32)
        position, queue, queued = tour.copy(), tour.copy(), np.ones(n, np.uint8)
        state = np.array([0, n, n])
        near = _near(own, matrix, kind, min(neighbors, n - 1))
        work(tour, position, near, own, matrix, kind, queue, queued, state, ALL_STEPS)
        first = position[0]
        for k in range(n):
            sequence[depots[r] + k] = nodes[tour[(first + k) % n]]


@njit(cache=True)
def _near(points, matrix, kind, count):  # type: ignore[no-untyped-def]
    """Return the nearest nodes of each node, nearest first, ``(n, count)``."""
    n = len(points)
    near, lengths = np.zeros((n, count), np.int32), np.empty(count)
    for a in range(n):
        some = 0
        for b in range(n):
            if a == b:
                continue
            length = distance(points, matrix, kind, a, b)
            if some == count and length >= lengths[some - 1]:
                continue
            at = some if some < count else count - 1
            while at > 0 and lengths[at - 1] > length:
                near[a, at], lengths[at] = near[a, at - 1], lengths[at - 1]
                at -= 1
            near[a, at], lengths[at] = b, length
            some = min(count, some + 1)
    return near
