"""SubsetSum (decision): does a subset, perhaps the empty one, sum to the target?

Tokens ``[x_i, T]``, x sorted ascending. Balanced variant: with probability 1/2 the target is a reachable sum, else a hole
between the smallest and the largest sum, or, without a hole, 1..5 beyond the largest. Legacy: a uniform target.

Negatives beyond the largest sum can be told by their size alone. They are 37 % of all instances at n = 8 and 51 %,
practically all negatives, at n = 64 (3 % with the values of ``value-ood``; 4,000 instances each).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks import bits
from nco_bench.problems.tasks.arrange import add_noise, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges

BEYOND = 5
"""Largest step beyond the largest sum where there is no hole."""


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    values = np.sort(draws.integers(*ranges.values, n), axis=1)
    if variant == "legacy":
        drawn = draws.integers(*ranges.target_range)
        return Clean(with_shared([values], drawn), label(values, drawn))
    coin, chosen, beyond = draws.uniform(), draws.uniform(), draws.integers(1, BEYOND)
    smallest, sums = _sums(values)
    reachable = bits.as_flags(sums)
    largest = np.maximum(values, 0).sum(axis=1) - smallest
    column = np.arange(reachable.shape[1])
    holes = ~reachable & (column <= largest[:, None])
    positive = coin < 0.5
    picked = bits.pick(np.where(positive[:, None], reachable, holes), chosen)
    no_hole = ~positive & ~holes.any(axis=1)
    target = smallest + np.where(no_hole, largest + beyond, picked)
    return Clean(with_shared([values], target), positive.astype(np.float32))


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to half the values, in place."""
    add_noise(draws, inputs, noise, features=(0,))


def label(values: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return ``(B,)`` 0/1: whether a subset of ``(B, n)`` sums to ``(B,)``."""
    smallest, sums = _sums(values)
    return bits.contains(sums, target - smallest).astype(np.float32)


def _sums(values: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the smallest sum, and all sums less the smallest.

    Taking x < 0 or leaving it is, seen from the smallest sum, leaving -x or taking it: so magnitudes suffice.
    """
    smallest = np.minimum(values, 0).sum(axis=1, dtype=np.int64)
    magnitudes = np.abs(values)
    width = int(magnitudes.sum(axis=1).max(initial=0))
    sums = bits.single(width, np.zeros(len(values), dtype=np.int64))
    for item in magnitudes.T:
        sums |= bits.shifted(sums, item)
    return smallest, sums
