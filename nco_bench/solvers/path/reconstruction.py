"""Random re-construction (RRC, LEHD) and parallel local re-construction (PRC, SIT), for TSP and CVRP: whole searches.

Both take segments out of a complete solution, rebuild them greedily as path problems of their own, and keep the new
ones where they are strictly shorter (`iterations_tsp`, `iterations_cvrp`). Here their draws are made and time is kept.

Every instance has draws of its own (direction, start of the segments, route ends), from its own seed, so its solution
does not depend on the batch that it is solved in; the official codes share most draws of a batch. Only the length of
the segments is shared, because sub-problems that are solved together must have one length, and waiting for a batch per
length would cost the speed. The lengths are drawn from a stream that depends on the iteration alone: every instance of
a size, in every batch and with every seed, meets the same lengths, uniform as in the papers. So the spread over seeds
does not include that of the lengths. The stream begins with 0, the hash of 0 being 0: the first iteration always has the
shortest segments, and the ten of ``prc:10`` are 0.8 times as long in the mean as they would be over many streams.

Letters in shapes: B batch, N nodes, V customers.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nco_bench.progress import opened
from nco_bench.solvers.decoding.draws import Draws, drawn_draws
from nco_bench.solvers.decoding.insertion import insert_cvrp, insert_tsp
from nco_bench.solvers.decoding.nearest import nearest_by_tree, nearest_visits_by_tree
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import route_lengths, tour_lengths
from nco_bench.solvers.path.reconstruction_cvrp import prc_cvrp_step, rrc_cvrp_step
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance
from nco_bench.solvers.path.reconstruction_tsp import prc_tsp_step, rrc_tsp_step
from nco_bench.solvers.path.route_moves import Routes
from nco_bench.solvers.path.step import TimeIsUpError
from nco_bench.solvers.path.task import Budget, PathBatch, PathTask, Solutions, whole

MAX_SEGMENT_LENGTH = 1000
"""l_max of PRC (SIT, section 5)."""

FLIP, START, ROUTE_FLIP, SECOND_ROUTE_FLIP, ORDER = range(5)
"""Kinds of draws of one iteration; the last one is for the initial insertion."""


@torch.inference_mode()
def improve_tsp(
    policy: PathPolicy,
    coords: Tensor,
    tours: Tensor,
    budget: Budget,
    draws: Draws | torch.Generator,
    *,
    parallel: bool,
    max_length: int | None = None,
    knn: int | None = None,
    metric: Tensor | None = None,
) -> Tensor:
    """Improve tours by RRC, or by PRC if `parallel`; never makes one longer.

    Parameters
    ----------
    coords, tours
        ``(B, N, 2)``, ``(B, N)``.
    budget
        Limits.
    draws
        One stream per instance; a generator (for training) has them drawn.
    max_length
        Longest segment; None is N for RRC and 1000 for PRC (l_max).
    knn
        As in `greedy`, within a segment.
    metric
        Coordinates to report costs on, if not `coords`.
    """
    count = tours.shape[1]
    longest = max(4, min(count, max_length or (MAX_SEGMENT_LENGTH if parallel else count)))
    metric = coords if metric is None else metric
    budget.note(tour_lengths(metric, tours))
    if count < 4:  # all tours are equal
        return tours
    draws = _draws(draws, tours)
    step = prc_tsp_step if parallel else rrc_tsp_step
    for k in budget.steps():
        try:
            tours, _ = step(
                policy, coords, tours, flip=draws.coins(k, FLIP, 1).squeeze(1), start=draws.below(k, START, count),
                length=draws.shared_between(k, 4, longest), knn=knn, deadline=budget.deadline,
            )  # fmt: skip
        except TimeIsUpError:  # an iteration counts whole or not at all
            break
        budget.note(tour_lengths(metric, tours))
    return tours


@torch.inference_mode()
def improve_cvrp(
    policy: PathPolicy,
    instance: CvrpInstance,
    routes: Routes,
    budget: Budget,
    draws: Draws | torch.Generator,
    *,
    parallel: bool,
    max_length: int | None = None,
    knn: int | None = None,
    metric: Tensor | None = None,
) -> Routes:
    """Improve CVRP solutions by RRC, or by PRC if `parallel`; never makes one longer or infeasible.

    Parameters are as for `improve_tsp`; the solutions given must be feasible.
    """
    customers = routes[0].shape[1]
    shortest = min(4, customers)
    longest = max(shortest, min(customers, max_length or (MAX_SEGMENT_LENGTH if parallel else customers)))
    metric = instance.coords if metric is None else metric
    budget.note(route_lengths(metric, *routes))
    if customers < 2:
        return routes
    draws = _draws(draws, routes[0])
    for k in budget.steps():
        length = draws.shared_between(k, shortest, longest)
        flip = draws.coins(k, FLIP, 1).squeeze(1)
        first = draws.coins(k, ROUTE_FLIP, customers)
        try:
            if parallel:
                routes, _ = prc_cvrp_step(
                    policy, instance, routes, length=length, flip=flip,
                    flip_routes=(first, draws.coins(k, SECOND_ROUTE_FLIP, customers)),
                    shift=draws.below(k, START, routes[1].sum(1)) + 1, knn=knn, deadline=budget.deadline,
                )  # fmt: skip
            else:
                routes, _ = rrc_cvrp_step(
                    policy, instance, routes, flip=flip, flip_routes=first, length=length,
                    end=draws.uniform(k, START).squeeze(1), knn=knn, deadline=budget.deadline,
                )  # fmt: skip
        except TimeIsUpError:
            break
        budget.note(route_lengths(metric, *routes))
    return routes


def _draws(draws: Draws | torch.Generator, solutions: Tensor) -> Draws:
    if isinstance(draws, Draws):
        return draws
    return drawn_draws(len(solutions), draws, solutions.device)


def reconstructed(task: PathTask, batch: PathBatch, budget: Budget) -> Solutions:
    """Improve initial solutions by RRC or PRC, as the task's decoding says."""
    decoding, draws = task.decoding, task.draws(batch.coords)
    with opened("", 1, counts=False):
        order, via = _initial(task, batch, draws, budget.deadline)
    parallel, longest, knn = decoding.name == "prc", decoding.length, decoding.knn
    if via is None or batch.demand is None or batch.capacity is None:
        tours = improve_tsp(
            task.policy, batch.coords, order, budget, draws,
            parallel=parallel, max_length=longest, knn=knn, metric=batch.metric,
        )  # fmt: skip
        return tours, None
    instance = CvrpInstance(batch.coords, batch.demand, batch.capacity)
    return improve_cvrp(
        task.policy, instance, (order, via), budget, draws,
        parallel=parallel, max_length=longest, knn=knn, metric=batch.metric,
    )  # fmt: skip


