"""Random re-construction (RRC, LEHD) and parallel local re-construction (PRC, SIT), for TSP and CVRP.

Both take a segment out of a complete solution, rebuild it greedily as a path problem of its own (raw coordinates, the
policy's `embed` run on its nodes only), and keep the new one where it is strictly shorter. RRC rebuilds one segment
per iteration, PRC cuts the whole solution into disjoint segments. CVRP segments end with a return to the depot, and
start with the capacity that their first route has left, so solutions stay feasible.

Each ``*_step`` is deterministic given its random draws; `rrc` and `prc` draw them and keep time. Draws are shared by
the batch, as in the official code, and do not depend on it: a solution does not depend on the batch it is improved in.

Letters in shapes: B batch, N nodes, V customers, L segment length, F segments of one instance, S segments of the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nco_bench.decoding.construct import greedy
from nco_bench.decoding.problem import Load, PathProblem, path_lengths, route_lengths, shares, tour_lengths
from nco_bench.decoding.segments import (
    Routes,
    ends_route,
    load_before,
    reverse_all,
    reverse_routes,
    rotate,
    rotate_routes,
    sort_by_angle,
)
from nco_bench.models.path import PathNodes, PathPolicy

MAX_SEGMENTS = 250
"""Segments of one instance that PRC rebuilds at a time (as the official code, for memory)."""

MAX_SEGMENT_LENGTH = 1000
"""l_max of PRC (SIT, section 5)."""


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


# ---------------------------------------------------------------------------------------------------- TSP


def rebuild_tsp(policy: PathPolicy, coords: Tensor, segments: Tensor) -> Rebuilt:
    """Rebuild segments of tours as path problems from their first to their last node.

    Parameters
    ----------
    policy
        A TSP policy.
    coords
        ``(B, N, 2)``.
    segments
        ``(B, F, L)`` nodes in visiting order, L >= 4.

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
    path = torch.cat([first, greedy(policy, problem).order, last], dim=1)
    return Rebuilt(nodes.gather(1, path), None, path_lengths(points, rank), path_lengths(points, path))


def rrc_tsp_step(
    policy: PathPolicy, coords: Tensor, tours: Tensor, *, flip: bool, start: int, length: int
) -> tuple[Tensor, Rebuilt]:
    """One iteration of RRC on TSP tours, ``(B, N)``.

    Parameters
    ----------
    flip, start, length
        Whether all tours are reversed first; position and number of nodes of the segment (4 ... N).

    Returns
    -------
    tours, rebuilt
        Tours that begin with the segment, and what happened to it.
    """
    tours = (tours.flip(1) if flip else tours).roll(-start, dims=1)
    rebuilt = rebuild_tsp(policy, coords, tours[:, None, :length])
    segment = torch.where(rebuilt.accepted[:, None], rebuilt.order, tours[:, :length])
    return torch.cat([segment, tours[:, length:]], dim=1), rebuilt


