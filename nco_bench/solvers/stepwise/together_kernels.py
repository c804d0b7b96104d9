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
from nco_bench.solvers.stepwise.rollout_kernels import CLOSED, Array, Ints, likeliest, picked, soften_clipped

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


class Under(NamedTuple):
    """Trajectories under way.

    Attributes
    ----------
    here, row, share
        ``(B, P)``: where each one stands, its row of `Pairs.other`, and how much of that it has.
    closed
        ``(B, P, S)`` `CLOSED` or less for nodes that may not come next, else 0.
    """

    here: Ints
    row: Ints
    share: Array
    closed: Array


class Room(NamedTuple):
    """Room for a move of trajectories.

    Attributes
    ----------
    weights, totals
        ``(B, H, P, S)`` exponentials of the logits over the largest, and their sums ``(B, P, H)``.
    means, mixed
        ``(B, H, P, K)`` and ``(B, P, D)``: what is attended to, before and after the heads are joined.
    scores
        ``(B, P, S)``.
    nodes
        ``(N,)``, in their order.
    """

    weights: Array
    totals: Array
    means: Array
    mixed: Array
    scores: Array
    nodes: Ints


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
def attend(pairs: Pairs, under: Under, weights: Array, totals: Array) -> None:
    """Write exponentials of logits ``(B, H, P, S)``, each head over a number of its own, and sums ``(B, P, H)``."""
    batch, heads, trajectories, places = weights.shape
    for b in range(batch):
        for p in range(trajectories):
            here, row, share = under.here[b, p], under.row[b, p], under.share[b, p]
            for head in range(heads):
                total = F32(0.0)
                for n in range(places):
                    logit = pairs.current[b, here, head, n] + share * pairs.other[b, row, head, n]
                    weight = power_of_two(max(logit + under.closed[b, p, n], LEAST))
                    weights[b, head, p, n] = weight
                    total += weight
                if total < SAFE_SUM:
                    current, other = pairs.current[b, here, head], pairs.other[b, row, head]
                    total = attend_anew(current, other, share, under.closed[b, p], weights[b, head, p])
                totals[b, p, head] = total


@fast
def attend_anew(current: Array, other: Array, share: F32, closed: Array, weights: Array) -> F32:
    """Write the weights of a head ``(S,)`` by what the largest logit of the open nodes is; return their sum."""
    largest, total = CLOSED, F32(0.0)
    for n in range(weights.shape[0]):
        weights[n] = current[n] + share * other[n] + closed[n]
        largest = max(largest, weights[n])
    for n in range(weights.shape[0]):
        weights[n] = power_of_two(max(weights[n] - largest, LEAST))
        total += weights[n]
    return total


@fast
def join(means: Array, totals: Array, mixed: Array) -> None:
    """Put the sums of all heads ``(B, H, P, K)`` side by side as means, ``(B, P, D)``."""
    batch, heads, trajectories, width = means.shape
    for b in range(batch):
        for p in range(trajectories):
            for head in range(heads):
                factor = F32(1.0) / totals[b, p, head]
                for k in range(width):
                    mixed[b, p, head * width + k] = means[b, head, p, k] * factor


@fast
def derive(under: Under, weights: Array, totals: Array, slopes: Array, current: Array, other: Array) -> None:
    """Add the derivatives of the logits to those of the tables of `Pairs`, in units of a logit without `SCALE`.

    Parameters
    ----------
    under
        The trajectories.
    weights, totals
        As `attend` wrote them; the weights are divided by their sums here.
    slopes
        ``(B, H, P, S)`` derivatives of the divided weights.
    current, other
        Where derivatives are added, as in `Pairs`.
    """
    batch, heads, trajectories, places = weights.shape
    for b in range(batch):
        for p in range(trajectories):
            here, row, share = under.here[b, p], under.row[b, p], under.share[b, p]
            for head in range(heads):
                factor, mean = F32(1.0) / totals[b, p, head], F32(0.0)
                for n in range(places):
                    weight = weights[b, head, p, n] * factor
                    weights[b, head, p, n] = weight
                    mean += weight * slopes[b, head, p, n]
                for n in range(places):
                    slope = weights[b, head, p, n] * (slopes[b, head, p, n] - mean)
                    current[b, here, head, n] += slope
                    other[b, row, head, n] += share * slope


