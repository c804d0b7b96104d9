"""Many trajectories of one instance on the CPU, a move of all at a time: products of matrices, and loops compiled by numba.

`nco_bench.solvers.stepwise.rollout_kernels` takes the products of a move anew for each trajectory. Where many share their
nodes, products of matrices are faster, though visited nodes take part in them; and there are fewer pairs of nodes than
moves, so the logits of the attention are taken for all pairs beforehand. What is left between the products, softmax, masks
and choices, is done trajectory by trajectory. The sums are those of `nco_bench.solvers.stepwise.glimpse` in another order.

Letters in shapes: B instances, P trajectories, N nodes (depot first for the CVRP), S places in a row (N and some), D width,
H heads, K head width, T moves.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nco_bench.nn.compiled import F32, fast, power_of_two
from nco_bench.solvers.stepwise.rollout_kernels import CLOSED, Array, Ints, drawn, likeliest

SCALE = math.log2(math.e)
"""Of logits whose exponentials are taken as powers of two."""
LEAST = F32(-126.0)
"""Of the exponents of two; what is below adds next to nothing."""
SAFE_SUM = F32(1e-20)
"""Where the weights of a head add up to less, those that matter may be among those below `LEAST`."""


class Pairs(NamedTuple):
    """Logits of attention, each the sum of one row of either table, the second times what a trajectory has of it.

    Rows hold the logits times `SCALE`, less the largest of the row, which changes no softmax.

    Attributes
    ----------
    current
        ``(B, N, H, S)``: of the node where a trajectory stands, and of what never changes.
    other
        TSP: ``(B, N, H, S)``, of the node where it began. CVRP: ``(B, 1, H, S)``, of one unit of capacity left.
    """

    current: Array
    other: Array


class Moving(NamedTuple):
    """Trajectories under way, and room for a move.

    Attributes
    ----------
    here, row, share
        ``(B, P)``: where each one stands, its row of `Pairs.other`, and how much of that it has.
    closed
        ``(B, P, S)`` `CLOSED` for nodes that may not come next, else 0.
    weights, totals
        ``(B, H, P, S)`` exponentials of the logits over the largest, and their sums ``(B, P, H)``.
    means, mixed
        ``(B, H, P, K)`` and ``(B, P, D)``: what is attended to, before and after the heads are joined.
    scores
        ``(B, P, S)``.
    nodes, sums
        ``(N,)``: the nodes in their order, and room.
    """

    here: Ints
    row: Ints
    share: Array
    closed: Array
    weights: Array
    totals: Array
    means: Array
    mixed: Array
    scores: Array
    nodes: Ints
    sums: Array


class Loads(NamedTuple):
    """The capacity side of routes under way, all float32 or all float64.

    Attributes
    ----------
    amount, capacity, limit
        ``(B, N)``, ``(B,)`` and ``(B,)``, as in `nco_bench.solvers.stepwise.problem.Demands`.
    open
        ``(B, P, N)`` demands, infinite for visited customers.
    used, left
        ``(B, P)``: the load since the last visit to the depot, and how many customers are still to be served.
    """

    amount: Any
    capacity: Any
    limit: Any
    open: Any
    used: Any
    left: Ints


@fast
def attend(pairs: Pairs, moving: Moving) -> None:
    """Write `Moving.weights` and `Moving.totals`."""
    weights, closed, totals = moving.weights, moving.closed, moving.totals
    batch, heads, trajectories, places = weights.shape
    for b in range(batch):
        for p in range(trajectories):
            here, row, share = moving.here[b, p], moving.row[b, p], moving.share[b, p]
            for head in range(heads):
                total = F32(0.0)
                for n in range(places):
                    logit = pairs.current[b, here, head, n] + share * pairs.other[b, row, head, n]
                    weight = power_of_two(max(logit + closed[b, p, n], LEAST))
                    weights[b, head, p, n] = weight
                    total += weight
                totals[b, p, head] = total
                if total < SAFE_SUM:
                    attend_anew(pairs, moving, b, p, head)


@fast
def attend_anew(pairs: Pairs, moving: Moving, b: int, p: int, head: int) -> None:
    """Write the weights of a head, and their sum, by what the largest logit of the open nodes is."""
    weights = moving.weights[b, head, p]
    current, other = pairs.current[b, moving.here[b, p], head], pairs.other[b, moving.row[b, p], head]
    largest, total = CLOSED, F32(0.0)
    for n in range(weights.shape[0]):
        weights[n] = current[n] + moving.share[b, p] * other[n] + moving.closed[b, p, n]
        largest = max(largest, weights[n])
    for n in range(weights.shape[0]):
        weights[n] = power_of_two(max(weights[n] - largest, LEAST))
        total += weights[n]
    moving.totals[b, p, head] = total


@fast
def join(moving: Moving) -> None:
    """Put the sums of all heads side by side as means: write `Moving.mixed`."""
    batch, heads, trajectories, width = moving.means.shape
    for b in range(batch):
        for p in range(trajectories):
            for head in range(heads):
                factor = F32(1.0) / moving.totals[b, p, head]
                for k in range(width):
                    moving.mixed[b, p, head * width + k] = moving.means[b, head, p, k] * factor


@fast
def chosen(moving: Moving, b: int, p: int, offset: Array, clip: F32, draws: Array, step: int) -> int:
    """Return the next node: drawn by ``draws[step]``, or the likeliest without any."""
    size, scores = moving.nodes.shape[0], moving.scores[b, p]
    for n in range(size):
        scores[n] += offset[n]
    closed, nodes = moving.closed[b, p], moving.nodes
    if draws.shape[0] == 0:
        return likeliest(scores, closed, nodes, size, clip)
    return drawn(scores, closed, nodes, moving.sums, size, clip, draws[step])


@fast
def move_tours(moving: Moving, offset: Array, clip: F32, draws: Array, step: int, out: Ints) -> None:
    """Choose the next nodes of tours ``(B, P, T)``, write and close them; the first ones are written already."""
    batch, trajectories = moving.here.shape
    for b in range(batch):
        for p in range(trajectories):
            if step > 0:
                out[b, p, step] = chosen(moving, b, p, offset[b], clip, draws[b, p], step)
            node = out[b, p, step]
            moving.here[b, p] = node
            moving.closed[b, p, node] = CLOSED


@fast
def move_routes(
    moving: Moving, loads: Loads, offset: Array, clip: F32, draws: Array, step: int, given: bool, out: Ints
) -> int:
    """Choose the next nodes of routes ``(B, P, T)`` and write them, unless they are given; return how many are not done."""
    batch, trajectories = moving.here.shape
    size, undone = moving.nodes.shape[0], 0
    for b in range(batch):
        for p in range(trajectories):
            if loads.left[b, p] == 0:
                continue
            if not given:
                out[b, p, step] = chosen(moving, b, p, offset[b], clip, draws[b, p], step)
            node = moving.here[b, p] = out[b, p, step]
            if node == 0:
                loads.used[b, p] = loads.amount[b, 0]
            else:
                loads.used[b, p] += loads.amount[b, node]
                loads.open[b, p, node] = np.inf
                loads.left[b, p] -= 1
            used, closed = loads.used[b, p], moving.closed[b, p]
            for n in range(size):
                closed[n] = F32(0.0) if loads.open[b, p, n] + used <= loads.limit[b] else CLOSED
            closed[0] = CLOSED if node == 0 and loads.left[b, p] > 0 else F32(0.0)
            moving.share[b, p] = F32(loads.capacity[b] - used) / F32(loads.capacity[b])
            undone += loads.left[b, p] > 0
    return undone
