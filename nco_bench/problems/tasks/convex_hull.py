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

_EMPTY = np.inf


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
    column = (px - px.min(axis=1, keepdims=True)).astype(np.int64)
    lowest = _by_column(np.minimum, column, py, _EMPTY)
    highest = -_by_column(np.minimum, column, -py, _EMPTY)
    rows = np.arange(len(px))[:, None]
    on_lower = _is_lower_vertex(lowest)[column.T, rows.T].T & (py == lowest[column.T, rows.T].T)
    on_upper = _is_lower_vertex(-highest)[column.T, rows.T].T & (py == highest[column.T, rows.T].T)
    return (on_lower | on_upper).astype(np.float32)


def _by_column(
    reduce: np.ufunc, column: NDArray[np.int64], values: NDArray[np.integer], start: float
) -> NDArray[np.float32]:
    """Return ``(K, B)``: the reduced value of each column, `start` where it has no point."""
    count = len(column)
    table = np.full((int(column.max()) + 1, count), start, dtype=np.float32)
    rows = np.arange(count)
    for item in range(column.shape[1]):
        place = (column[:, item], rows)
        table[place] = reduce(table[place], values[:, item])
    return table


def _is_lower_vertex(lowest: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether the lowest point of each column is a strict vertex of the lower hull, ``(K, B)``; ends are.

    It is one iff every slope to the left is below every slope to the right.
    """
    columns = len(lowest)
    present = np.isfinite(lowest)
    left = np.full(lowest.shape, -np.inf, dtype=np.float32)
    right = np.full(lowest.shape, np.inf, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        for step in range(1, columns):
            # An absent column gives an infinite slope, towards it on either side: the neutral one.
            slope = (lowest[step:] - lowest[:-step]) / np.float32(step)
            left[step:] = np.fmax(left[step:], np.where(present[:-step], slope, -np.inf))
            right[:-step] = np.fmin(right[:-step], np.where(present[step:], slope, np.inf))
    return present & (left < right)
