"""`decode_path`: from raw instances to solutions, with any path policy and any decoding.

Letters in shapes: B batch, N nodes (V customers and the depot for the CVRP).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.draws import Draws, instance_draws
from nco_bench.solvers.decoding.inputs import check_instances
from nco_bench.solvers.decoding.insertion import insert_cvrp, insert_tsp
from nco_bench.solvers.decoding.nearest import nearest_by_tree, nearest_visits, squared_distances
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.decoding.symmetries import SYMMETRIES, best_of, symmetries
from nco_bench.solvers.path.beam import beam
from nco_bench.solvers.path.construct import greedy, sample
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import (
    PathProblem,
    cvrp_problem,
    route_arrays,
    route_lengths,
    tour_arrays,
    tour_lengths,
    tsp_problem,
)
from nco_bench.solvers.path.reconstruction import ORDER, Budget, improve_cvrp, improve_tsp
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do: iterations of rrc and prc, otherwise 1 of 1 at the end."""

SAMPLES_AT_A_TIME_TOKENS = 2**21
"""Samples are drawn in groups, so that all partial solutions of a group have at most this many indices."""


@dataclass
class Trace:
    """How costs fell over time, filled in by `decode_path`.

    Attributes
    ----------
    seconds
        Since the solve began.
    costs
        ``(B,)`` float64 each: Euclidean lengths of the best solutions so far, on the coordinates given.
    """

    seconds: list[float] = field(default_factory=list)
    costs: list[NDArray[np.float64]] = field(default_factory=list)


@torch.inference_mode()
def decode_path(
    policy: PathPolicy,
    coords: Tensor,
    demand: Tensor | None = None,
    capacity: Tensor | None = None,
    *,
    decoding: Decoding,
    seed: int = 0,
    time_limit: float | None = None,
    progress: Progress | None = None,
    coordinate_scale: float = 1.0,
    trace: Trace | None = None,
) -> list[NDArray[np.int64]]:
    """Solve a batch of instances of one size.

    Parameters
    ----------
    policy
        A path policy in evaluation mode; its ``problem`` decides what is expected. Work is done on its device.
    coords
        ``(B, N, 2)`` floats as the model is to see them (the unit square; library instances scaled by one common
        factor); for the CVRP row 0 is the depot. Any float type; the policy sees its own.
    demand, capacity
        CVRP: ``(B, N)`` whole numbers with 0 for the depot (or ``(B, N - 1)`` without it), and ``(B,)``.
    decoding
        From `parse_decoding`.
    seed
        Seed of the first instance; instance b has ``seed + b``. Samples, the segments of rrc and prc and the node
        vectors of PENS depend on the seed of their instance, so a solution does not depend on the batch (but for rounding
        in matrix products of other shapes). The lengths of segments depend on no seed, see `reconstruct`.
    time_limit
        Seconds for the whole batch. rrc and prc stop before the first iteration that begins later; the others have no
        intermediate solution to stop at and ignore it.
    progress
        See `Progress`.
    coordinate_scale
        What coordinates are multiplied by before the policy sees them (PENS); lengths are measured without it.
    trace
        Filled with costs against time.

    Returns
    -------
    list of arrays
        TSP: permutations of 0 ... N - 1. CVRP: customers 1 ... N - 1 with 0 for each depot visit, at both ends too.

    Raises
    ------
    BadInputError
        If the tensors do not fit the policy's problem or each other.
    """
    begun = time.monotonic()
    weights = next(policy.parameters(), None) if isinstance(policy, nn.Module) else None
    like = torch.empty(0) if weights is None else weights
    policy.reseed(seed + torch.arange(len(coords)))
    task = _Task(policy, decoding, seed, coordinate_scale, like.dtype)
    budget = Budget(
        decoding.k if decoding.name in ("rrc", "prc") else 0,
        time_limit,
        begun,
        _reporter(decoding, progress, trace),
    )
    check_instances(policy.problem, coords, demand, capacity, whole_numbers=True, depot_optional=True)
    coords = coords.to(like.device)
    if demand is None or capacity is None:
        return tour_arrays(_decode_tsp(task, coords, budget))
    if demand.shape[1] == coords.shape[1] - 1:
        demand = torch.cat([torch.zeros_like(demand[:, :1]), demand], dim=1)
    order, via = _decode_cvrp(
        task, coords, demand.to(like.device).long(), capacity.to(like.device).long(), budget
    )
    return route_arrays(order, via)


@dataclass(frozen=True)
class _Task:
    """What stays the same during one call."""

    policy: PathPolicy
    decoding: Decoding
    seed: int
    scale: float
    dtype: torch.dtype

    def seen(self, coords: Tensor) -> Tensor:
        """Coordinates as the policy sees them."""
        return (coords * self.scale).to(self.dtype) if self.scale != 1 else coords.to(self.dtype)

    def seeds(self, batch: int) -> Tensor:
        """One seed per problem, ``(B,)``; the eight versions of an instance draw apart."""
        copies = self.decoding.augmentation
        count = batch // copies
        return ((self.seed + torch.arange(count))[:, None] * SYMMETRIES + torch.arange(copies)).flatten()

    def draws(self, coords: Tensor) -> Draws:
        """What rrc and prc draw from, for problems ``(B, N, 2)``."""
        return instance_draws(self.seeds(len(coords)).to(coords.device))


