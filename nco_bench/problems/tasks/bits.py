"""Sets of whole numbers as bits, one set per instance: ``(W, B)`` uint64, bit s of instance b in word s // 64.

Subset sums of a batch cost a few shifts per item and word, where a table of flags costs as many steps as there are sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 64


def empty(largest: int, count: int) -> NDArray[np.uint64]:
    """Return `count` empty sets that can hold 0 .. `largest`."""
    return np.zeros((largest // WORD + 1, count), dtype=np.uint64)


def single(largest: int, members: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return the sets {members[b]}."""
    sets = empty(largest, len(members))
    member = members.astype(np.int64)
    sets[member // WORD, np.arange(len(member))] = np.uint64(1) << (member % WORD).astype(np.uint64)
    return sets


def shifted(sets: NDArray[np.uint64], amount: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Add a non-negative `amount` ``(B,)`` to all members; what grows beyond the words is lost."""
    left = amount.astype(np.uint64)
    one, most = np.uint64(1), np.uint64(WORD - 1)
    while True:
        # One bit more than 63 in two steps: a shift by 64 is undefined.
        step = np.minimum(left, most)
        moved = sets << step
        if len(sets) > 1:
            moved[1:] |= (sets[:-1] >> (most - step)) >> one
        left = left - step
        if not left.any():
            return moved
        sets = moved


def contains(sets: NDArray[np.uint64], member: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether each set contains its `member` ``(B,)``; numbers outside the words are in no set."""
    position = member.astype(np.int64)
    inside = (position >= 0) & (position < len(sets) * WORD)
    position = np.where(inside, position, 0)
    words = sets[position // WORD, np.arange(sets.shape[1])]
    return inside & ((words >> (position % WORD).astype(np.uint64)) & np.uint64(1)).astype(bool)


def as_flags(sets: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return ``(B, 64 W)`` flags, one per possible member."""
    rows = np.ascontiguousarray(sets.T).astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(rows, axis=1, bitorder="little").view(np.bool_)


def pick(flags: NDArray[np.bool_], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of a uniformly chosen true flag of each row ``(B, K)``; 0 where there is none."""
    numbers = flags.sum(axis=1)
    found = np.flatnonzero(flags)
    if not len(found):
        return np.zeros(len(flags), dtype=np.int64)
    first = np.cumsum(numbers) - numbers
    chosen = np.minimum(first + (uniform * numbers).astype(np.int64), len(found) - 1)
    return np.where(numbers > 0, found[chosen] - np.arange(len(flags)) * flags.shape[1], 0)


def prefix_sums(values: NDArray[Any], largest: int) -> list[NDArray[np.uint64]]:
    """Return the subset sums after 0, 1, .., n items of ``(B, n)`` non-negative values, sums above `largest` left out."""
    sums = [single(largest, np.zeros(len(values), dtype=np.int64))]
    for item in values.T:
        sums.append(sums[-1] | shifted(sums[-1], item))
    return sums
