"""Iterations of random (RRC, LEHD) and of parallel (PRC, SIT) re-construction, with the same draws on both sides.

Segments are cut and put back by our code on both sides, which takes next to no time: the authors' does it on a GPU alone,
in the midst of its tests. What rebuilds them is their network, in their loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.path import reconstruction_cvrp
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import path_lengths, route_arrays, route_lengths
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance, Rebuilt
from nco_bench.solvers.path.reconstruction_tsp import prc_tsp_step, rrc_tsp_step, turned
from nco_bench.solvers.path.route_moves import Routes
from official.ciam import Decide, chosen, encoded
from official.engine import Case, Pair, same_rows
from official.instances import Instances, drawn

DRAWS = {"rrc": ((False, 11, 40), (True, 57, 80), (False, 83, 20)), "prc": ((False, 11, 40), (True, 333, 25))}
"""Per iteration: whether tours are reversed, where the first segment begins, nodes per segment."""


def rebuilding_pair(case: Case, official: nn.Module, decide: Decide) -> Pair:
    """Prepare the iterations of `DRAWS`, from tours or routes in the order of the nodes."""
    if case.problem == "cvrp":
        return routes_pair(case, official, decide)
    policy = build_path_policy(case.model, case.problem)
    load_official(policy, case.model, official.state_dict())
    coords = drawn(case.problem, case.size, case.batch).coords
    kind = case.decoding.split(":")[0]
    begun = torch.arange(case.size).expand(case.batch, -1)
    step = rrc_tsp_step if kind == "rrc" else prc_tsp_step

    def theirs() -> Any:
        tours = begun
        with torch.no_grad():
            for flip, start, length in DRAWS[kind]:
                tours = turned(tours, flip, start)
                segments = 1 if kind == "rrc" else case.size // length
                old = tours[:, : segments * length].reshape(-1, length)
                points = coords.repeat_interleave(segments, dim=0)
                new = old.gather(
                    1, rebuilt(official, decide, points.gather(1, old[..., None].expand(-1, -1, 2)))
                )
                better = path_lengths(points, new) < path_lengths(points, old)
                kept = torch.where(better[:, None], new, old).view(case.batch, -1)
                tours = torch.cat([kept, tours[:, segments * length :]], dim=1)
        return tours.tolist()

    def ours() -> Any:
        tours = begun
        with torch.inference_mode():
            for flip, start, length in DRAWS[kind]:
                tours, _ = step(
                    cast("PathPolicy", policy), coords, tours, flip=flip, start=start, length=length
                )
        return tours.tolist()

    return Pair([theirs], ours, same_rows)


def rebuilt(model: Any, decide: Decide, coords: Tensor) -> Tensor:
    """Build paths from the first to the last row of each segment ``(S, L, 2)`` as the official loop does, ``(S, L)``."""
    some = Instances(coords)
    known, last = encoded(model, some), coords.shape[1] - 1
    visited = torch.tensor([last, 0]).repeat(len(coords), 1)
    while visited.shape[1] <= last:
        best = decide(known, some, visited, None).argmax(dim=1, keepdim=True)
        visited = torch.cat([visited, best], dim=1)
    return visited.roll(-1, dims=1)


def routes_pair(case: Case, official: nn.Module, decide: Decide) -> Pair:
    """Prepare the iterations of `DRAWS` on the CVRP."""
    policy = build_path_policy(case.model, case.problem)
    load_official(policy, case.model, official.state_dict())
    some = drawn(case.problem, case.size, case.batch)
    assert some.demand is not None
    assert some.capacity is not None
    instance = CvrpInstance(some.coords, some.demand, some.capacity)
    kind, begun = case.decoding.split(":")[0], filled(instance)
    generator = torch.Generator().manual_seed(11)
    count = case.batch
    coins = [torch.rand(2, count, case.size, generator=generator) < 0.5 for _ in DRAWS[kind]]
    ends = [torch.rand(count, generator=generator) for _ in DRAWS[kind]]

    def solve() -> Any:
        routes = begun
        for (flip, shift, length), (one, other), end in zip(DRAWS[kind], coins, ends, strict=True):
            if kind == "rrc":
                routes, _ = reconstruction_cvrp.rrc_cvrp_step(
                    cast("PathPolicy", policy),
                    instance,
                    routes,
                    flip=flip,
                    flip_routes=one,
                    length=length,
                    end=end,
                )
                continue
            turn = shift % routes[1].sum(1) + 1
            routes, _ = reconstruction_cvrp.prc_cvrp_step(
                cast("PathPolicy", policy), instance, routes,
                length=length, flip=flip, flip_routes=(one, other), shift=turn,
            )  # fmt: skip
        return route_arrays(*routes)

    def theirs() -> Any:
        with torch.no_grad(), replaced(lambda *given: rebuilt_routes(official, decide, *given)):
            return solve()

    return Pair([theirs], torch.inference_mode()(solve), same_rows)


def filled(instance: CvrpInstance) -> Routes:
    """Serve the customers in order; a vehicle returns when the next does not fit."""
    flags = []
    for demand, capacity in zip(instance.demand[:, 1:].tolist(), instance.capacity.tolist(), strict=True):
        left, row = 0, []
        for wanted in demand:
            row.append(wanted > left)
            left = (capacity if row[-1] else left) - wanted
        flags.append(row)
    via = torch.tensor(flags)
    return torch.arange(1, via.shape[1] + 1).expand_as(via).contiguous(), via


@contextmanager
def replaced(rebuild: Callable[..., Rebuilt]) -> Iterator[None]:
    """Rebuild segments of routes otherwise."""
    ours, reconstruction_cvrp.rebuild_cvrp = reconstruction_cvrp.rebuild_cvrp, rebuild
    try:
        yield
    finally:
        reconstruction_cvrp.rebuild_cvrp = ours


def rebuilt_routes(
    model: Any, decide: Decide, policy: Any, whole: CvrpInstance, source: Tensor, segments: Routes, room: Tensor,
    knn: int | None, deadline: float | None = None,
) -> Rebuilt:  # fmt: skip
    """Rebuild segments behind their first customer as the official loop does; see our `rebuild_cvrp` for what is given."""
    order, via = segments
    customers, local = order.sort(dim=1)
    nodes = torch.cat([torch.zeros_like(customers[:, :1]), customers], dim=1)
    rows = source[:, None]
    some = Instances(whole.coords[rows, nodes], whole.demand[rows, nodes], whole.capacity[source])
    assert some.demand is not None
    assert some.capacity is not None
    rank = local.argsort(dim=1) + 1
    visited, flags, each = rank[:, :1], [via[:, 0]], torch.arange(len(order))
    remaining = torch.where(via[:, 0], some.capacity, room) - some.demand[each, visited[:, 0]]
    known = encoded(model, some)
    while visited.shape[1] < order.shape[1]:
        node, by = chosen(decide(known, some, visited, remaining), some)
        assert by is not None
        by = by | (some.demand[each, node] > remaining)
        remaining = torch.where(by, some.capacity, remaining) - some.demand[each, node]
        visited, flags = torch.cat([visited, node[:, None]], dim=1), [*flags, by]
    new = torch.stack(flags, dim=1)
    before, after = (
        route_lengths(some.coords, *one, first_edge=False) for one in ((rank, via), (visited, new))
    )
    return Rebuilt(nodes.gather(1, visited), new, before, after)
