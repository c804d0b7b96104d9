"""Loops of INViT's quick steps for the CPU, compiled by numba; `nco_bench.solvers.stepwise.invit_quick` calls them.

They stand for some dozens of small torch calls a step, each of which costs more than the arithmetic in it.

Letters in shapes: B instances, R partial solutions, N nodes, K neighbours, T tokens, D features, W width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiled import F32, Array, normalise
from nco_bench.nn.compiling import njit

Nodes = NDArray[np.int64]


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True)
def normalised(x: Array, norm: Any) -> None:
    """Put the layer norm ``(weight, bias, eps)`` of tokens ``(T, W)`` in their place."""
    for t in range(len(x)):
        normalise(x[t], norm[0], norm[1], norm[2])


@njit(cache=True, nogil=True)
def normalised_twice(x: Array, mixed: Array, first: Any, second: Any, bias: Array) -> None:
    """Put ``second(x + first(mixed))`` in the place of ``x``, and its sum with ``bias`` in that of ``mixed``, ``(T, W)``."""
    for t in range(len(x)):
        row, other = x[t], mixed[t]
        normalise(other, first[0], first[1], first[2])
        for i in range(len(row)):
            row[i] += other[i]
        normalise(row, second[0], second[1], second[2])
        for i in range(len(row)):
            other[i] = row[i] + bias[i]
