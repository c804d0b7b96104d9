"""Knapsack 0/1: which items make the greatest total value within the capacity?

Tokens ``[v, w, C]``, sorted ascending by value, ties in the order of generation. The label is one optimum, chosen as
the public code does: from the last item backwards, an item is taken iff it changes the table's entry at
what is left of the capacity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks.arrange import PERTURBED, sorted_pairs, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges


def sample_items(
    draws: Draws, n: int, ranges: Ranges
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Draw values and weights ``(B, n)``, sorted by value, and capacities ``(B,)``."""
    values, weights = draws.integers(*ranges.values, n), draws.integers(*ranges.weight_range, n)
    capacity = draws.integers(*ranges.target_range)
    return *sorted_pairs(values, weights), capacity


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    values, weights, capacity = sample_items(draws, n, ranges)
    return Clean(with_shared([values, weights], capacity), label(values, weights, capacity)[0])


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to values and weights of half the items, in place; a weight stays at least 1."""
    length = inputs.shape[1]
    hit = draws.flags(PERTURBED, length)
    inputs[..., 0] += hit * draws.integers(*noise, length)
    inputs[..., 1] = np.maximum(inputs[..., 1] + hit * draws.integers(*noise, length), 1)


def label(
    values: NDArray[np.integer], weights: NDArray[np.integer], capacity: NDArray[np.integer]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the canonical optimal mask and the optimal value.

    Parameters
    ----------
    values, weights
        ``(B, n)`` positive integers in token order.
    capacity
        ``(B,)`` non-negative integers.

    Returns
    -------
    tuple
        ``(B, n)`` float32 0/1 and ``(B,)`` int64.
    """
    count, n = values.shape
    width = int(capacity.max(initial=0)) + 1
    # Entries of what is heavier than all that is left: `pad` columns of minus infinity before capacity 0.
    pad = width
    best = np.zeros((count, pad + width), dtype=np.int32)
    best[:, :pad] = np.iinfo(np.int32).min // 2
    start = (np.arange(count) * (pad + width) + pad)[:, None] + np.arange(width)
    taken = np.empty((n, count, width), dtype=bool)
    held = np.minimum(weights, pad)
    for item in range(n):
        with_item = best.ravel().take(start - held[:, item, None])
        with_item += values[:, item, None].astype(np.int32)
        np.greater(with_item, best[:, pad:], out=taken[item])
        np.maximum(best[:, pad:], with_item, out=best[:, pad:])
    rows = np.arange(count)
    optimum = best[rows, pad + capacity].astype(np.int64)
    mask, left = np.empty((count, n), dtype=np.float32), capacity.astype(np.int64)
    for item in range(n - 1, -1, -1):
        chosen = taken[item, rows, left]
        mask[:, item] = chosen
        left -= chosen * weights[:, item]
    return mask, optimum