@fast
def choice(
    scores: Array, blocked: Array, node: Ints, clip: F32, curved: Array, level: Array, log_prob: Array
) -> None:
    """Write log-probabilities of nodes by the softmax of ``clip * tanh(score) + blocked``.

    Parameters
    ----------
    scores, blocked
        ``(R, N)``.
    node
        ``(R,)``.
    curved, level, log_prob
        ``(R, N)`` tanh of the scores; ``(R,)`` logarithm of the sum of all exponentials; ``(R,)``.
    """
    for r in range(scores.shape[0]):
        largest = CLOSED
        for n in range(scores.shape[1]):
            twice = min(max(scores[r, n] * F32(2.0 * SCALE), F32(-60.0)), F32(60.0))
            curved[r, n] = F32(1.0) - F32(2.0) / (power_of_two(twice) + F32(1.0))
        for n in range(scores.shape[1]):
            largest = max(largest, clip * curved[r, n] + blocked[r, n])
        total = F32(0.0)
        for n in range(scores.shape[1]):
            total += power_of_two(max((clip * curved[r, n] + blocked[r, n] - largest) * F32(SCALE), LEAST))
        level[r] = largest + F32(math.log(total))
        log_prob[r] = clip * curved[r, node[r]] + blocked[r, node[r]] - level[r]


@fast
def choice_derived(
    slope: Array, curved: Array, level: Array, blocked: Array, node: Ints, clip: F32, out: Array
) -> None:
    """Write the derivatives of scores ``(R, N)`` by those of log-probabilities, `slope` ``(R,)``; others as in `choice`."""
    for r in range(curved.shape[0]):
        for n in range(curved.shape[1]):
            share = power_of_two(max((clip * curved[r, n] + blocked[r, n] - level[r]) * F32(SCALE), LEAST))
            out[r, n] = -slope[r] * share * clip * (F32(1.0) - curved[r, n] * curved[r, n])
        own = curved[r, node[r]]
        out[r, node[r]] += slope[r] * clip * (F32(1.0) - own * own)


@fast
def chosen(
    under: Under, room: Room, b: int, p: int, offset: Array, clip: F32, draws: Array, step: int
) -> int:
    """Return the next node: drawn by ``draws[step]``, or the likeliest without any."""
    size = room.nodes.shape[0]
    scores, closed = room.scores[b, p, :size], under.closed[b, p]
    for n in range(size):
        scores[n] += offset[n]
    if draws.shape[0] == 0:
        return likeliest(scores, closed, room.nodes, size, clip)
    soften_clipped(scores, closed, size, clip)
    return picked(scores, draws[step])


@fast
def move_tours(
    under: Under, room: Room, offset: Array, clip: F32, draws: Array, step: int, given: bool, out: Ints
) -> None:
    """Choose the next nodes of tours ``(B, P, T)`` and write them, unless they are given; close them."""
    batch, trajectories = under.here.shape
    for b in range(batch):
        for p in range(trajectories):
            if not given:
                out[b, p, step] = chosen(under, room, b, p, offset[b], clip, draws[b, p], step)
            node = out[b, p, step]
            under.here[b, p] = node
            under.closed[b, p, node] = CLOSED


@fast
def move_routes(
    under: Under,
    room: Room,
    loads: Loads,
    offset: Array,
    clip: F32,
    draws: Array,
    step: int,
    given: bool,
    out: Ints,
) -> int:
    """Choose the next nodes of routes ``(B, P, T)`` and write them, unless they are given; return how many are not done."""
    batch, trajectories = under.here.shape
    size, undone = room.nodes.shape[0], 0
    for b in range(batch):
        for p in range(trajectories):
            if loads.left[b, p] == 0:
                continue
            if not given:
                out[b, p, step] = chosen(under, room, b, p, offset[b], clip, draws[b, p], step)
            node = under.here[b, p] = out[b, p, step]
            if node == 0:
                loads.used[b, p] = loads.amount[b, 0]
            else:
                loads.used[b, p] += loads.amount[b, node]
                loads.open[b, p, node] = np.inf
                loads.left[b, p] -= 1
            used, closed = loads.used[b, p], under.closed[b, p]
            for n in range(size):
                closed[n] = F32(0.0) if loads.open[b, p, n] + used <= loads.limit[b] else CLOSED
            closed[0] = CLOSED if node == 0 and loads.left[b, p] > 0 else F32(0.0)
            under.share[b, p] = F32(loads.capacity[b] - used) / F32(loads.capacity[b])
            undone += loads.left[b, p] > 0
    return undone
