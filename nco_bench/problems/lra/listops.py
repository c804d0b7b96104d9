"""ListOps of Long Range Arena by the rule of its public generator (``lra_benchmarks/data/listops.py``; Tay et al., 2021,
after Nangia and Bowman, 2018).

A node at depth 1..9 is an operator with probability 0.25, else a digit; at depth 10 it is a digit. Operators MIN, MAX,
MED (median, of an even number of arguments the mean of the middle two, truncated) and SM (sum modulo 10) are equally
likely and have 2 to 10 arguments. An expression is kept if its length, 2 per operator and 1 per digit, is above 500 and
below 2000; that is also its number of tokens, because the brackets of the original's binary form carry nothing and are
dropped, as the original's tokeniser does. Expressions of a set differ from each other.

Trees are drawn many at once, level by level. They fall as in the original: those that cannot be kept are dropped early.

A shorter setting for small machines, ours: ``n`` in place of 2000 and a quarter of it in place of 500.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError

STREAM_VERSION = 1
"""Part of every stream's key; bumped when the same name gives other expressions."""

MAX_DEPTH, MAX_ARGUMENTS, OPERATOR_SHARE = 10, 10, 0.25
LONGEST, SMALLEST_LONGEST = 2000, 12
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
SYMBOLS = ("<pad>", *map(str, range(10)), *OPERATORS, "]")
"""Symbol of each token."""

FIRST_OPERATOR, END = 11, 15
ROOTS = 256
"""Trees that are begun together; part of the definition of a stream."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Level:
    """Nodes of one depth, siblings together.

    Attributes
    ----------
    root, parent
        Index of each node's tree, and of its parent in the level above.
    operator
        0..3, or -1 for a digit.
    digit
        Value of a digit; of no meaning for an operator.
    """

    root: Ints
    parent: Ints
    operator: Ints
    digit: Ints


def bounds(n: int) -> tuple[int, int]:
    """Return between which lengths, both excluded, an expression of the setting n lies; 500 and 2000 for 2000.

    Raises
    ------
    BadInputError
        For a setting that is not supported.
    """
    if not SMALLEST_LONGEST <= n <= LONGEST:
        raise BadInputError(f"lra-listops: n={n} is not supported; give {SMALLEST_LONGEST} to {LONGEST}.")
    return n // 4, n


def expressions(n: int, seed: int, purpose: int = 0) -> Iterator[tuple[NDArray[np.int16], int]]:
    """Yield tokens and value of expressions without end; equal arguments give equal expressions.

    Parameters
    ----------
    n
        The setting, see `bounds`.
    seed, purpose
        Of the draws; 0 for sets, 1 for training.
    """
    low, high = bounds(n)
    key = np.random.SeedSequence((seed, purpose, STREAM_VERSION, zlib.crc32(f"lra-listops{n}".encode())))
    state, block = key.generate_state(2, np.uint64), 0
    while True:
        rng = np.random.Generator(np.random.Philox(key=state, counter=[0, 0, 0, block]))
        yield from _written(_kept(_forest(rng, high), low, high))
        block += 1


def distinct(n: int, seed: int, count: int) -> list[tuple[NDArray[np.int16], int]]:
    """Return the first `count` different expressions of a stream.

    Raises
    ------
    BadInputError
        When a short setting has not so many.
    """
    found: dict[bytes, tuple[NDArray[np.int16], int]] = {}
    repeated = 0
    for tokens, value in expressions(n, seed):
        before = len(found)
        found.setdefault(tokens.tobytes(), (tokens, value))
        repeated = repeated + 1 if len(found) == before else 0
        if len(found) == count:
            break
        if repeated > 1000:
            raise BadInputError(f"lra-listops{n}: fewer than {count} different expressions; give a larger n.")
    return list(found.values())


def _forest(rng: np.random.Generator, high: int) -> list[_Level]:
    """Draw the levels of `ROOTS` trees; a tree stops growing where it is too long.

    The root is an operator always: a single digit is never long enough.
    """
    none = np.zeros(ROOTS, dtype=np.int64)
    levels = [_Level(np.arange(ROOTS), none - 1, rng.integers(0, 4, ROOTS), none)]
    length = np.full(ROOTS, 2)
    for depth in range(2, MAX_DEPTH + 1):
        above = levels[-1]
        parents = np.flatnonzero((above.operator >= 0) & (length[above.root] < high))
        parent = np.repeat(parents, rng.integers(2, MAX_ARGUMENTS + 1, len(parents)))
        k = len(parent)
        operator = np.where(rng.random(k) < OPERATOR_SHARE, rng.integers(0, 4, k), -1)
        if depth == MAX_DEPTH:
            operator[:] = -1
        root = above.root[parent]
        levels.append(_Level(root, parent, operator, rng.integers(0, 10, k)))
        length += np.bincount(root, weights=1 + (operator >= 0), minlength=ROOTS).astype(np.int64)
    return levels


def _kept(levels: list[_Level], low: int, high: int) -> list[_Level]:
    """Drop the trees whose length is not between `low` and `high`."""
    parts = [np.bincount(i.root, weights=1 + (i.operator >= 0), minlength=ROOTS) for i in levels]
    length = np.sum(parts, axis=0)
    good = (length > low) & (length < high)
    kept, position = [], np.zeros(ROOTS, dtype=np.int64)
    for level in levels:
        chosen = good[level.root]
        parent = position[level.parent[chosen]]
        kept.append(_Level(level.root[chosen], parent, level.operator[chosen], level.digit[chosen]))
        position = np.cumsum(chosen) - 1
    return kept


def _written(levels: list[_Level]) -> Iterator[tuple[NDArray[np.int16], int]]:
    """Yield tokens and value of each tree."""
    values, lengths = _evaluated(levels)
    starts = np.cumsum(lengths[0]) - lengths[0]
    tokens = np.zeros(int(lengths[0].sum()), dtype=np.int16)
    place = starts
    for depth, (level, length) in enumerate(zip(levels, lengths, strict=True)):
        if depth:
            before = np.cumsum(length) - length
            first = np.searchsorted(level.parent, level.parent)  # parents ascend
            place = place[level.parent] + 1 + before - before[first]
        inner = level.operator >= 0
        tokens[place] = np.where(inner, FIRST_OPERATOR + level.operator, 1 + level.digit)
        tokens[(place + length - 1)[inner]] = END
    for start, length, value in zip(starts, lengths[0], values[0], strict=True):
        yield tokens[start : start + length].copy(), int(value)


def _evaluated(levels: list[_Level]) -> tuple[list[Ints], list[Ints]]:
    """Return value and length of every node, level by level, from the bottom up."""
    values: list[Ints] = [level.digit.copy() for level in levels]
    lengths: list[Ints] = [np.ones(len(level.root), dtype=np.int64) for level in levels]
    for depth in range(len(levels) - 2, -1, -1):
        below = levels[depth + 1]
        if not len(below.parent):
            continue
        starts = np.flatnonzero(np.diff(below.parent, prepend=-1))
        inner = below.parent[starts]
        lengths[depth][inner] = 2 + np.add.reduceat(lengths[depth + 1], starts)
        v = values[depth + 1]
        ordered = v[np.lexsort((v, below.parent))]
        sizes = np.diff(starts, append=len(v))
        middle = (ordered[starts + (sizes - 1) // 2] + ordered[starts + sizes // 2]) // 2
        last = ordered[starts + sizes - 1]
        choices = (ordered[starts], last, middle, np.add.reduceat(v, starts) % 10)
        values[depth][inner] = np.choose(levels[depth].operator[inner], choices)
    return values, lengths
