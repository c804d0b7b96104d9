"""Balanced partition: split values into two parts with sums as equal as possible.

Tokens ``[x]``, sorted ascending. The label is the part with the largest reachable sum up to half of the total, chosen
as the public code does: every sum remembers the first item that reached it, and the sum before. Legacy: the smallest
difference, one number per instance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks import bits
from nco_bench.problems.tasks.arrange import add_noise, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    values = np.sort(draws.integers(*ranges.values, n), axis=1)
    mask, difference = label(values)
    return Clean(with_shared([values]), difference.astype(np.float32) if variant == "legacy" else mask)


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to half the values, in place."""
    add_noise(draws, inputs, noise, features=(0,))


def label(values: NDArray[np.integer]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the canonical mask ``(B, n)`` of positive values, and the smallest difference ``(B,)``."""
    total = values.sum(axis=1, dtype=np.int64)
    half = total // 2
    sums = bits.prefix_sums(values, int(half.max(initial=0)))
    left = _largest_up_to(sums[-1], half)
    difference = total - 2 * left
    mask = np.empty(values.shape, dtype=np.float32)
    for item in range(values.shape[1] - 1, -1, -1):
        # The first item that reaches a sum is the one before which the sum is not reachable.
        used = ~bits.contains(sums[item], left)
        mask[:, item] = used
        left = left - used * values[:, item]
    return mask, difference


def _largest_up_to(sets: NDArray[np.uint64], limit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest member of each set that is at most `limit`; 0 is in every set."""
    words = np.arange(len(sets))[:, None]
    whole = np.where(words < limit // bits.WORD, np.iinfo(np.uint64).max, 0).astype(np.uint64)
    part = (np.uint64(2) << (limit % bits.WORD).astype(np.uint64)) - np.uint64(1)
    inside = sets & np.where(words == limit // bits.WORD, part, whole)
    word = len(sets) - 1 - (inside[::-1] != 0).argmax(axis=0)
    return word * bits.WORD + _highest_bit(inside[word, np.arange(sets.shape[1])])


def _highest_bit(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of the highest set bit of non-zero words."""
    index = np.zeros(words.shape, dtype=np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        above = (words >> np.uint64(step)) != 0
        index += step * above
        words = np.where(above, words >> np.uint64(step), words)
    return index
