"""Many short TSP tours of one instance on the CPU, by tables over pairs of nodes; compiled by numba.

`nco_bench.solvers.stepwise.rollout_kernels` takes the products of a step anew for each trajectory. Where many share few
nodes, there are fewer pairs of nodes than steps, so these are taken for all pairs beforehand, as products of matrices:

- the attention weights, exp((f + c) . k) = exp(f . k) exp(c . k), for any first and any current node
  (as in `nco_bench.solvers.stepwise.glimpse.Factors`);
- what the final score of a node gains by attending to another one, v . p: the glimpse itself is never written down.

Letters in shapes: B instances, P trajectories, N nodes, S places in a row (N and some), D width, H heads, K head width.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nco_bench.nn.compiled import F32, aligned, aligned_rows, exponential, fast
from nco_bench.solvers.stepwise.rollout_kernels import CLOSED, Array, Encoded, Ints, drawn, likeliest

TOGETHER = 8
"""Heads whose shares of the scores are added up before these are stored."""
SAFE_SUM = F32(1e-30)
"""As `nco_bench.solvers.stepwise.glimpse.SAFE_SUM`."""


class Pairs(NamedTuple):
    """What is known of all pairs of nodes.

    Attributes
    ----------
    current, first
        ``(B, H, N, N)``: exp(c . k) of a current node and a key, and exp(f . k) of a first one, the constant part of the
        query included; each row divided by its largest.
    gain
        ``(B, N, H, S)``: v . p of an attended node and a scored one; 0 beyond N.
    """

    current: Array
    first: Array
    gain: Array


class Table(NamedTuple):
    """Room for one trajectory.

    Attributes
    ----------
    scores, closed, nodes, sums
        As in `rollout_kernels.Open`, for N nodes in their own order: ``(S,)`` and three of ``(N,)``.
    first
        ``(H, N)``: `Pairs.first` of the trajectory; 0 for visited nodes.
    weights
        ``(H, N)``: how much is attended to each node.
    left
        ``(N,)`` nodes still open, in any order; what stands behind them is visited.
    """

    scores: Array
    closed: Array
    nodes: Ints
    sums: Array
    first: Array
    weights: Array
    left: Ints


@fast
def room_for(pairs: Pairs) -> Table:
    """Return tables for any trajectory of these instances."""
    _, size, heads, places = pairs.gain.shape
    return Table(
        aligned(places),
        aligned(size),
        np.arange(size),
        aligned(size),
        aligned_rows(heads, size),
        aligned_rows(heads, size),
        np.arange(size),
    )


@fast
def begin(pairs: Pairs, b: int, first: int, own: Table) -> None:
    """Open all nodes of instance b but the first."""
    heads, size = own.first.shape
    for head in range(heads):
        for n in range(size):
            own.first[head, n] = pairs.first[b, head, first, n]
    for n in range(size):
        own.closed[n] = F32(0.0)
        own.left[n] = n


@fast
def close(node: int, count: int, own: Table) -> None:
    """Take a node out of the first `count` of `Table.left`."""
    own.closed[node] = CLOSED
    for head in range(own.first.shape[0]):
        own.first[head, node] = F32(0.0)
    place = 0
    while own.left[place] != node:
        place += 1
    own.left[place], own.left[count - 1] = own.left[count - 1], node


@fast
def attend(encoded: Encoded, pairs: Pairs, b: int, first: int, current: int, own: Table) -> None:
    """Write `Table.weights`, which add up to 1 for each head."""
    heads, size = own.weights.shape
    for head in range(heads):
        total = F32(0.0)
        for n in range(size):
            weight = pairs.current[b, head, current, n] * own.first[head, n]
            own.weights[head, n] = weight
            total += weight
        if total < SAFE_SUM:
            total = attend_anew(encoded, b, first, current, head, own)
        factor = F32(1.0) / total
        for n in range(size):
            own.weights[head, n] *= factor


@fast
def attend_anew(encoded: Encoded, b: int, first: int, current: int, head: int, own: Table) -> F32:
    """Write the weights of a head from its logits, where the products of weights are lost to underflow; return their sum."""
    size, width = own.weights.shape[1], encoded.keys.shape[1] // own.weights.shape[0]
    for n in range(size):
        own.weights[head, n] = own.closed[n]
    for d in range(head * width, (head + 1) * width):
        query = encoded.current[b, current, d] + encoded.first[b, first, d] + encoded.base[b, d]
        for n in range(size):
            own.weights[head, n] += query * encoded.keys[b, d, n]
    largest = CLOSED
    for n in range(size):
        largest = max(largest, own.weights[head, n])
    total = F32(0.0)
    for n in range(size):
        own.weights[head, n] = exponential(own.weights[head, n] - largest)
        total += own.weights[head, n]
    return total


@fast
def score(encoded: Encoded, gain: Array, b: int, count: int, own: Table) -> None:
    """Write `Table.scores` by the weights of the first `count` of `Table.left`; the others weigh nothing."""
    weights, scores = own.weights, own.scores
    size, heads, places = gain.shape
    scores[:] = F32(0.0)
    for n in range(size):
        scores[n] = encoded.offset[b, n]
    for j in range(count):
        node = own.left[j]
        rows = gain[node]
        for h in range(0, heads - heads % TOGETHER, TOGETHER):
            w0, w1, w2, w3 = (
                weights[h, node],
                weights[h + 1, node],
                weights[h + 2, node],
                weights[h + 3, node],
            )
            w4, w5, w6, w7 = (
                weights[h + 4, node],
                weights[h + 5, node],
                weights[h + 6, node],
                weights[h + 7, node],
            )
            for n in range(places):
                left = w0 * rows[h, n] + w1 * rows[h + 1, n] + w2 * rows[h + 2, n] + w3 * rows[h + 3, n]
                right = w4 * rows[h + 4, n] + w5 * rows[h + 5, n] + w6 * rows[h + 6, n] + w7 * rows[h + 7, n]
                scores[n] += left + right
        for h in range(heads - heads % TOGETHER, heads):
            for n in range(places):
                scores[n] += weights[h, node] * rows[h, n]


@fast
def tours(
    encoded: Encoded, pairs: Pairs, starts: Ints, draws: Array, first: int, last: int, out: Ints
) -> None:
    """Write TSP tours of trajectories whose first nodes are given; parameters as of `rollout_kernels.tours`."""
    own, size = room_for(pairs), out.shape[2]
    for trajectory in range(first, last):
        b, p = divmod(trajectory, out.shape[1])
        begun = current = starts[b, p]
        begin(pairs, b, begun, own)
        for step in range(size):
            if step > 0 and step < size - 1:
                attend(encoded, pairs, b, begun, current, own)
                score(encoded, pairs.gain[b], b, size - step, own)
                if draws.shape[2] == 0:
                    current = likeliest(own, size, encoded.clip)
                else:
                    current = drawn(own, size, encoded.clip, draws[b, p, step])
            elif step > 0:
                current = own.left[0]
            out[b, p, step] = current
            close(current, size - step, own)