def _reporter(
    decoding: Decoding, progress: Progress | None, trace: Trace | None
) -> Callable[[float, Tensor], None]:
    total = decoding.k if decoding.name in ("rrc", "prc") else 1
    calls = 0

    def report(seconds: float, costs: Tensor) -> None:
        nonlocal calls
        if trace is not None:
            trace.seconds.append(seconds)
            trace.costs.append(costs.cpu().numpy())
        if progress is not None and (calls or total == 1):
            progress(min(calls or 1, total), total)
        calls += 1

    return report


# ---------------------------------------------------------------------------------------------------- TSP


def _decode_tsp(task: _Task, coords: Tensor, budget: Budget) -> Tensor:
    """Return tours ``(B, N)``; with augmentation the shortest of the eight versions."""
    if task.decoding.augmentation == 1:
        return _tours(task, coords, coords, budget)
    versions, metric = symmetries(coords), coords.repeat_interleave(SYMMETRIES, dim=0)
    quiet = Budget(budget.iterations, budget.seconds, budget.begun, lambda seconds, costs: None)
    tours = _tours(task, versions, metric, quiet)
    tours = best_of(tour_lengths(metric, tours), tours, SYMMETRIES)
    budget.note(tour_lengths(coords, tours))
    return tours


def _tours(task: _Task, coords: Tensor, metric: Tensor, budget: Budget) -> Tensor:
    """Decode ``(B, N, 2)`` without augmentation; `metric` are the coordinates that lengths are measured on."""
    decoding, policy = task.decoding, task.policy
    seen = task.seen(coords)
    if decoding.name in ("rrc", "prc"):
        draws = task.draws(seen)
        return improve_tsp(
            policy, seen, _initial_tours(task, seen, draws), budget, draws,
            parallel=decoding.name == "prc", max_length=decoding.length, knn=decoding.knn, metric=metric,
        )  # fmt: skip
    if decoding.name == "multistart":
        tours = _multistart(task, seen, metric)
    else:
        problem = tsp_problem(seen)
        orders = _orders(task, problem)
        copies = orders.shape[0] // coords.shape[0]
        tours = torch.cat([problem.rows[:, :1].repeat_interleave(copies, dim=0), orders], dim=1)
        if copies > 1:
            lengths = tour_lengths(metric.repeat_interleave(copies, dim=0), tours)
            tours = best_of(lengths, tours, copies)
    budget.note(tour_lengths(metric, tours))
    return tours


def _initial_tours(task: _Task, seen: Tensor, draws: Draws) -> Tensor:
    """Build what rrc and prc begin with, ``(B, N)``."""
    if task.decoding.init == "greedy":
        problem = tsp_problem(seen)
        return _complete(problem, greedy(task.policy, problem, knn=task.decoding.knn).order)
    order = draws.permutations(0, ORDER, seen.shape[1])
    if task.decoding.init == "insertion":
        return insert_tsp(seen, order)
    points = seen.double().cpu().numpy()
    made = [nearest_by_tree(p, start) for p, start in zip(points, order[:, 0].tolist(), strict=True)]
    return torch.from_numpy(np.stack(made)).to(seen.device)


def _orders(task: _Task, problem: PathProblem) -> Tensor:
    """Return one or more visiting orders per problem, ``(B copies, M)``."""
    decoding = task.decoding
    if decoding.name == "beam":
        return beam(task.policy, problem, decoding.k, knn=decoding.knn).order
    if decoding.name == "sample":
        seeds = task.seeds(len(problem.rows))
        groups = [
            sample(task.policy, problem, size, seeds, first=first, knn=decoding.knn).order.unflatten(
                0, (-1, size)
            )
            for first, size in _sample_groups(decoding.k, problem)
        ]
        return torch.cat(groups, dim=1).flatten(0, 1)
    return greedy(task.policy, problem, knn=decoding.knn).order


