"""Minimum coin change, each coin at most once: which fewest coins make the target exactly?

Tokens ``[coin, T]``, coins sorted ascending. Half of the targets are aimed to be reachable. The label is one optimum, chosen
as the public code does: coin i counts as used at a sum only if it strictly lowers the number of coins there; traced back
from the last coin. All zero where the target cannot be made. Legacy: a uniform target, the smallest number of
coins (0 where there is none) as one number per instance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.tasks import bits
from nco_bench.problems.tasks.arrange import add_noise, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges

LARGEST_TARGET = 63
"""A set of sums is one machine word."""


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    coins = np.sort(draws.integers(*ranges.values, n), axis=1)
    low, high = ranges.target_range
    if variant == "legacy":
        drawn = draws.integers(low, high)
        mask = label(coins, drawn)
        return Clean(with_shared([coins], drawn), mask.sum(axis=1, dtype=np.float32))
    solvable, chosen = draws.uniform() < 0.5, draws.uniform()
    levels = _levels(coins, high)
    inside = bits.as_flags(levels[-1][-1:])[:, low : high + 1]
    outside = ~inside
    aimed = np.where(solvable, inside.any(axis=1), ~outside.any(axis=1))
    target = low + bits.pick(np.where(aimed[:, None], inside, outside), chosen)
    return Clean(with_shared([coins], target), _trace(coins, target, levels))


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to half the coins, in place."""
    add_noise(draws, inputs, noise, features=(0,))


def label(coins: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return the canonical mask ``(B, n)`` of positive coins for targets 0 .. 63.

    Raises
    ------
    BadInputError
        For a larger target.
    """
    return _trace(coins, target, _levels(coins, int(target.max(initial=0))))


def _levels(coins: NDArray[np.integer], target: int) -> list[NDArray[np.uint64]]:
    """Return, after 0 .. n coins, the sets of sums that k = 0, 1, .. coins or fewer can make, each ``(K + 1, B)``.

    Sums beyond 63 fall out of the word; more than `target` coins are never needed, as a coin is at least 1.
    """
    if target > LARGEST_TARGET:
        raise BadInputError(
            f"min-coin-change: target {target} is above {LARGEST_TARGET}; give a smaller one."
        )
    count, n = coins.shape
    most = min(n, target)
    levels = [np.ones((most + 1, count), dtype=np.uint64)]
    one, last = np.uint64(1), np.uint64(63)
    for coin in coins.T:
        step = np.minimum(coin, 64).astype(np.uint64) - one
        after = levels[-1].copy()
        # In two steps, since a shift by 64 is undefined; a coin above 63 falls out either way.
        after[1:] |= (levels[-1][:-1] << np.minimum(step, last)) << one
        levels.append(after)
    return levels


def _trace(
    coins: NDArray[np.integer], target: NDArray[np.integer], levels: list[NDArray[np.uint64]]
) -> NDArray[np.float32]:
    count, n = coins.shape
    mask, left = np.zeros((count, n), dtype=np.float32), target.astype(np.int64)
    possible = _held(levels[-1][-1], left)
    for item in range(n - 1, -1, -1):
        gained = (levels[item + 1] & ~levels[item]) >> left.astype(np.uint64)
        used = possible & (np.bitwise_or.reduce(gained, axis=0) & np.uint64(1)).astype(bool)
        mask[:, item] = used
        left -= used * coins[:, item]
    return mask


def _held(sets: NDArray[np.uint64], member: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (sets >> member.astype(np.uint64) & np.uint64(1)).astype(bool)
