"""3SUM (decision): do three entries at distinct positions sum to the target?

Tokens ``[x_i, T]``, x sorted ascending, T uniform and independent of x.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks import bits
from nco_bench.problems.tasks.arrange import add_noise, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges

DIRECT = 12
"""Up to this length all triples are tried; beyond, sums of one, two and three entries are kept as sets."""


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    values, target = np.sort(draws.integers(*ranges.values, n), axis=1), draws.integers(*ranges.target_range)
    return Clean(with_shared([values], target), label(values, target))


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to half the values, in place."""
    add_noise(draws, inputs, noise, features=(0,))


def label(values: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return ``(B,)`` 0/1: whether three entries of ``(B, n)`` at distinct positions sum to ``(B,)``."""
    found = _by_triples(values, target) if values.shape[1] <= DIRECT else _by_sets(values, target)
    return found.astype(np.float32)


def _by_triples(values: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.bool_]:
    columns = np.ascontiguousarray(values.T).astype(np.int32)
    found = np.zeros(len(values), dtype=bool)
    for i, j in combinations(range(len(columns) - 1), 2):
        found |= (columns[j + 1 :] == target - columns[i] - columns[j]).any(axis=0)
    return found


def _by_sets(values: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.bool_]:
    lowest = int(values.min())
    width = 3 * (int(values.max()) - lowest)
    one = bits.empty(width, len(values))
    two, three = one.copy(), one.copy()
    for item in (values - lowest).T:
        three |= bits.shifted(two, item)
        two |= bits.shifted(one, item)
        one |= bits.single(width, item)
    return bits.contains(three, target.astype(np.int64) - 3 * lowest)