def _initial(task: PathTask, batch: PathBatch, draws: Draws, deadline: float | None) -> Solutions:
    """Build what rrc and prc begin with."""
    init, coords = task.decoding.init, batch.coords
    if init == "greedy":
        problem = batch.problem()
        return whole(problem, greedy(task.policy, problem, knn=task.decoding.knn, deadline=deadline))
    if batch.demand is None or batch.capacity is None:
        order = draws.permutations(0, ORDER, coords.shape[1])
        if init == "insertion":
            return insert_tsp(coords, order), None
        points = coords.double().cpu().numpy()
        tours = [nearest_by_tree(p, start) for p, start in zip(points, order[:, 0].tolist(), strict=True)]
        return torch.from_numpy(np.stack(tours)).to(coords.device), None
    build = _nearest_routes if init == "nearest" else insert_cvrp
    points, demand = coords.float().cpu().numpy(), batch.demand.cpu().numpy()
    made = [build(c, d, int(q)) for c, d, q in zip(points, demand, batch.capacity.tolist(), strict=True)]
    customers, flags = (
        torch.from_numpy(np.stack(part)).to(coords.device) for part in zip(*made, strict=True)
    )
    return customers, flags


def _nearest_routes(
    coords: NDArray[np.float32], demand: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return customers and flags, ``(V,)`` each."""
    visits = nearest_visits_by_tree(coords.astype(np.float64), demand[1:], capacity)
    served = visits > 0
    return visits[served], ~served[:-1][served[1:]]
