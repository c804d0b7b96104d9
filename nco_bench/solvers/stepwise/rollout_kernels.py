"""Whole tours of one-attention decoders on the CPU, compiled by numba; `stepwise.rollout` calls them.

A trajectory is decoded from its first to its last move before the next one begins, so that all that it reads stays in the
processor's cache. It has tables of its own, in which the nodes still open stand side by side: a visited node's place is
taken by the last one, so the work shrinks with the nodes left. The sums are those of `nco_bench.solvers.stepwise.glimpse`
in another order.

Many trajectories of one instance are left to `nco_bench.solvers.stepwise.together`, which takes choices from here.

Letters in shapes: B instances, P trajectories, N nodes (depot first for the CVRP), S places in a table (N and some),
D width, H heads, K head width, T moves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiled import F32, aligned, aligned_rows, exponential, fast

Array = NDArray[np.float32]
Ints = NDArray[np.int64]

TERMS = 8
"""Terms that are added up before a sum is stored; head widths are multiples of it."""
LANES = 16
"""Places are taken so many at a time where the compiler has vector instructions for them."""
SKEW = 16
"""Rows of a table are an odd multiple of so many numbers apart; at powers of two they would share few lines of the cache."""
CLOSED = F32(-1e30)
"""Added to the logit of a node that may not come next; finite, so that the compiler may reorder sums."""
STEEP, NEAR = F32(4.0), F32(1e-3)
"""Up to `STEEP` tanh keeps numbers apart that differ by `NEAR`, whatever is rounded."""


class Encoded(NamedTuple):
    """What the decoder needs of all instances.

    Attributes
    ----------
    keys, values
        ``(B, D, N)``, the heads one below the other.
    pointer, offset
        ``(B, N, D)`` keys of the final scores and ``(B, N)``, what is added to these.
    current, first
        ``(B, N, D)`` shares of the query: of the node where a trajectory stands, and of the one where it began (TSP).
    base, opening, room
        ``(B, D)``, ``(D,)`` and ``(D,)`` shares of the query: of the instance, of "nothing visited yet" (TSP), and of one
        unit of capacity left (CVRP).
    heads, clip
        H, and the half range of the logits.
    """

    keys: Array
    values: Array
    pointer: Array
    offset: Array
    current: Array
    first: Array
    base: Array
    opening: Array
    room: Array
    heads: int
    clip: np.float32


class Open(NamedTuple):
    """The tables of one trajectory, the open nodes side by side, and room for one step.

    Attributes
    ----------
    keys, values, pointer, offset
        As in `Encoded`, for S places: ``(D, S)`` twice, ``(S, D)`` and ``(S,)``.
    nodes
        ``(S,)`` which node stands at a place.
    closed
        ``(S,)`` `CLOSED` for open nodes that may not come next, else 0.
    query, mixed
        ``(D,)``: the query, and what was attended to.
    weights, totals, scores, sums
        ``(H, S)``, ``(H,)``, ``(S,)`` and ``(N,)``.
    """

    keys: Array
    values: Array
    pointer: Array
    offset: Array
    nodes: Ints
    closed: Array
    query: Array
    mixed: Array
    weights: Array
    totals: Array
    scores: Array
    sums: Array


@fast
def room_for(encoded: Encoded) -> Open:
    """Return tables for any trajectory of these instances."""
    _, width, size = encoded.keys.shape
    places = (size // (2 * SKEW) * 2 + 3) * SKEW
    return Open(
        aligned_rows(width, places),
        aligned_rows(width, places),
        aligned_rows(places, width),
        aligned(places),
        np.zeros(places, np.int64),
        aligned(places),
        aligned(width),
        aligned(width),
        aligned_rows(encoded.heads, places),
        aligned(encoded.heads),
        aligned(places),
        aligned(size),
    )


@fast
def begin(encoded: Encoded, b: int, own: Open) -> None:
    """Open all nodes of instance b."""
    width, size = encoded.keys.shape[1:]
    for d in range(width):
        for n in range(size):
            own.keys[d, n] = encoded.keys[b, d, n]
            own.values[d, n] = encoded.values[b, d, n]
    for n in range(size):
        for d in range(width):
            own.pointer[n, d] = encoded.pointer[b, n, d]
        own.offset[n] = encoded.offset[b, n]
        own.closed[n] = F32(0.0)
        own.nodes[n] = n
    own.closed[size:] = CLOSED


@fast
def remove(place: int, last: int, own: Open) -> None:
    """Put the node at the last place where another one stood."""
    keys, values, pointer = own.keys, own.values, own.pointer
    for d in range(keys.shape[0]):
        keys[d, place] = keys[d, last]
        values[d, place] = values[d, last]
    for d in range(pointer.shape[1]):
        pointer[place, d] = pointer[last, d]
    own.offset[place] = own.offset[last]
    own.nodes[place] = own.nodes[last]
    own.closed[last] = CLOSED


@fast
def attend(own: Open, count: int) -> None:
    """Attend over the nodes at the first `count` places, by the query: write `Open.mixed`."""
    count = (count + LANES - 1) // LANES * LANES  # what stands behind the open nodes is closed
    add_logits(own.query, own.keys, own.closed, count, own.weights)
    for head in range(own.weights.shape[0]):
        own.totals[head] = soften(own.weights[head], count)
    average(own.weights, own.totals, own.values, count, own.mixed)


@fast
def add_logits(query: Array, keys: Array, closed: Array, count: int, out: Array) -> None:
    """Write ``q . k`` plus `closed` for each head and the first places."""
    width = keys.shape[0] // out.shape[0]
    for d in range(0, keys.shape[0], TERMS):
        head = d // width
        if d % width == 0:
            for j in range(count):
                out[head, j] = closed[j]
        q0, q1, q2, q3 = query[d], query[d + 1], query[d + 2], query[d + 3]
        q4, q5, q6, q7 = query[d + 4], query[d + 5], query[d + 6], query[d + 7]
        for j in range(count):
            left = q0 * keys[d, j] + q1 * keys[d + 1, j] + q2 * keys[d + 2, j] + q3 * keys[d + 3, j]
            right = q4 * keys[d + 4, j] + q5 * keys[d + 5, j] + q6 * keys[d + 6, j] + q7 * keys[d + 7, j]
            out[head, j] += left + right


@fast
def average(weights: Array, totals: Array, values: Array, count: int, out: Array) -> None:
    """Write the weighted means of the values of each head."""
    width = values.shape[0] // weights.shape[0]
    for d in range(0, values.shape[0], TERMS):
        head = d // width
        m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = F32(0.0)
        for j in range(count):
            weight = weights[head, j]
            m0 += weight * values[d, j]
            m1 += weight * values[d + 1, j]
            m2 += weight * values[d + 2, j]
            m3 += weight * values[d + 3, j]
            m4 += weight * values[d + 4, j]
            m5 += weight * values[d + 5, j]
            m6 += weight * values[d + 6, j]
            m7 += weight * values[d + 7, j]
        factor = F32(1.0) / totals[head]
        out[d], out[d + 1], out[d + 2], out[d + 3] = m0 * factor, m1 * factor, m2 * factor, m3 * factor
        out[d + 4], out[d + 5], out[d + 6], out[d + 7] = m4 * factor, m5 * factor, m6 * factor, m7 * factor


@fast
def soften(logits: Array, count: int) -> F32:
    """Turn the first logits into exponentials over the largest, in place; return their sum."""
    largest = CLOSED
    for j in range(count):
        largest = max(largest, logits[j])
    for j in range(count):
        logits[j] = exponential(logits[j] - largest)
    total = F32(0.0)
    for j in range(count):
        total += logits[j]
    return total


@fast
def compare(own: Open, count: int) -> None:
    """Compare what was attended to with the nodes at the first places: write `Open.scores`."""
    mixed, pointer = own.mixed, own.pointer
    for j in range(count):
        score = F32(0.0)
        for d in range(pointer.shape[1]):
            score += mixed[d] * pointer[j, d]
        own.scores[j] = score + own.offset[j]


@fast
def likeliest(scores: Array, closed: Array, nodes: Ints, count: int, clip: F32) -> int:
    """Return the place of the largest ``clip * tanh(score)`` of the first `count`, of several that of the first node.

    tanh grows, so only scores near the largest are put through it; it rounds large ones to the same number.

    Parameters
    ----------
    scores, closed, nodes
        ``(S,)``, as in `Open`.
    """
    largest = CLOSED
    for j in range(count):
        largest = max(largest, scores[j] + closed[j])
    least = min(largest, STEEP) - NEAR if largest > -STEEP else F32(0.5) * CLOSED
    best, found = F32(0.0), -1
    for j in range(count):
        if scores[j] + closed[j] >= least:
            value = clip * F32(math.tanh(scores[j]))
            if found < 0 or value > best or (value == best and nodes[j] < nodes[found]):
                best, found = value, j
    return found


@fast
def drawn(scores: Array, closed: Array, nodes: Ints, sums: Array, count: int, clip: F32, draw: F32) -> int:
    """Draw a place from the softmax of ``clip * tanh(score)`` as `nco_bench.solvers.decoding.draws.picked` does.

    Parameters as of `likeliest`; `scores` and `sums` ``(N,)`` are overwritten.
    """
    soften_clipped(scores, closed, count, clip)
    sums[:] = F32(0.0)
    for j in range(count):
        sums[nodes[j]] = scores[j]
    node, place = picked(sums, draw), 0
    while nodes[place] != node:
        place += 1
    return place


@fast
def soften_clipped(scores: Array, closed: Array, count: int, clip: F32) -> None:
    """Turn the first scores into exponentials of ``clip * tanh(score) + closed``, over the largest."""
    for j in range(count):
        twice = min(max(F32(2.0) * scores[j], F32(-40.0)), F32(40.0))
        scores[j] = clip - clip * F32(2.0) / (exponential(twice) + F32(1.0)) + closed[j]
    soften(scores, count)


@fast
def picked(weights: Array, draw: F32) -> int:
    """Return where a sum of weights ``(N,)`` passes the share `draw` of all; they are overwritten by these sums."""
    total = 0.0  # in float64 and in the order of the nodes, as torch adds up
    for n in range(weights.shape[0]):
        total += weights[n]
        weights[n] = F32(total)
    goal = min(draw * weights[-1], np.nextafter(weights[-1], F32(0.0)))
    node = 0
    while weights[node] <= goal:
        node += 1
    return node


@fast
def decide(own: Open, count: int, encoded: Encoded, draws: Array, step: int) -> int:
    """Return the place of the next node by the query in `own`: drawn by ``draws[step]``, or the likeliest without any."""
    attend(own, count)
    compare(own, count)
    if draws.shape[0] == 0:
        return likeliest(own.scores, own.closed, own.nodes, count, encoded.clip)
    return drawn(own.scores, own.closed, own.nodes, own.sums, count, encoded.clip, draws[step])


@fast
def tours(encoded: Encoded, starts: Ints, draws: Array, first: int, last: int, out: Ints) -> None:
    """Write TSP tours of the trajectories from `first` to before `last`, counted through all instances.

    Parameters
    ----------
    encoded
        The instances.
    starts
        ``(B, P)`` first nodes, or -1 where the decoder chooses them.
    draws
        ``(B, P, T)`` numbers in [0, 1), or ``(B, P, 0)`` for the likeliest nodes.
    first, last
        Which trajectories.
    out
        ``(B, P, N)``.
    """
    own, size = room_for(encoded), out.shape[2]
    for trajectory in range(first, last):
        b, p = divmod(trajectory, out.shape[1])
        begin(encoded, b, own)
        for step in range(size):
            place = 0
            if step == 0 and starts[b, p] >= 0:
                place = starts[b, p]
            elif step < size - 1:
                for d in range(own.query.shape[0]):
                    if step == 0:
                        own.query[d] = encoded.base[b, d] + encoded.opening[d]
                    else:
                        share = encoded.current[b, out[b, p, step - 1], d] + encoded.first[b, out[b, p, 0], d]
                        own.query[d] = share + encoded.base[b, d]
                place = decide(own, size - step, encoded, draws[b, p], step)
            out[b, p, step] = own.nodes[place]
            remove(place, size - step - 1, own)
