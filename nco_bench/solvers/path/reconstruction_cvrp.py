"""One iteration of random re-construction (RRC, LEHD) or parallel local re-construction (PRC, SIT) on the CVRP.

RRC rebuilds the customers before one route's end, PRC several disjoint segments that end with routes.
Each step is deterministic given its random draws; segments are replaced where the new one is strictly shorter.

Letters in shapes: B batch, N nodes, V customers, L segment length, F segments of one instance, S segments of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance, Rebuilt, rebuild_cvrp
from nco_bench.solvers.path.reconstruction_tsp import MAX_SEGMENTS
from nco_bench.solvers.path.route_moves import (
    Routes,
    ends_route,
    load_before,
    reverse_all,
    reverse_routes,
    rotate,
    rotate_routes,
    sort_by_angle,
)


def rrc_cvrp_step(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    *,
    flip: bool | Tensor,
    flip_routes: Tensor,
    length: int,
    end: Tensor,
    knn: int | None = None,
    deadline: float | None = None,
) -> tuple[Routes, Rebuilt]:
    """One iteration of RRC on CVRP solutions.

    Parameters
    ----------
    routes
        B solutions of V customers.
    flip, flip_routes
        Whether whole solutions are reversed, one for all or ``(B,)``; then ``(B, >= routes)`` which of their routes.
    length
        Customers in the segment (4 ... V).
    end
        ``(B,)`` uniform draws that choose the route whose end is the segment's end; the list of ends begins
        with the last route's.
    knn, deadline
        As in `greedy`, which may raise `TimeIsUpError`.

    Returns
    -------
    routes, rebuilt
        Solutions rotated so that the segment is last, and what happened to it.
    """
    routes = reverse_routes(reverse_all(routes, flip), flip_routes)
    routes = rotate(routes, segment_follower(routes[1], end))
    order, via = routes
    begin = torch.full_like(order[:, :1], order.shape[1] - length)
    room = instance.capacity - load_before(routes, instance.demand, begin).squeeze(1)
    tail = slice(order.shape[1] - length, None)
    source = torch.arange(order.shape[0], device=order.device)
    rebuilt = rebuild_cvrp(policy, instance, source, (order[:, tail], via[:, tail]), room, knn, deadline)
    taken = rebuilt.accepted[:, None]
    new_order = torch.where(taken, rebuilt.order, order[:, tail])
    new_via = torch.where(taken, rebuilt.via, via[:, tail]) if rebuilt.via is not None else via[:, tail]
    head = slice(None, order.shape[1] - length)
    return (torch.cat([order[:, head], new_order], 1), torch.cat([via[:, head], new_via], 1)), rebuilt


def segment_follower(via: Tensor, end: Tensor) -> Tensor:
    """Position of the route start that follows the drawn route end, ``(B,)``.

    The official list of route ends goes by route starts, each entry being the position before it: entry floor(p R) is the
    end that precedes the start of route floor(p R).
    """
    chosen = (end * via.sum(1)).long().clamp(max=via.shape[1] - 1)
    starts = via & ((via.long().cumsum(1) - 1) == chosen[:, None])
    return starts.long().argmax(1)


def segment_layout(via: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Lay PRC's disjoint segments out from the end of CVRP solutions, each ending where a route ends.

    The last one covers the last `length` customers. Each other ends at the largest route end e < S - 1, with S the
    start of the one after it (so a route that ends right before S is left out, as in the official code), and no
    segment but the last may start at position 0.

    Returns
    -------
    starts, count
        ``(B, F)`` first positions, from the last segment to the first, and ``(B,)`` how many of them are segments.
    """
    batch, customers = via.shape
    most = max(1, min(customers // length, int(via.sum(1).max()), MAX_SEGMENTS))
    positions = torch.arange(customers, device=via.device).expand(batch, -1)
    # The largest route end at or before each position; -1 where there is none.
    last_end = torch.where(ends_route(via), positions, -1).cummax(1).values
    start = torch.full((batch,), customers - length, dtype=torch.int64, device=via.device)
    starts, alive = [start], torch.ones(batch, dtype=torch.bool, device=via.device)
    count = torch.ones_like(start)
    for number in range(1, most):
        end = last_end.gather(1, (start - 2).clamp(min=0)[:, None]).squeeze(1)
        alive = alive & (start >= 2) & (end >= length) & (number < via.sum(1))
        start = torch.where(alive, end - length + 1, start)
        starts.append(start)
        count += alive
    return torch.stack(starts, dim=1), count


def prc_cvrp_step(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    *,
    length: int,
    flip: bool | Tensor,
    flip_routes: tuple[Tensor, Tensor],
    shift: Tensor,
    knn: int | None = None,
    deadline: float | None = None,
) -> tuple[Routes, Rebuilt]:
    """One iteration of PRC on CVRP solutions, as SIT's official code has it (its appendix B.3 goes from the beginning).

    Routes are sorted by angle, the whole solution and single routes are reversed, the solution is rotated, single routes
    are reversed again; then all segments of `segment_layout` are rebuilt.

    Parameters
    ----------
    routes
        B solutions of V customers.
    length
        Customers in a segment.
    flip, flip_routes
        Whether whole solutions are reversed, one for all or ``(B,)``; ``(B, >= routes)`` routes to reverse before and
        after the rotation.
    shift
        ``(B,)`` number of routes to rotate by.
    knn, deadline
        As in `greedy`, which may raise `TimeIsUpError`.
    """
    routes = sort_by_angle(instance.coords, routes)
    routes = reverse_routes(reverse_all(routes, flip), flip_routes[0])
    routes = reverse_routes(rotate_routes(routes, shift), flip_routes[1])
    starts, count = segment_layout(routes[1], length)
    return rebuild_segments(policy, instance, routes, starts, count, length, knn, deadline)


def rebuild_segments(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    starts: Tensor,
    count: Tensor,
    length: int,
    knn: int | None = None,
    deadline: float | None = None,
) -> tuple[Routes, Rebuilt]:
    """Rebuild disjoint segments of `length` customers at ``starts`` ``(B, F)``, the first ``count`` of each instance."""
    order, via = routes
    source, number = (torch.arange(starts.shape[1], device=order.device) < count[:, None]).nonzero(
        as_tuple=True
    )
    room = instance.capacity[:, None] - load_before(routes, instance.demand, starts)
    positions = starts[source, number][:, None] + torch.arange(length, device=order.device)
    rows = source[:, None]
    old = order[rows, positions], via[rows, positions]
    rebuilt = rebuild_cvrp(policy, instance, source, old, room[source, number], knn, deadline)
    taken = rebuilt.accepted[:, None]
    order, via = order.clone(), via.clone()
    order[rows, positions] = torch.where(taken, rebuilt.order, old[0])
    via[rows, positions] = torch.where(taken, rebuilt.via, old[1]) if rebuilt.via is not None else old[1]
    return (order, via), rebuilt
