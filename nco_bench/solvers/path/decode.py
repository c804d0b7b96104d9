"""`decode_path`: from raw instances to solutions, with any path policy and any decoding.

Letters in shapes: B batch, N nodes (V customers and the depot for the CVRP).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.instances import SYMMETRIES, best_of, check_instances, symmetries
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.path.construct import greedy, sample
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import route_arrays, tour_arrays
from nco_bench.solvers.path.step import TimeIsUpError
from nco_bench.solvers.path.task import Budget, PathBatch, PathTask, Solutions, whole

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
        Seconds for the whole batch. rrc and prc stop before the first iteration that begins later, multistart and sample
        keep what is built by then; a construction without any whole solution ends at the first step that begins later.
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
    TimeIsUpError
        Where the time limit comes before the first solution.
    """
    begun = time.monotonic()
    weights = next(policy.parameters(), None) if isinstance(policy, nn.Module) else None
    like = torch.empty(0) if weights is None else weights
    policy.reseed(seed + torch.arange(len(coords)))
    task = PathTask(policy, decoding, seed, coordinate_scale, like.dtype)
    budget = Budget(
        decoding.k if decoding.name in ("rrc", "prc") else 0,
        time_limit,
        begun,
        _noted_in(trace),
    )
    check_instances(policy.problem, coords, demand, capacity, whole_numbers=True, depot_optional=True)
    coords = coords.to(like.device)
    if demand is None or capacity is None:
        return tour_arrays(_shortest_version(task, PathBatch(task.seen(coords), coords), budget)[0])
    if demand.shape[1] == coords.shape[1] - 1:
        demand = torch.cat([torch.zeros_like(demand[:, :1]), demand], dim=1)
    demand, capacity = demand.to(like.device).long(), capacity.to(like.device).long()
    order, via = _shortest_version(task, PathBatch(task.seen(coords), coords, demand, capacity), budget)
    assert via is not None
    return route_arrays(order, via)


def _noted_in(trace: Trace | None) -> Callable[[float, Tensor], None]:
    """Return what `Budget.report` calls; None notes nothing."""

    def report(seconds: float, costs: Tensor) -> None:
        if trace is not None:
            trace.seconds.append(seconds)
            trace.costs.append(costs.cpu().numpy())

    return report


def _shortest_version(task: PathTask, batch: PathBatch, budget: Budget) -> Solutions:
    """Decode; with augmentation return the shortest of the eight versions."""
    if task.decoding.augmentation == 1:
        return _decoded(task, batch, budget)
    coords = task.seen(symmetries(batch.metric))
    given = (batch.metric, batch.demand, batch.capacity)
    metric, demand, capacity = (
        None if each is None else each.repeat_interleave(SYMMETRIES, dim=0) for each in given
    )
    assert metric is not None
    versions = PathBatch(coords, metric, demand, capacity)
    quiet = replace(budget, report=lambda seconds, costs: None)
    found = _decoded(task, versions, quiet)
    found = _kept(versions.lengths(found), found, SYMMETRIES)
    budget.note(batch.lengths(found))
    return found


def _decoded(task: PathTask, batch: PathBatch, budget: Budget) -> Solutions:
    """Decode without augmentation: re-construct, or keep the shortest of all that is built."""
    decoding = task.decoding
    if decoding.name in ("rrc", "prc"):
        from nco_bench.solvers.path.reconstruction import reconstructed

        return reconstructed(task, batch, budget)
    if decoding.name == "multistart" and batch.demand is not None:
        raise BadInputError("Decoding multistart: every CVRP solution of a path policy starts at the depot.")
    best, best_lengths = None, None
    for found in _in_time(_built(task, batch, budget.deadline)):
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


def _in_time(found: Iterator[Solutions]) -> Iterator[Solutions]:
    """Pass on what is built until the time is up, but not nothing."""
    for number in itertools.count():
        try:
            yield next(found)
        except StopIteration:
            return
        except TimeIsUpError:
            if not number:
                raise
            return


def _built(task: PathTask, batch: PathBatch, deadline: float | None) -> Iterator[Solutions]:
    """Yield solutions, one or more per instance, ``(B copies, ...)`` instance by instance."""
    decoding, policy, knn = task.decoding, task.policy, task.decoding.knn
    if decoding.name == "multistart":  # evenly spread start nodes, all of them if k is 0
        count = batch.coords.shape[1]
        starts = torch.linspace(0, count - 1, min(decoding.k or count, count)).round().long().unique()
        problems = (batch.problem(start) for start in tracked(starts.tolist(), "start"))
        yield from (
            whole(problem, greedy(policy, problem, knn=knn, deadline=deadline)) for problem in problems
        )
        return
    problem = batch.problem()
    if decoding.name == "sample":
        seeds = task.seeds(len(problem.rows))
        size = max(1, SAMPLES_AT_A_TIME_TOKENS // (problem.rows.shape[1] * 16))
        for first in tracked(range(0, decoding.k, size), "group"):
            count = min(size, decoding.k - first)
            yield whole(
                problem, sample(policy, problem, count, seeds, first=first, knn=knn, deadline=deadline)
            )
    elif decoding.name == "beam":
        from nco_bench.solvers.path.beam import beam

        yield whole(problem, beam(policy, problem, decoding.k, knn=knn, deadline=deadline))
    else:
        yield whole(problem, greedy(policy, problem, knn=knn, deadline=deadline))


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
