"""Loops of INViT's quick steps for the CPU, compiled by numba; `nco_bench.solvers.stepwise.invit_quick` calls them.

They stand for some dozens of small torch calls a step, each of which costs more than the arithmetic in it.

Letters in shapes: B instances, R partial solutions, N nodes, K neighbours, T tokens, D features, W width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = np.float32
Array = NDArray[np.float32]
Nodes = NDArray[np.int64]


@njit(cache=True, nogil=True)
def view_features(
    coords: Array,
    demand: Array,
    room: Array,
    tokens: Nodes,
    candidates: int,
    with_end: bool,
    clamp: bool,
    features: Array,
) -> None:
    """Write what a view shows of its tokens in its own box.

    Parameters
    ----------
    coords, demand
        ``(B, N, 2)`` and ``(B, N)``; no demands, ``(B, 0)``, for the TSP.
    room
        ``(R,)`` capacity left; not read for the TSP.
    tokens
        ``(R, K + 2)`` nodes: the first of the tour or the depot, which the box leaves out, the candidates, the last node,
        the other neighbours.
    candidates
        How many of them are candidates.
    with_end
        Whether the first token is shown.
    clamp
        Whether what lies outside the box is moved to its edge.
    features
        ``(R, T, D)`` zeros, which are filled: x, y, demand or room (CVRP) and 1, for neighbours at first, then for the last
        node, then (without a demand) for the end.
    """
    rows, count, _ = features.shape
    copies, skipped = rows // coords.shape[0], 0 if with_end else 1
    cvrp = demand.shape[1] > 0
    size = 4 if cvrp else 3
    for r in range(rows):
        points = coords[r // copies]
        low_x = low_y = F32(np.inf)
        high_x = high_y = F32(-np.inf)
        for t in range(1, count + skipped):
            x, y = points[tokens[r, t], 0], points[tokens[r, t], 1]
            low_x, high_x, low_y, high_y = min(low_x, x), max(high_x, x), min(low_y, y), max(high_y, y)
        side = max(high_x - low_x, high_y - low_y)
        side = side if side > 0 else F32(1)
        for t in range(skipped, count + skipped):
            node, out = tokens[r, t], features[r, t - skipped]
            x, y = (points[node, 0] - low_x) / side, (points[node, 1] - low_y) / side
            if clamp:
                x, y = min(max(x, F32(0)), F32(1)), min(max(y, F32(0)), F32(1))
            at = 2 * size if t == 0 else size if t == candidates + 1 else 0
            out[at], out[at + 1], out[at + 2] = x, y, F32(1)
            if cvrp and t > 0:
                out[at + 2] = room[r] if at else demand[r // copies, node]
                out[at + 3] = F32(1)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def normalise(row: Array, add: Array, weight: Array, bias: Array, eps: np.float32, out: Array) -> None:
    """Write the layer norm of ``row + add`` ``(W,)``."""
    width = F32(len(row))
    mean = square = F32(0)
    for i in range(len(row)):
        out[i] = row[i] + add[i]
        mean += out[i]
    mean /= width
    for i in range(len(row)):
        square += (out[i] - mean) * (out[i] - mean)
    factor = F32(1) / np.sqrt(square / width + eps)
    for i in range(len(row)):
        out[i] = (out[i] - mean) * factor * weight[i] + bias[i]


@njit(cache=True, nogil=True)
def normalised(x: Array, norm: Any) -> None:
    """Put the layer norm ``(weight, bias, eps)`` of tokens ``(T, W)`` in their place."""
    nothing = np.zeros_like(norm[0])
    for t in range(len(x)):
        normalise(x[t], nothing, norm[0], norm[1], norm[2], x[t])


@njit(cache=True, nogil=True)
def normalised_twice(x: Array, mixed: Array, first: Any, second: Any, bias: Array) -> None:
    """Put ``second(x + first(mixed))`` in the place of ``x``, and its sum with ``bias`` in that of ``mixed``, ``(T, W)``."""
    nothing = np.zeros_like(bias)
    for t in range(len(x)):
        normalise(mixed[t], nothing, first[0], first[1], first[2], mixed[t])
        normalise(x[t], mixed[t], second[0], second[1], second[2], x[t])
        for i in range(len(bias)):
            mixed[t, i] = x[t, i] + bias[i]
