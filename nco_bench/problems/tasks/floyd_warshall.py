"""Floyd-Warshall: all-pairs shortest paths of an undirected graph, one token per ordered pair.

Tokens ``[w_ij or 0 without an edge, i / (n - 1), j / (n - 1)]``, row by row. Variant ``legacy`` (which the published errors
fit): complete, integer weights in an asymmetric matrix, distances as if undirected (an edge costs the smaller of its two
entries). Variants ``distances`` and ``predecessors``: edge {i, j} present with probability p^2, p uniform in (0.5, 0.9) per
graph, weight sqrt(a b + 1e-6) with a and b uniform reals; unreachable pairs have distance n * high + 1, predecessors are
classes 0 .. n - 1 and n for the diagonal and for unreachable pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks.arrange import PERTURBED, pair_tokens
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    low, high = ranges.values
    if variant == "legacy":
        weights = draws.integers(low, high, n, n)
        weights[:, np.arange(n), np.arange(n)] = 0
        cheaper = np.minimum(weights, weights.transpose(0, 2, 1)).astype(np.float32)
        return Clean(pair_tokens(weights), distances(cheaper).reshape(len(weights), n * n))
    edges = _sparse_graphs(draws, n, low, high)
    inputs = pair_tokens(np.where(np.isfinite(edges), edges, 0.0))
    length, predecessor = distances_and_predecessors(edges)
    if variant == "predecessors":
        return Clean(inputs, predecessor.reshape(len(edges), n * n))
    reached = np.where(np.isfinite(length), length, n * high + 1)
    return Clean(inputs, reached.reshape(len(edges), n * n).astype(np.float32))


def _sparse_graphs(draws: Draws, n: int, low: float, high: float) -> NDArray[np.float64]:
    """Return symmetric weights ``(B, n, n)``: infinite without an edge, 0 on the diagonal."""
    p = 0.5 + 0.4 * draws.uniform()
    present = draws.uniform(n, n) < p[:, None, None]
    weights = low + (high - low) * draws.uniform(n, n)
    both = present & present.transpose(0, 2, 1)
    edges = np.where(both, np.sqrt(weights * weights.transpose(0, 2, 1) + 1e-6), np.inf)
    edges[:, np.arange(n), np.arange(n)] = 0.0
    return edges


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add noise to half the off-diagonal entries, in place.

    As in the public code, the integers of the legacy data go one above the stated range, and the other variants
    add real numbers.
    """
    low, high = noise
    length = inputs.shape[1]
    n = int(np.sqrt(length))
    hit = draws.flags(PERTURBED, length)
    hit[:, :: n + 1] = False
    step = (
        draws.integers(low, high + 1, length)
        if variant == "legacy"
        else low + (high - low) * draws.uniform(length)
    )
    inputs[..., 0] = np.maximum(inputs[..., 0] + hit * step, 0)


def distances(edges: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return all shortest distances of edge costs ``(B, n, n)``, infinite without an edge, 0 on the diagonal."""
    # Batch last: rows of n are too short for the processor's vectors.
    length = np.ascontiguousarray(edges.transpose(1, 2, 0))
    through = np.empty_like(length)
    for k in range(len(length)):
        np.add(length[:, k, None], length[k], out=through)
        np.minimum(length, through, out=length)
    return np.ascontiguousarray(length.transpose(2, 0, 1))


def distances_and_predecessors(edges: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return distances, and the node before j on the path from i; class n on the diagonal and where there is no path."""
    n = edges.shape[1]
    length = np.ascontiguousarray(edges.transpose(1, 2, 0))
    linked = np.isfinite(length) & ~np.eye(n, dtype=bool)[:, :, None]
    before = np.where(linked, np.arange(n, dtype=np.int16)[:, None, None], np.int16(n))
    through = np.empty_like(length)
    for k in range(n):
        np.add(length[:, k, None], length[k], out=through)
        shorter = through < length
        np.minimum(length, through, out=length)
        # Row k holds no shorter path through k itself, so it does not change under the copy.
        np.copyto(before, before[k].copy(), where=shorter)
    back = (2, 0, 1)
    return np.ascontiguousarray(length.transpose(back)), before.transpose(back).astype(np.int64)
