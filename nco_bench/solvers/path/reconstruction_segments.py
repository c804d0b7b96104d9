"""Segments of complete solutions as path problems: take them out, rebuild them greedily, compare.

Raw coordinates, the policy's `embed` run on a segment's nodes only. CVRP segments end with a return to the depot, and
start with the capacity that their first route has left, so solutions stay feasible.

Letters in shapes: B batch, N nodes, V customers, L segment length, F segments of one instance, S segments of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.policy import PathNodes, PathPolicy
from nco_bench.solvers.path.problem import Load, PathProblem, path_lengths, route_lengths, shares
from nco_bench.solvers.path.route_moves import Routes


@dataclass(frozen=True)
class Rebuilt:
    """What one iteration did to its S segments.

    Attributes
    ----------
    order, via
        ``(S, L)`` the rebuilt segments, as node indices, and flags (None for the TSP).
    before, after
        ``(S,)`` float64 lengths; TSP: of the open path; CVRP: up to the return to the depot, without the way into the
        first customer where that is direct.
    """

    order: Tensor
    via: Tensor | None
    before: Tensor
    after: Tensor

    @property
    def accepted(self) -> Tensor:
        """``(S,)`` bool: strictly shorter, and taken."""
        return self.after < self.before


@dataclass(frozen=True)
class CvrpInstance:
    """A batch of whole CVRP instances: ``(B, V + 1, 2)``, ``(B, V + 1)`` and ``(B,)``; row 0 is the depot."""

    coords: Tensor
    demand: Tensor
    capacity: Tensor

    def lengths(self, routes: Routes) -> Tensor:
        """Lengths of complete solutions, ``(B,)`` float64."""
        return route_lengths(self.coords, *routes)


def rebuild_tsp(
    policy: PathPolicy,
    coords: Tensor,
    segments: Tensor,
    knn: int | None = None,
    deadline: float | None = None,
) -> Rebuilt:
    """Rebuild segments of tours as path problems from their first to their last node.

    Parameters
    ----------
    policy
        A TSP policy.
    coords
        ``(B, N, 2)``.
    segments
        ``(B, F, L)`` nodes in visiting order, L >= 4.
    knn, deadline
        As in `greedy`, which may raise `TimeIsUpError`.

    Returns
    -------
    Rebuilt
        Its S = B F segments run instance by instance.
    """
    _, count, length = segments.shape
    nodes, local = segments.flatten(0, 1).sort(dim=1)  # the problem lists its nodes by ascending index
    source = torch.arange(len(coords), device=coords.device).repeat_interleave(count)
    points = coords[source[:, None], nodes]
    # `local` sorts positions by node; its inverse gives the rank of each position's node.
    rank = torch.empty_like(local).scatter_(
        1, local, torch.arange(length, device=local.device).expand_as(local)
    )
    first, last = rank[:, :1], rank[:, -1:]
    inner = rank[:, 1:-1].sort(dim=1).values
    problem = PathProblem(
        PathNodes(points, None, coords.shape[1]), torch.cat([first, inner, last], dim=1), closed=False
    )
    path = torch.cat([first, greedy(policy, problem, knn=knn, deadline=deadline).order, last], dim=1)
    return Rebuilt(nodes.gather(1, path), None, path_lengths(points, rank), path_lengths(points, path))


def rebuild_cvrp(
    policy: PathPolicy,
    instance: CvrpInstance,
    source: Tensor,
    segments: Routes,
    room: Tensor,
    knn: int | None = None,
    deadline: float | None = None,
) -> Rebuilt:
    """Rebuild segments of CVRP solutions; the first customer and its flag are kept.

    Parameters
    ----------
    policy
        A CVRP policy.
    instance
        B instances.
    source
        ``(S,)`` the instance that each segment belongs to.
    segments
        Customers and flags, ``(S, L)`` each; each segment is followed by a return to the depot.
    room
        ``(S,)`` capacity before the first customer, which counts where that is reached directly.
    knn, deadline
        As in `greedy`, which may raise `TimeIsUpError`.
    """
    order, via = segments
    customers, local = order.sort(dim=1)
    nodes = torch.cat(
        [torch.zeros_like(customers[:, :1]), customers], dim=1
    )  # the depot, then by ascending index
    points = instance.coords[source[:, None], nodes]
    demand, capacity = instance.demand[source[:, None], nodes], instance.capacity[source]
    ranks = torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(local)
    rank = torch.empty_like(local).scatter_(1, local, ranks)
    first = rank[:, :1]
    inner = rank[:, 1:].sort(dim=1).values
    left = torch.where(via[:, 0], capacity, room) - demand.gather(1, first).squeeze(1)
    share = shares(demand, capacity, points.dtype)
    problem = PathProblem(
        PathNodes(points, share, instance.coords.shape[1] - 1),
        torch.cat([first, inner, torch.zeros_like(first)], dim=1),
        closed=False,
        load=Load(demand, capacity, left),
    )
    path = greedy(policy, problem, knn=knn, deadline=deadline)
    local_order = torch.cat([first, path.order], dim=1)
    flags = torch.cat([via[:, :1], path.via], dim=1) if path.via is not None else via
    before = route_lengths(points, rank, via, first_edge=False)
    after = route_lengths(points, local_order, flags, first_edge=False)
    return Rebuilt(nodes.gather(1, local_order), flags, before, after)
