"""Bin packing by first-fit decreasing: which items open a new bin?

Sizes clamped to [1, C], sorted descending; tokens ``[size, C, i / (n - 1)]``. With values of 11..100 and capacities
of 10..30 nearly all sizes equal C, so 99.6 % of the labels of ``value-ood`` are 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks.arrange import add_noise, positions
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    sizes, capacity = draws.integers(*ranges.values, n), draws.integers(*ranges.target_range)
    sizes = -np.sort(-np.clip(sizes, 1, capacity[:, None]), axis=1)
    inputs = np.empty((*sizes.shape, 3), dtype=np.float32)
    inputs[..., 0], inputs[..., 1], inputs[..., 2] = sizes, capacity[:, None], positions(n)
    return Clean(inputs, label(sizes, capacity)[0])


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to half the sizes, in place, and clamp them to [1, C]."""
    add_noise(draws, inputs, noise, features=(0,))
    inputs[..., 0] = np.clip(inputs[..., 0], 1, inputs[..., 1])


def label(
    sizes: NDArray[np.integer], capacity: NDArray[np.integer]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """First-fit in the given order.

    Parameters
    ----------
    sizes
        ``(B, n)``, each at most the capacity.
    capacity
        ``(B,)``.

    Returns
    -------
    tuple
        ``(B, n)`` float32 0/1, whether an item opens a bin, and ``(B, n)`` int64, the bin of each item.
    """
    count, n = sizes.shape
    # Batch last, so that the work on one bin runs over contiguous memory.
    space = np.repeat(capacity.astype(np.int32)[None], n, axis=0)
    assignment = np.empty((n, count), dtype=np.int64)
    opened, rows, bins = np.zeros(count, dtype=np.int64), np.arange(count), 0
    opens = np.empty((n, count), dtype=bool)
    for item in range(n):
        size = sizes[:, item].astype(np.int32)
        bins = min(n, bins + 1)
        place = (space[:bins] >= size).argmax(axis=0)
        space[place, rows] -= size
        opens[item] = place == opened
        opened += opens[item]
        assignment[item] = place
        bins = int(opened.max(initial=0))
    return opens.T.astype(np.float32), assignment.T
