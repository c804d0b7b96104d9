"""Strongly connected components: which pairs of nodes are in the same component?

Tokens ``[a_ij, i / (n - 1), j / (n - 1)]``, row by row, of a directed graph; 1 where i and j reach each other. Nodes are
cut at random into 1 .. max(1, n // 2) parts; edges inside a part have probability p (the "value"), across parts 0.05.

Variant ``published``: p = 0.001, value-ood 0.1, as the paper prints it; the label is then nearly the identity matrix.
Variant ``dense`` (our choice, for a meaningful test): p = 0.35 and 0.15 across, value-ood p = 0.6. Variant ``legacy``:
independent directed edges with probability p, components of the undirected graph.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.tasks.arrange import PERTURBED, pair_tokens
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges

ACROSS = {"published": 0.05, "dense": 0.15}
"""Edge probability across parts."""


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    p = ranges.values[0]
    chance = draws.uniform(n, n)
    if variant == "legacy":
        edges = chance < p
    else:
        parts = draws.integers(1, max(1, n // 2))
        place = np.argsort(draws.uniform(n), axis=1)
        part = place * parts[:, None] // n
        edges = chance < np.where(part[:, :, None] == part[:, None, :], p, ACROSS[variant])
    edges[:, np.arange(n), np.arange(n)] = False
    linked = edges | edges.transpose(0, 2, 1) if variant == "legacy" else edges
    return Clean(pair_tokens(edges), label(linked).reshape(len(edges), n * n))


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Flip half the off-diagonal entries, in place."""
    length = inputs.shape[1]
    hit = draws.flags(PERTURBED, length)
    hit[:, :: int(np.sqrt(length)) + 1] = False
    inputs[..., 0] = np.where(hit, 1 - inputs[..., 0], inputs[..., 0])


def label(edges: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return ``(B, n, n)`` 0/1 of adjacency flags ``(B, n, n)``, n <= 64: whether i and j reach each other.

    Raises
    ------
    BadInputError
        For more than 64 nodes: a row of the closure is one machine word.
    """
    n = edges.shape[1]
    if n > 64:
        raise BadInputError(f"scc: {n} nodes are too many; give at most 64.")
    weights = np.uint64(1) << np.arange(n, dtype=np.uint64)
    reach = ((edges | np.eye(n, dtype=bool)) * weights).sum(axis=2, dtype=np.uint64).T.copy()
    one = np.uint64(1)
    for k in range(n):
        # All bits set where i reaches k, else none: minus 0 or 1 in two's complement.
        through = -(reach >> np.uint64(k) & one).astype(np.int64)
        reach |= through.view(np.uint64) & reach[k]
    rows = np.ascontiguousarray(reach.T)
    to = (rows[:, :, None] >> np.arange(n, dtype=np.uint64) & one).astype(bool)
    return (to & to.transpose(0, 2, 1)).astype(np.float32)
