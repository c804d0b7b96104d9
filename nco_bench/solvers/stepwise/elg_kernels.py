"""What ELG's local policy adds to the scores of a step, for the CPU, compiled by numba; `elg_quick` calls it.

Letters in shapes: B instances, R trajectories instance by instance, N nodes (depot first), C customers (TSP: nodes), T
tokens (the K nearest open nodes; CVRP: the depot before them), F features of a token, A heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiled import F32, LINE, Array, aligned, aligned_rows, fast, softened, weighted_sum

EPSILON, FAR = F32(1e-6), F32(-1e30)


class Surroundings(NamedTuple):
    """What a step looks up: each node's neighbours in the order of their distance, and the local policy's maps.

    Attributes
    ----------
    order, distance, angle
        ``(B, N, C)``: neighbours of each node, nearest first, how far they are, and in which direction.
    demand
        ``(B, N)``; none, ``(B, 0)``, for the TSP.
    asking, codes
        ``(A, F)`` and ``(A, T)``: the logit of a token is ``asking f + code of its rank``.
    maps
        ``(S, O)``: from what the heads see to u, where token t scores u_t + f_t . (u_T ... u_T+F); see `elg_quick.maps_of`.
    far
        What nodes get that are no tokens.
    """

    order: NDArray[np.int32]
    distance: Array
    angle: Array
    demand: Array
    asking: Array
    codes: Array
    maps: Array
    far: np.float32


class Tokens(NamedTuple):
    """The neighbourhood of one trajectory, with places for T tokens and more, so that vectors are full.

    Attributes
    ----------
    nodes
        ``(T,)`` which node a token is.
    distance
        ``(T,)`` from the current node; 0 for the depot.
    features
        ``(F, T)``.
    """

    nodes: NDArray[np.int64]
    distance: Array
    features: Array


@fast
def add_nearby(
    around: Surroundings,
    blocked: Array,
    current: NDArray[np.int64],
    room: Array,
    first: int,
    last: int,
    scores: Array,
    tied: NDArray[np.bool_],
) -> None:
    """Add penalty and local score to the scores of all nodes, as `nco_bench.solvers.stepwise.elg.Elg.nearby`.

    Parameters
    ----------
    around
        Of all instances.
    blocked, current, room
        ``(R, N)``, ``(R,)`` and ``(R,)``, as in `RouteState`; `room` is not read for the TSP.
    first, last
        The first trajectory, and the one behind the last.
    scores
        ``(R, N)``.
    tied
        ``(R,)``, set where two open nodes are as far: which of them comes first is for others to say, nothing is added.
    """
    copies, depots = len(scores) // len(around.order), int(around.demand.shape[1] > 0)
    heads, kinds = around.asking.shape
    places = around.codes.shape[1]
    wide = -(-places // LINE) * LINE
    tokens = Tokens(np.zeros(wide, np.int64), aligned(wide), aligned_rows(kinds, wide))
    row, seen, answer = aligned(wide), aligned(len(around.maps)), aligned(around.maps.shape[1])
    for r in range(first, last):
        count, tied[r] = _gather(around, r // copies, current[r], blocked[r], depots, tokens)
        if tied[r]:
            continue
        _describe(around.demand[r // copies], room[r], count, depots, tokens)
        for a in range(heads):
            _attend(around, a, tokens.features, count, depots > 0 and blocked[r, 0] < F32(0), row, seen)
        weighted_sum(seen, around.maps, answer)
        for f in range(kinds):
            share = answer[places + f]
            for t in range(count):
                answer[t] += share * tokens.features[f, t]
        _spread(around.far, tokens, count, depots, answer, scores[r])


@fast
def _gather(
    around: Surroundings, b: int, here: int, blocked: Array, depots: int, tokens: Tokens
) -> tuple[int, bool]:
    """Write the nearest open nodes; return how many tokens there are, and whether two nodes are as far."""
    order, distance, angle = around.order[b, here], around.distance[b, here], around.angle[b, here]
    count, places = depots, around.codes.shape[1]
    for k in range(len(order)):
        node = order[k]
        if blocked[node] == F32(0):
            if count > depots and distance[k] == tokens.distance[count - 1]:
                return count, True
            if count == places:
                break
            tokens.nodes[count], tokens.distance[count], tokens.features[1, count] = (
                node,
                distance[k],
                angle[k],
            )
            count += 1
    return count, False


@fast
def _describe(demand: Array, room: np.float32, count: int, depots: int, tokens: Tokens) -> None:
    """Write the other features of the tokens."""
    features, farthest = tokens.features, tokens.distance[count - 1] if count > 0 else F32(0)
    for t in range(count):
        features[0, t] = tokens.distance[t] / (farthest + EPSILON)
    if depots > 0:
        # With an empty vehicle only customers without demand are open.
        left = room if room > F32(0) else F32(1)
        for t in range(1, count):
            features[2, t] = demand[tokens.nodes[t]] / left


@fast
def _attend(
    around: Surroundings, head: int, features: Array, count: int, hidden: bool, row: Array, seen: Array
) -> None:
    """Write a head's weights of all tokens and, behind them, the mean of their features; of depots only if not hidden."""
    kinds, wide = features.shape
    places = around.codes.shape[1]
    row[:places] = around.codes[head]
    for f in range(kinds):
        for t in range(wide):
            row[t] += around.asking[head, f] * features[f, t]
    row[count:] = FAR
    if hidden:
        row[0] = FAR
    factor, begin = F32(1) / softened(row), head * (places + kinds)
    for t in range(places):
        seen[begin + t] = factor * row[t]
    for f in range(kinds):
        total = F32(0)
        for t in range(wide):
            total += row[t] * features[f, t]
        seen[begin + places + f] = factor * total


@fast
def _spread(far: np.float32, tokens: Tokens, count: int, depots: int, local: Array, scores: Array) -> None:
    """Add to the scores of nodes what tokens get and what all others do."""
    farthest = tokens.distance[count - 1] if count > 0 else F32(0)
    if depots == 0:
        farthest += EPSILON
    elif farthest == F32(0):
        farthest = F32(1)
    for t in range(count):
        local[t] += scores[tokens.nodes[t]] - tokens.distance[t] / farthest
    for n in range(len(scores)):
        scores[n] += far
    for t in range(count):
        scores[tokens.nodes[t]] = local[t]