def _sample_groups(count: int, problem: PathProblem) -> list[tuple[int, int]]:
    """Cut the number of samples into groups (first, how many) that fit into memory."""
    size = max(1, SAMPLES_AT_A_TIME_TOKENS // (problem.rows.shape[1] * 16))
    return [(done, min(size, count - done)) for done in range(0, count, size)]


def _multistart(task: _Task, seen: Tensor, metric: Tensor) -> Tensor:
    """Greedy from evenly spread start nodes (all of them if k is 0), the shortest tour of each instance."""
    count = seen.shape[1]
    starts = torch.linspace(0, count - 1, min(task.decoding.k or count, count)).round().long().unique()
    best, best_lengths = None, None
    for start in starts.tolist():
        problem = tsp_problem(seen, start)
        tours = _complete(problem, greedy(task.policy, problem, knn=task.decoding.knn).order)
        lengths = tour_lengths(metric, tours)
        if best is None or best_lengths is None:
            best, best_lengths = tours, lengths
            continue
        better = lengths < best_lengths
        best, best_lengths = (
            torch.where(better[:, None], tours, best),
            torch.where(better, lengths, best_lengths),
        )
    return best if best is not None else torch.empty(0, count, dtype=torch.int64)


def _complete(problem: PathProblem, order: Tensor) -> Tensor:
    """Put the start node before the visiting order."""
    return torch.cat([problem.rows[:, :1], order], dim=1)


# --------------------------------------------------------------------------------------------------- CVRP


def _decode_cvrp(
    task: _Task, coords: Tensor, demand: Tensor, capacity: Tensor, budget: Budget
) -> tuple[Tensor, Tensor]:
    """Return customers and flags, ``(B, V)`` each; with augmentation the shortest of the eight versions."""
    if task.decoding.augmentation == 1:
        return _routes(task, coords, demand, capacity, coords, budget)
    metric, demands, capacities = (t.repeat_interleave(SYMMETRIES, dim=0) for t in (coords, demand, capacity))
    quiet = Budget(budget.iterations, budget.seconds, budget.begun, lambda seconds, costs: None)
    order, via = _routes(task, symmetries(coords), demands, capacities, metric, quiet)
    lengths = route_lengths(metric, order, via)
    order, via = best_of(lengths, order, SYMMETRIES), best_of(lengths, via, SYMMETRIES)
    budget.note(route_lengths(coords, order, via))
    return order, via


def _routes(
    task: _Task, coords: Tensor, demand: Tensor, capacity: Tensor, metric: Tensor, budget: Budget
) -> tuple[Tensor, Tensor]:
    """Decode without augmentation; `metric` are the coordinates that lengths are measured on."""
    decoding, policy = task.decoding, task.policy
    seen = task.seen(coords)
    problem = cvrp_problem(seen, demand, capacity)
    if decoding.name in ("rrc", "prc"):
        routes = _initial_routes(task, problem, seen, demand, capacity)
        return improve_cvrp(
            policy, CvrpInstance(seen, demand, capacity), routes, budget, task.draws(seen),
            parallel=decoding.name == "prc", max_length=decoding.length, knn=decoding.knn, metric=metric,
        )  # fmt: skip
    if decoding.name == "multistart":
        raise BadInputError("Decoding multistart: every CVRP solution of a path policy starts at the depot.")
    if decoding.name == "beam":
        path = beam(policy, problem, decoding.k, knn=decoding.knn)
        order, via = path.order, path.flags
    elif decoding.name == "sample":
        order, via = _sampled_routes(task, problem, metric)
    else:
        path = greedy(policy, problem, knn=decoding.knn)
        order, via = path.order, path.flags
    via = _opened(via)
    budget.note(route_lengths(metric, order, via))
    return order, via


def _sampled_routes(task: _Task, problem: PathProblem, metric: Tensor) -> tuple[Tensor, Tensor]:
    """Draw solutions group by group, and keep the shortest of each instance."""
    orders, flags, seeds = [], [], task.seeds(len(problem.rows))
    for first, size in _sample_groups(task.decoding.k, problem):
        path = sample(task.policy, problem, size, seeds, first=first, knn=task.decoding.knn)
        via = _opened(path.flags)
        lengths = route_lengths(metric.repeat_interleave(size, dim=0), path.order, via)
        orders.append(best_of(lengths, path.order, size))
        flags.append(best_of(lengths, via, size))
    order, via = torch.stack(orders, 1).flatten(0, 1), torch.stack(flags, 1).flatten(0, 1)
    lengths = route_lengths(metric.repeat_interleave(len(orders), dim=0), order, via)
    return best_of(lengths, order, len(orders)), best_of(lengths, via, len(flags))


def _initial_routes(
    task: _Task, problem: PathProblem, seen: Tensor, demand: Tensor, capacity: Tensor
) -> tuple[Tensor, Tensor]:
    if task.decoding.init == "greedy":
        path = greedy(task.policy, problem, knn=task.decoding.knn)
        return path.order, _opened(path.flags)
    build = _nearest_routes if task.decoding.init == "nearest" else insert_cvrp
    made = [
        build(c, d, int(q))
        for c, d, q in zip(seen.float().cpu().numpy(), demand.cpu().numpy(), capacity.tolist(), strict=True)
    ]
    order = torch.from_numpy(np.stack([customers for customers, _ in made]))
    via = torch.from_numpy(np.stack([flags for _, flags in made]))
    return order.to(seen.device), via.to(seen.device)


def _nearest_routes(
    coords: NDArray[np.float32], demand: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return customers and flags, ``(V,)`` each."""
    visits = nearest_visits(demand[1:], capacity, squared_distances(coords.astype(np.float64)))
    served = visits > 0
    return visits[served], ~served[:-1][served[1:]]


def _opened(via: Tensor) -> Tensor:
    """Set the first flag, which every solution has: it begins at the depot."""
    via = via.clone()
    via[:, 0] = True
    return via
