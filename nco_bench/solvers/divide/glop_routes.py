"""GLOP-G's partition of a CVRP into routes: graph features, the heatmap, and a giant tour built from it.

Follows the official code (henry-yeh/GLOP): the tour starts at the depot, the next node is drawn in proportion to the
heatmap's row of the current node among what the masks allow, and a route ends where the depot is drawn.

Letters in shapes: N nodes (the depot first), k edges of each, P partitions, T moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.solvers.decoding.draws import streams, uniform
from nco_bench.solvers.divide.glop_partition import SMALLEST

ROWS_AT_A_TIME = 512
SHORTEST = 20
"""Sub-tours are padded with copies of the depot to at least this many nodes."""

Pick = Callable[[Tensor, int], Tensor]
"""From scores ``(P, N)``, 0 where forbidden, and the number of the move to nodes ``(P,)``."""


@dataclass(frozen=True)
class PartitionGraph:
    """What the partition network sees of one instance.

    Attributes
    ----------
    nodes
        ``(N, 3)``: demand as a share of the capacity, distance to the depot, angle around it.
    edges
        ``(N, k, 2)``: cosine of the angle between both directions from the depot, twice (as in the official code). For
        CVRPLIB 1 - distance and the cosine, to which the smallest of all cosines is added and which the largest divides.
    neighbours
        ``(N, k)`` int64: the nodes of most similar direction, the node itself among them. The depot has no direction;
        all nodes are equally similar to it, and which it gets is an accident of the search. For CVRPLIB the nodes of
        the largest sum of both features.
    """

    nodes: Tensor
    edges: Tensor
    neighbours: Tensor


def partition_graph(
    coords: Tensor,
    demand: Tensor,
    capacity: float,
    k: int,
    neighbours: Tensor | None = None,
    *,
    library: bool = False,
) -> PartitionGraph:
    """Compute the features of one instance.

    Parameters
    ----------
    coords
        ``(N, 2)`` float32, the depot first.
    demand, capacity
        ``(N,)`` with 0 for the depot, and the capacity.
    k
        Edges per node; all N where there are fewer nodes.
    neighbours
        ``(N, k)`` where they are given.
    library
        Take the features that the official code has for CVRPLIB, and a partition network of its own for.
    """
    away = coords - coords[0]
    length = away.square().sum(dim=1).sqrt()
    share = demand.to(coords.dtype) / capacity
    nodes = torch.stack([share, length, torch.atan2(away[:, 1], away[:, 0])], dim=1)
    blocks = torch.arange(len(coords), device=coords.device).split(ROWS_AT_A_TIME)
    low, high = 0.0, 1.0
    if library:
        extremes = [torch.stack(_cosines(away, length, rows).aminmax()) for rows in blocks]
        low, high = float(min(e[0] for e in extremes)), float(max(e[1] for e in extremes))
    found, values = [], []
    for rows in blocks:
        similar = (_cosines(away, length, rows) + low) / high
        near = 1 - (coords[rows, None] - coords).norm(dim=2) if library else similar
        order = similar + near if library else similar
        to = order.topk(min(k, len(coords)), dim=1).indices if neighbours is None else neighbours[rows]
        found.append(to)
        values.append(torch.stack([near.gather(1, to), similar.gather(1, to)], dim=2))
    return PartitionGraph(nodes, torch.cat(values), torch.cat(found))


def _cosines(away: Tensor, length: Tensor, rows: Tensor) -> Tensor:
    """Return the cosines between the directions of some nodes and of all, ``(n, N)``."""
    return (away[rows] @ away.T) / (length[rows, None] * length + 1e-10)


def likeliest(scores: Tensor, move: int) -> Tensor:
    """Take the node of the highest score (the first among equals)."""
    return scores.argmax(dim=1)


def drawn(seed: int, partitions: int) -> Pick:
    """Draw nodes in proportion to their scores, each partition from a stream of its own."""
    stream = streams(torch.tensor([seed]), 0, partitions)[0]

    def pick(scores: Tensor, move: int) -> Tensor:
        cumulative = scores.double().cumsum(dim=1)
        draw = uniform(stream.to(scores.device), move)[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, draw, right=True).squeeze(1)

    return pick


def giant_tours(
    weights: Tensor,
    neighbours: Tensor,
    demand: Tensor,
    capacity: int,
    pick: Pick,
    partitions: int = 1,
) -> Tensor:
    """Build giant tours with depot returns from a heatmap.

    The depot is forbidden while more demand is left than the vehicles left could carry, unless no customer fits. There are
    ``ceil(total / capacity) + 1`` vehicles, counted at every depot visit, the first included.

    Parameters
    ----------
    weights, neighbours
        ``(N, k)`` entries of the heatmap (`nco_bench.solvers.divide.glop_partition.affinities`) and where they are; all
        others are `SMALLEST`.
    demand, capacity
        ``(N,)`` int64 with 0 for the depot, and the capacity.
    pick
        Chooses nodes.
    partitions
        How many tours.

    Returns
    -------
    Tensor
        ``(P, T)`` int64, from depot to depot; finished rows stay at the depot.
    """
    count, device = len(demand), demand.device
    total = int(demand.sum())
    vehicles = -(-total // capacity) + 1
    open_ = torch.ones(partitions, count, dtype=torch.bool, device=device)
    open_[:, 0] = False
    current = torch.zeros(partitions, dtype=torch.int64, device=device)
    room = torch.full_like(current, capacity)
    used = torch.ones_like(current)
    left = torch.full_like(current, total)
    moves, row = [current], torch.arange(partitions, device=device)
    scores = torch.empty(partitions, count, dtype=weights.dtype, device=device)
    while bool(open_.any() | current.any()):
        allowed = open_ & (demand <= room[:, None])
        stuck = ~allowed.any(dim=1)
        done = ~open_.any(dim=1)
        enough = left <= capacity * (vehicles - used)
        allowed[:, 0] = (enough | stuck) & ((current != 0) | done)
        scores.fill_(SMALLEST).scatter_(1, neighbours[current], weights[current])
        current = pick(scores * allowed, len(moves) - 1)
        home = current == 0
        used = used + home.long()
        amount = demand[current]
        room = torch.where(home, capacity, room - amount)
        left = left - amount
        open_[row, current] = False
        moves.append(current)
    return torch.stack(moves, dim=1)


def routes_of(tour: Tensor) -> list[Tensor]:
    """Split a giant tour ``(T,)`` at the depot into the customers of each route, in order; empty ones are left out."""
    stops = (tour == 0).nonzero().flatten().tolist()
    return [tour[a + 1 : b] for a, b in pairwise(stops) if b > a + 1]


def padded_routes(routes: list[Tensor]) -> Tensor:
    """Stack routes as depot, customers, copies of the depot: ``(R, max(20, longest))`` nodes, the depot counted."""
    width = max(SHORTEST, *(len(route) + 1 for route in routes))
    return torch.stack([F.pad(route, (1, width - len(route) - 1)) for route in routes])


def joined(tours: Tensor) -> Tensor:
    """Join sub-tours ``(R, n)`` of nodes, 0 for the depot and its copies, to one sequence with 0 at both ends."""
    parts = [tours.new_zeros(1)]
    for tour in tours:
        start = int((tour == 0).nonzero()[0])
        turned = torch.cat([tour.roll(-start)[1:], tour.new_zeros(1)])
        parts.append(turned)
    sequence = torch.cat(parts)
    repeated = (sequence[1:] == 0) & (sequence[:-1] == 0)
    return torch.cat([sequence[:1], sequence[1:][~repeated]])