def prc_tsp_step(
    policy: PathPolicy, coords: Tensor, tours: Tensor, *, flip: bool, start: int, length: int
) -> tuple[Tensor, Rebuilt]:
    """One iteration of PRC on TSP tours, ``(B, N)``: all consecutive segments of `length` nodes, the tail untouched.

    Parameters and returns are as for `rrc_tsp_step`, with F = min(N // length, 250) segments per instance.
    """
    tours = (tours.flip(1) if flip else tours).roll(-start, dims=1)
    batch, count = tours.shape
    segments = min(count // length, MAX_SEGMENTS)
    old = tours[:, : segments * length].view(batch, segments, length)
    rebuilt = rebuild_tsp(policy, coords, old)
    taken = rebuilt.accepted.view(batch, segments, 1)
    new = torch.where(taken, rebuilt.order.view(batch, segments, length), old).flatten(1)
    return torch.cat([new, tours[:, segments * length :]], dim=1), rebuilt


# --------------------------------------------------------------------------------------------------- CVRP


def rebuild_cvrp(
    policy: PathPolicy, instance: CvrpInstance, source: Tensor, segments: Routes, room: Tensor
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
    path = greedy(policy, problem)
    local_order = torch.cat([first, path.order], dim=1)
    flags = torch.cat([via[:, :1], path.via], dim=1) if path.via is not None else via
    before = route_lengths(points, rank, via, first_edge=False)
    after = route_lengths(points, local_order, flags, first_edge=False)
    return Rebuilt(nodes.gather(1, local_order), flags, before, after)


def rrc_cvrp_step(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    *,
    flip: bool,
    flip_routes: Tensor,
    length: int,
    end: Tensor,
) -> tuple[Routes, Rebuilt]:
    """One iteration of RRC on CVRP solutions.

    Parameters
    ----------
    routes
        B solutions of V customers.
    flip, flip_routes
        Whether whole solutions are reversed, then ``(B, >= routes)`` which of their routes.
    length
        Customers in the segment (4 ... V).
    end
        ``(B,)`` uniform draws that choose the route whose end is the segment's end; the list of ends begins
        with the last route's.

    Returns
    -------
    routes, rebuilt
        Solutions rotated so that the segment is last, and what happened to it.
    """
    routes = reverse_routes(reverse_all(routes) if flip else routes, flip_routes)
    routes = rotate(routes, segment_follower(routes[1], end))
    order, via = routes
    begin = torch.full_like(order[:, :1], order.shape[1] - length)
    room = instance.capacity - load_before(routes, instance.demand, begin).squeeze(1)
    tail = slice(order.shape[1] - length, None)
    source = torch.arange(order.shape[0], device=order.device)
    rebuilt = rebuild_cvrp(policy, instance, source, (order[:, tail], via[:, tail]), room)
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
    flip: bool,
    flip_routes: tuple[Tensor, Tensor],
    shift: Tensor,
    common_count: bool = False,
) -> tuple[Routes, Rebuilt]:
    """One iteration of PRC on CVRP solutions (SIT, appendix B.3, and its official code).

    Routes are sorted by angle, the whole solution and single routes are reversed, the solution is rotated, single routes
    are reversed again; then all segments of `segment_layout` are rebuilt.

    Parameters
    ----------
    routes
        B solutions of V customers.
    length
        Customers in a segment.
    flip, flip_routes
        Whether whole solutions are reversed; ``(B, >= routes)`` routes to reverse before and after the rotation.
    shift
        ``(B,)`` number of routes to rotate by.
    common_count
        Rebuild the same number of segments in every instance (the official code; ours need not).
    """
    routes = sort_by_angle(instance.coords, routes)
    routes = reverse_routes(reverse_all(routes) if flip else routes, flip_routes[0])
    routes = reverse_routes(rotate_routes(routes, shift), flip_routes[1])
    starts, count = segment_layout(routes[1], length)
    if common_count:
        count = count.clamp(max=int(count.min()))
    return rebuild_segments(policy, instance, routes, starts, count, length)


def rebuild_segments(
    policy: PathPolicy, instance: CvrpInstance, routes: Routes, starts: Tensor, count: Tensor, length: int
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
    rebuilt = rebuild_cvrp(policy, instance, source, old, room[source, number])
    taken = rebuilt.accepted[:, None]
    order, via = order.clone(), via.clone()
    order[rows, positions] = torch.where(taken, rebuilt.order, old[0])
    via[rows, positions] = torch.where(taken, rebuilt.via, old[1]) if rebuilt.via is not None else old[1]
    return (order, via), rebuilt


# ------------------------------------------------------------------------------------------- whole searches


@dataclass(frozen=True)
class Budget:
    """When to stop, and whom to tell.

    Attributes
    ----------
    iterations
        At most this many.
    seconds
        Stop before the first iteration that begins later than this after `begun`; None for no limit.
    begun
        ``time.monotonic()`` when the solve began (its initial solution counts too).
    report
        Called with (seconds since `begun`, costs ``(B,)``) after the initial solution and every iteration.
    """

    iterations: int
    seconds: float | None
    begun: float
    report: Callable[[float, Tensor], None]

    def steps(self) -> Iterator[int]:
        """Count iterations until one of the limits is reached."""
        for step in range(self.iterations):
            if self.seconds is not None and time.monotonic() - self.begun >= self.seconds:
                return
            yield step

    def note(self, costs: Tensor) -> None:
        """Report the costs reached by now."""
        self.report(time.monotonic() - self.begun, costs)


@torch.inference_mode()
def improve_tsp(
    policy: PathPolicy,
    coords: Tensor,
    tours: Tensor,
    budget: Budget,
    generator: torch.Generator,
    *,
    parallel: bool,
    max_length: int | None = None,
    metric: Tensor | None = None,
) -> Tensor:
    """Improve tours by RRC, or by PRC if `parallel`; never makes one longer.

    Parameters
    ----------
    coords, tours
        ``(B, N, 2)``, ``(B, N)``.
    budget, generator
        Limits, and the source of the draws: one draw of each kind per iteration, shared by the batch.
    max_length
        Longest segment; None is N for RRC and 1000 for PRC (l_max).
    metric
        Coordinates to report costs on, if not `coords`.
    """
    count = tours.shape[1]
    longest = max(4, min(count, max_length or (MAX_SEGMENT_LENGTH if parallel else count)))
    metric = coords if metric is None else metric
    budget.note(tour_lengths(metric, tours))
    if count < 4:  # all tours are equal
        return tours
    step = prc_tsp_step if parallel else rrc_tsp_step
    for _ in budget.steps():
        length = _integer(4, longest + 1, generator)
        start, flip = _integer(0, count, generator), bool(_integer(0, 2, generator))
        tours, _ = step(policy, coords, tours, flip=flip, start=start, length=length)
        budget.note(tour_lengths(metric, tours))
    return tours


@torch.inference_mode()
def improve_cvrp(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    budget: Budget,
    generator: torch.Generator,
    *,
    parallel: bool,
    max_length: int | None = None,
    metric: Tensor | None = None,
) -> Routes:
    """Improve CVRP solutions by RRC, or by PRC if `parallel`; never makes one longer or infeasible.

    Parameters are as for `improve_tsp`; the solutions given must be feasible.
    """
    batch, customers = routes[0].shape
    device = routes[0].device
    shortest = min(4, customers)
    longest = max(shortest, min(customers, max_length or (MAX_SEGMENT_LENGTH if parallel else customers)))
    metric = instance.coords if metric is None else metric
    budget.note(route_lengths(metric, *routes))
    if customers < 2:
        return routes
    for _ in budget.steps():
        length = _integer(shortest, longest + 1, generator)
        flip = bool(_integer(0, 2, generator))
        first, second = (_coins(customers, generator, device).expand(batch, -1) for _ in range(2))
        draw = float(torch.rand((), generator=generator))
        if parallel:
            count = routes[1].sum(1)
            routes, _ = prc_cvrp_step(
                policy, instance, routes, length=length, flip=flip, flip_routes=(first, second),
                shift=(draw * count).long() + 1,
            )  # fmt: skip
        else:
            end = torch.full((batch,), draw, device=device)
            routes, _ = rrc_cvrp_step(
                policy, instance, routes, flip=flip, flip_routes=first, length=length, end=end
            )
        budget.note(route_lengths(metric, *routes))
    return routes


def _integer(low: int, high: int, generator: torch.Generator) -> int:
    """Draw uniformly from ``low ... high - 1``."""
    return int(torch.randint(low, high, (), generator=generator))


def _coins(count: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw ``(1, count)`` fair coins."""
    return (torch.rand(1, count, generator=generator) <= 0.5).to(device)
