"""Convex hull: which points are vertices of the hull?

Integer points in their original order, tokens ``[px, py]``. A point on an edge of the hull counts only if it is a corner;
every point whose coordinates equal a corner's counts, duplicates too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks.arrange import add_noise, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    px, py = draws.integers(*ranges.values, n), draws.integers(*ranges.values, n)
    return Clean(with_shared([px, py]), label(px, py))


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to both coordinates of half the points, in place."""
    add_noise(draws, inputs, noise, features=(0, 1))


def label(px: NDArray[np.integer], py: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return ``(B, n)`` 0/1: which integer points equal a strict vertex of their row's hull.

    Only the lowest and the highest point of each column x can be vertices, so the work grows with the square
    of the number of columns instead of the points'. Coordinate differences up to 1,000: slopes of different
    fractions then differ in float32.
    """
    column = (px - px.min(axis=1, keepdims=True)).astype(np.int64).T
    # Place of each point in a flat (K, B) table, batch last: the work on one column runs over contiguous memory.
    place, columns = column * len(px) + np.arange(len(px)), int(column.max()) + 1
    high = py.T.astype(np.float32)
    on_lower = _is_corner(place, columns, high)
    on_upper = _is_corner(place, columns, -high)
    return np.ascontiguousarray((on_lower | on_upper).T).astype(np.float32)


def _is_corner(place: NDArray[np.int64], columns: int, high: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether points ``(n, B)`` are strict vertices of the lower hull; `place` is where each one's column stands."""
    table = np.full(columns * high.shape[1], np.inf, dtype=np.float32)
    for spot, values in zip(place, high, strict=True):
        table[spot] = np.minimum(table[spot], values)
    corner = _is_lower_vertex(table.reshape(columns, -1))
    return corner.ravel()[place] & (high == table[place])


def _is_lower_vertex(lowest: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether the lowest point of each column is a strict vertex of the lower hull, ``(K, B)``; ends are.

    It is one iff every slope to the left is below every slope to the right. A column without a point is infinitely
    high, so its slopes change no extremum of a column that has one.
    """
    left = np.full(lowest.shape, -np.inf, dtype=np.float32)
    right = np.full(lowest.shape, np.inf, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        for step in range(1, len(lowest)):
            slope = lowest[step:] - lowest[:-step]
            slope /= np.float32(step)
            np.maximum(left[step:], slope, out=left[step:])
            np.minimum(right[:-step], slope, out=right[:-step])
        return np.isfinite(lowest) & (left < right)
