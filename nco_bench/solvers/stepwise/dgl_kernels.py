"""Loops of DGL's quick steps for the CPU, compiled by numba; `nco_bench.solvers.stepwise.dgl_quick` calls them.

Memory and features round bit for bit as in `nco_bench.solvers.stepwise.dgl`; so roots are left to torch, which rounds them
in a way of its own.

Letters in shapes: B instances, R partial solutions, N nodes (depot first), K candidates, T tokens, D features, H heads,
W width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiled import F32, Array, aligned, aligned_rows, fast, softened, weighted_sum
from nco_bench.nn.compiling import njit
from nco_bench.solvers.stepwise import dgl_features

Nodes = NDArray[np.int64]
EPSILON, TINY, DIRECT = F32(dgl_features.EPSILON), F32(dgl_features.TINY), dgl_features.CDIST_DIRECT
FULL, NONE = F32(1.1), F32(-np.inf)
FAR = F32(-1e30)
LANES = 8
"""Rows of numbers are filled up to a multiple of so many, which vector instructions take at once."""
WIDE, DEEP = 32, 16
"""Up to so many tokens and numbers of a head the sizes of tables are constant, see `_attend_few`."""

exact: Any = njit(cache=True, nogil=True, error_model="numpy")


@exact
def squares(coords: Array, current: Nodes, out: Array) -> None:
    """Write the squares of `dgl_features.distances_to`, ``(R, N)``, of coordinates ``(B, N, 2)`` to the nodes ``(R,)``."""
    rows, count = out.shape
    copies, axes = rows // coords.shape[0], coords.shape[2]
    for r in range(rows):
        points = coords[r // copies]
        here = points[current[r]]
        at_norm = F32(0)
        for axis in range(axes):
            at_norm += here[axis] * here[axis]
        for n in range(count):
            point, total, norm = points[n], F32(0), F32(0)
            for axis in range(axes):
                x, at = point[axis], here[axis]
                if count <= DIRECT:
                    total += (x - at) * (x - at)
                else:
                    total = F32(np.float64(F32(-2) * x) * np.float64(at) + np.float64(total))
                    norm += x * x
            out[r, n] = total if count <= DIRECT else max(total + norm + at_norm, F32(0))


@exact
def moments(
    here: Array, mean: Array, deviation: Array, others: int, new_mean: Array, variance: Array
) -> None:
    """Take a node out of the statistics.

    Parameters
    ----------
    here, mean, deviation
        ``(R, N)``: distances to the node, and statistics before the move.
    others
        Nodes that count after it.
    new_mean, variance
        ``(R, N)``, filled.
    """
    before, after = F32(others + 1), F32(others)
    for r in range(len(here)):
        for n in range(here.shape[1]):
            apart = here[r, n] - mean[r, n]
            value = (deviation[r, n] * deviation[r, n] * before - apart * apart) / after
            new_mean[r, n] = (mean[r, n] * before - here[r, n]) / after
            variance[r, n] = max(value, F32(0))


@exact
def view_features(
    coords: Array, demand: Array, room: Array, memory: Any, first: Nodes, current: Nodes, direct: Nodes, via: Nodes,
    features: Array,
) -> None:  # fmt: skip
    """Sort the candidates and write what `Dgl.inputs` returns, and a 1 behind it.

    Parameters
    ----------
    coords, demand, room
        ``(B, N, 2)``, ``(B, N)`` and ``(R,)``; for the TSP no demands, ``(B, 0)``, and `room` is not read.
    memory
        What `Dgl.moved` returns.
    first, current
        ``(R,)``.
    direct, via
        ``(R, K)`` candidates, none in `via` for the TSP.
    features
        ``(R, T, D)`` zeros: candidates and current node; CVRP: also candidates and depot.
    """
    copies, cvrp = len(features) // coords.shape[0], demand.shape[1] > 0
    for r in range(len(features)):
        b = r // copies
        points, shares = coords[b], demand[b]
        tables = (memory[0][r], memory[1][r], memory[2][r], memory[3][r])
        direct[r].sort()
        out = features[r, : direct.shape[1] + 1]
        _raw(points, shares, tables, first[r], direct[r], current[r], False, out)
        if cvrp:
            left = room[r] + EPSILON if room[r] < TINY else room[r]
            for t in range(direct.shape[1]):
                out[t, 2] = FULL if left < TINY else out[t, 2] / max(left, EPSILON)
        _normalised(out, 8 if cvrp else 7)
        if cvrp:
            via[r].sort()
            out = features[r, direct.shape[1] + 1 :]
            _raw(points, shares, tables, first[r], via[r], 0, True, out)
            _normalised(out, 8)


@exact
def _raw(
    points: Array,
    demand: Array,
    tables: Any,
    first: int,
    candidates: Nodes,
    last: int,
    back: bool,
    out: Array,
) -> None:
    """Write features that are not yet scaled, a flag of those via the depot (CVRP) and a 1, of one group."""
    mean, deviation, here, target = tables
    for t in range(len(out)):
        inner = t < len(candidates)
        node = candidates[t] if inner else last
        x, y = points[node, 0], points[node, 1]
        out[t, 0], out[t, 1] = x, y
        at = 2
        if len(demand) > 0:
            out[t, 2] = demand[node]
            at = 3
        out[t, at] = target[node] if back and inner else here[node]
        out[t, at + 1], out[t, at + 2] = mean[node], deviation[node]
        out[t, at + 3] = (points[first, 1] - y) / (target[node] + EPSILON)
        out[t, at + 4] = (points[first, 0] - x) / (target[node] + EPSILON)
        at += 5
        if len(demand) > 0:
            out[t, at] = F32(1) if back else F32(0)
            at += 1
        out[t, at] = F32(1)


@exact
def _normalised(out: Array, count: int) -> None:
    """Scale the first features of a group to [0, 1]; constant ones become 0."""
    for f in range(count):
        low = high = out[0, f]
        for t in range(1, len(out)):
            low, high = min(low, out[t, f]), max(high, out[t, f])
        side = high - low if high > low else F32(1)
        for t in range(len(out)):
            out[t, f] = (out[t, f] - low) / side


@fast
def attend(query: Array, key: Array, value: Array, scale: np.float32, out: Array) -> None:
    """Write ``softmax(scale * query key^T) value`` of every head.

    Parameters
    ----------
    query, key, value
        ``(R, T, H, D)``, of any strides.
    scale
        Of the logits.
    out
        ``(R, T, H, D)``, filled.
    """
    rows, tokens, heads, size = query.shape
    if tokens <= WIDE and size <= DEEP:
        _attend_few(query, key, value, scale, out)
        return
    wide, deep = -(-tokens // LANES) * LANES, -(-size // LANES) * LANES
    keys, values = aligned_rows(deep, wide), aligned_rows(wide, deep)
    asked, row, mixed = aligned(deep), aligned(wide), aligned(deep)
    for r in range(rows):
        for h in range(heads):
            for t in range(tokens):
                for d in range(size):
                    keys[d, t], values[t, d] = key[r, t, h, d], value[r, t, h, d]
            for t in range(tokens):
                for d in range(size):
                    asked[d] = scale * query[r, t, h, d]
                weighted_sum(asked, keys, row)
                row[tokens:] = FAR
                factor = F32(1) / softened(row)
                weighted_sum(row, values, mixed)
                for d in range(size):
                    out[r, t, h, d] = factor * mixed[d]


@fast
def _attend_few(query: Array, key: Array, value: Array, scale: np.float32, out: Array) -> None:
    """Do the same for `WIDE` tokens at most.

    Where sizes are constant and tables flat, the compiler keeps whole sums in registers: a third of the time.
    """
    rows, tokens, heads, size = query.shape
    keys, values = aligned(DEEP * WIDE), aligned(WIDE * DEEP)
    asked, row, mixed = aligned(DEEP), aligned(WIDE), aligned(DEEP)
    for r in range(rows):
        for h in range(heads):
            for t in range(tokens):
                for d in range(size):
                    keys[d * WIDE + t], values[t * DEEP + d] = key[r, t, h, d], value[r, t, h, d]
            for t in range(tokens):
                for d in range(size):
                    asked[d] = scale * query[r, t, h, d]
                _logits(asked, keys, row)
                row[tokens:] = FAR
                factor = F32(1) / softened(row)
                _means(row, values, mixed)
                for d in range(size):
                    out[r, t, h, d] = factor * mixed[d]


@fast
def _logits(asked: Array, keys: Array, out: Array) -> None:
    for t in range(WIDE):
        total = F32(0)
        for d in range(DEEP):
            total += asked[d] * keys[d * WIDE + t]
        out[t] = total


@fast
def _means(weights: Array, values: Array, out: Array) -> None:
    for d in range(DEEP):
        total = F32(0)
        for t in range(WIDE):
            total += weights[t] * values[t * DEEP + d]
        out[d] = total


@fast
def scored(hidden: Array, weight: Array, x: Array, score: Array, constant: np.float32, out: Array) -> None:
    """Write ``hidden weight + x score + constant``; hidden values are ``(T, F)``, tokens ``(T, W)``."""
    for t in range(len(out)):
        row, token, total = hidden[t], x[t], constant
        for i in range(len(row)):
            total += row[i] * weight[i]
        for i in range(len(token)):
            total += token[i] * score[i]
        out[t] = total


@exact
def chances(scores: Array, demand: Array, room: Array, direct: Nodes, out: Array) -> None:
    """Write log-probabilities of the candidates as `dgl_features.floored` gives them, ``-inf`` for those that do not fit.

    Parameters
    ----------
    scores
        ``(R, T)`` of all tokens: candidates and current node; CVRP: also candidates and depot.
    demand, room, direct
        As in `view_features`.
    out
        ``(R, A)``, filled.
    """
    copies, cvrp, count = len(out) // len(demand), demand.shape[1] > 0, direct.shape[1]
    for r in range(len(out)):
        row, largest, total = out[r], NONE, 0.0
        for a in range(len(row)):
            row[a] = scores[r, a if a < count else a + 1]
            if cvrp and a < count and demand[r // copies, direct[r, a]] > room[r]:
                row[a] = NONE
            largest = max(largest, row[a])
        for a in range(len(row)):
            total += math.exp(row[a] - largest)
        for a in range(len(row)):
            if row[a] > NONE:
                p = F32(math.exp(row[a] - largest) / total)
                row[a] = F32(math.log(p + EPSILON if p <= TINY else p))
