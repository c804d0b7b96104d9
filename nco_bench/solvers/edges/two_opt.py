"""2-opt that always makes the best move there is, as DIFUSCO's code does after merging.

The official code fills an N x N matrix with the changes of all moves for every move. Here a move is looked for only where
it can pay: it shortens the tour only if one of its new edges is shorter than the old edge beside it, so for each old edge
the cities nearer to its end than its other end are enough (from a list of neighbours; all cities where that list is too
short). The moves made are the same, without the matrix.

Not the project's solver ``two-opt``, which makes the first improving move and moves segments too.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nco_bench.nn.compiling import njit

NEIGHBOURS = 32
LEAST_GAIN = 1e-6
"""A move that shortens the tour by less is not made (the coordinates lie in the unit square)."""
MOVES_PER_CALL = 64


def improve_best_first(
    coords: NDArray[np.float64], tour: NDArray[np.int64], most_moves: int, stop: float | None = None
) -> tuple[NDArray[np.int64], int]:
    """Make best moves until none gains, `most_moves` are made or the clock (`time.perf_counter`) passes `stop`.

    Parameters
    ----------
    coords
        ``(N, 2)`` in the unit square.
    tour
        ``(N,)``.

    Returns
    -------
    tour, moves
        ``(N,)`` the improved tour, beginning with the same node, and the number of moves.
    """
    n = len(tour)
    tour = tour.astype(np.int64).copy()
    if n < 4:
        return tour, 0
    coords = np.ascontiguousarray(coords, dtype=np.float64)
    near = cKDTree(coords).query(coords, k=min(NEIGHBOURS + 1, n))[1].astype(np.int32)
    position = np.empty(n, dtype=np.int64)
    position[tour] = np.arange(n)
    moves = 0
    while moves < most_moves and (stop is None or time.perf_counter() < stop):
        asked = min(MOVES_PER_CALL, most_moves - moves)
        made = _moves(coords, tour, position, near, asked)
        moves += made
        if made < asked:
            break
    return tour, moves


@njit(cache=True)
def _length(coords, a, b):  # type: ignore[no-untyped-def]
    x, y = coords[a, 0] - coords[b, 0], coords[a, 1] - coords[b, 1]
    return np.sqrt(x * x + y * y)


@njit(cache=True)
def _moves(coords, tour, position, near, most):  # type: ignore[no-untyped-def]
    n = len(tour)
    onward = np.empty(n)
    for made in range(most):
        for p in range(n):
            onward[p] = _length(coords, tour[p], tour[(p + 1) % n])
        best = np.array([0.0, 0.0, 0.0])  # change and both positions
        for p in range(n):
            _look_around(coords, tour, position, near, onward, p, 0, best)
            _look_around(coords, tour, position, near, onward, (p - 1) % n, 1, best)
        if not best[0] < -LEAST_GAIN:
            return made
        i, j = int(best[1]) + 1, int(best[2])
        while i < j:
            tour[i], tour[j] = tour[j], tour[i]
            i, j = i + 1, j - 1
        for p in range(int(best[1]) + 1, int(best[2]) + 1):
            position[tour[p]] = p
    return most


@njit(cache=True)
def _look_around(coords, tour, position, near, onward, edge, side, best):  # type: ignore[no-untyped-def]
    """Try moves that join an end of the edge at a position (side 0: its start) to a city nearer than its other end."""
    n = len(tour)
    city, reach = tour[(edge + side) % n], onward[edge]
    for k in range(near.shape[1]):
        other = near[city, k]
        if _length(coords, city, other) >= reach:
            return
        _try(coords, tour, onward, edge, (position[other] - side) % n, best)
    if near.shape[1] < n:
        for other in range(n):
            if _length(coords, city, other) < reach:
                _try(coords, tour, onward, edge, (position[other] - side) % n, best)


@njit(cache=True)
def _try(coords, tour, onward, p, q, best):  # type: ignore[no-untyped-def]
    """Keep the move of the edges at two positions if it is better, or as good and earlier."""
    if p > q:
        p, q = q, p
    if q - p < 2:
        return
    n = len(tour)
    joined = _length(coords, tour[p], tour[q]) + _length(coords, tour[p + 1], tour[(q + 1) % n])
    change = joined - onward[p] - onward[q]
    if change < best[0] or (change == best[0] and (p, q) < (int(best[1]), int(best[2]))):
        best[0], best[1], best[2] = change, p, q
