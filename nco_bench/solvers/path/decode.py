"""`decode_path`: from raw instances to solutions, with any path policy and any decoding.

Letters in shapes: B batch, N nodes (V customers and the depot for the CVRP).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.progress import opened, tracked
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
    Path,
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
        return tour_arrays(_shortest_version(task, _Batch(task.seen(coords), coords), budget)[0])
    if demand.shape[1] == coords.shape[1] - 1:
        demand = torch.cat([torch.zeros_like(demand[:, :1]), demand], dim=1)
    demand, capacity = demand.to(like.device).long(), capacity.to(like.device).long()
    order, via = _shortest_version(task, _Batch(task.seen(coords), coords, demand, capacity), budget)
    assert via is not None
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


Solutions = tuple[Tensor, Tensor | None]
"""Whole tours ``(B, N)`` and None; or customers and flags, ``(B, V)`` each."""


@dataclass(frozen=True)
class _Batch:
    """Instances as the policy sees them, ``(B, N, 2)``; `metric` are the coordinates that lengths are measured on."""

    coords: Tensor
    metric: Tensor
    demand: Tensor | None = None
    capacity: Tensor | None = None

    def problem(self, start: int = 0) -> PathProblem:
        """Return the path problems; tours begin at `start`."""
        if self.demand is None or self.capacity is None:
            return tsp_problem(self.coords, start)
        return cvrp_problem(self.coords, self.demand, self.capacity)

    def lengths(self, found: Solutions) -> Tensor:
        """Lengths of one or more solutions per instance, float64."""
        order, via = found
        metric = self.metric.repeat_interleave(len(order) // len(self.metric), dim=0)
        return tour_lengths(metric, order) if via is None else route_lengths(metric, order, via)


def _shortest_version(task: _Task, batch: _Batch, budget: Budget) -> Solutions:
    """Decode; with augmentation return the shortest of the eight versions."""
    if task.decoding.augmentation == 1:
        return _decoded(task, batch, budget)
    coords = task.seen(symmetries(batch.metric))
    given = (batch.metric, batch.demand, batch.capacity)
    metric, demand, capacity = (
        None if each is None else each.repeat_interleave(SYMMETRIES, dim=0) for each in given
    )
    assert metric is not None
    versions = _Batch(coords, metric, demand, capacity)
    quiet = replace(budget, report=lambda seconds, costs: None)
    found = _decoded(task, versions, quiet)
    found = _kept(versions.lengths(found), found, SYMMETRIES)
    budget.note(batch.lengths(found))
    return found


def _decoded(task: _Task, batch: _Batch, budget: Budget) -> Solutions:
    """Decode without augmentation: re-construct, or keep the shortest of all that is built."""
    decoding = task.decoding
    if decoding.name in ("rrc", "prc"):
        return _reconstructed(task, batch, budget)
    if decoding.name == "multistart" and batch.demand is not None:
        raise BadInputError("Decoding multistart: every CVRP solution of a path policy starts at the depot.")
    best, best_lengths = None, None
    for found in _built(task, batch):
        lengths = batch.lengths(found)
        copies = len(lengths) // len(batch.coords)
        found, lengths = _kept(lengths, found, copies), lengths.view(-1, copies).amin(dim=1)
        if best is None or best_lengths is None:
            best, best_lengths = found, lengths
            continue
        better = lengths < best_lengths
        best, best_lengths = _either(better, found, best), torch.minimum(lengths, best_lengths)
    assert best is not None
    assert best_lengths is not None
    budget.note(best_lengths)
    return best


def _built(task: _Task, batch: _Batch) -> Iterator[Solutions]:
    """Yield solutions, one or more per instance, ``(B copies, ...)`` instance by instance."""
    decoding, policy, knn = task.decoding, task.policy, task.decoding.knn
    if decoding.name == "multistart":  # evenly spread start nodes, all of them if k is 0
        count = batch.coords.shape[1]
        starts = torch.linspace(0, count - 1, min(decoding.k or count, count)).round().long().unique()
        problems = (batch.problem(start) for start in tracked(starts.tolist(), "start"))
        yield from (_whole(problem, greedy(policy, problem, knn=knn)) for problem in problems)
        return
    problem = batch.problem()
    if decoding.name == "sample":
        seeds = task.seeds(len(problem.rows))
        size = max(1, SAMPLES_AT_A_TIME_TOKENS // (problem.rows.shape[1] * 16))
        for first in tracked(range(0, decoding.k, size), "group"):
            count = min(size, decoding.k - first)
            yield _whole(problem, sample(policy, problem, count, seeds, first=first, knn=knn))
    elif decoding.name == "beam":
        yield _whole(problem, beam(policy, problem, decoding.k, knn=knn))
    else:
        yield _whole(problem, greedy(policy, problem, knn=knn))


def _reconstructed(task: _Task, batch: _Batch, budget: Budget) -> Solutions:
    """Improve initial solutions by RRC or PRC."""
    decoding, draws = task.decoding, task.draws(batch.coords)
    with opened("", 1, counts=False):
        order, via = _initial(task, batch, draws)
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


def _initial(task: _Task, batch: _Batch, draws: Draws) -> Solutions:
    """Build what rrc and prc begin with."""
    init, coords = task.decoding.init, batch.coords
    if init == "greedy":
        problem = batch.problem()
        return _whole(problem, greedy(task.policy, problem, knn=task.decoding.knn))
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
    visits = nearest_visits(demand[1:], capacity, squared_distances(coords.astype(np.float64)))
    served = visits > 0
    return visits[served], ~served[:-1][served[1:]]


def _whole(problem: PathProblem, path: Path) -> Solutions:
    """Put the start node before the visiting order of a tour; set the first flag of routes, which begin at the depot."""
    if path.via is None:
        copies = len(path.order) // len(problem.rows)
        return torch.cat([problem.rows[:, :1].repeat_interleave(copies, dim=0), path.order], dim=1), None
    via = path.via.clone()
    via[:, 0] = True
    return path.order, via


def _kept(lengths: Tensor, found: Solutions, copies: int) -> Solutions:
    """Keep the shortest of `copies` solutions per instance."""
    order, via = found
    return best_of(lengths, order, copies), None if via is None else best_of(lengths, via, copies)


def _either(first: Tensor, one: Solutions, other: Solutions) -> Solutions:
    """Take the solutions of `one` where `first` ``(B,)`` says so, else those of the other."""
    order = torch.where(first[:, None], one[0], other[0])
    if one[1] is None or other[1] is None:
        return order, None
    return order, torch.where(first[:, None], one[1], other[1])
