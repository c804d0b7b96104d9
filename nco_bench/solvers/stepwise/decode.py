"""`decode_encode_once`: from raw instances to solutions, with any encode-once policy and any decoding that fits it.

Instances, starts and samples are cut into groups, so that memory stays bounded; each instance is encoded once (eight
times with ``x8``). Which samples are drawn does not depend on the groups.

Letters in shapes: B instances, P trajectories, N nodes (depot first), T moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.inputs import check_instances
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.decoding.symmetries import SYMMETRIES, symmetries
from nco_bench.solvers.stepwise.beam import final_beams
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy
from nco_bench.solvers.stepwise.steps import (
    RoutingProblem,
    cvrp_demands,
    float32_demands,
    greedy_choice,
    roll_out,
    sampling,
)

NODES_AT_A_TIME = {"cpu": 2**12, "cuda": 2**20}
"""Nodes that are encoded and decoded together: on a CPU as many as its cache holds."""

ENTRIES_AT_A_TIME = {"cpu": 5 * 2**13, "cuda": 2**25}
"""Scores (instances x trajectories x nodes) that are held at once."""

NAMES = ("greedy", "sample", "multistart", "beam")


@torch.inference_mode()
def decode_encode_once(
    policy: nn.Module,
    coords: Tensor,
    demand: Tensor | None = None,
    capacity: Tensor | None = None,
    *,
    decoding: Decoding,
    seeds: Tensor | None = None,
    float32_loads: bool = False,
) -> list[NDArray[np.int64]]:
    """Solve a batch of instances of one size.

    Parameters
    ----------
    policy
        An encode-once policy in evaluation mode; its ``problem`` decides what is expected. Work is done on its device.
    coords
        ``(B, N, 2)`` floats in the unit square; for the CVRP row 0 is the depot.
    demand, capacity
        CVRP: ``(B, N)`` with 0 for the depot, and ``(B,)``. Whole numbers are counted exactly.
    decoding
        ``greedy``, ``sample:K``, ``beam:K``, ``multistart[:K]``, each also with ``+x8``. Policies that do not choose their
        first node (POMO, ELG) start at node 0 (CVRP: customer 1); sample c of theirs starts at node c.
    seeds
        ``(B,)`` int64, one per instance, for sampling; 0, 1, ... if None.
    float32_loads
        Add loads up in float32 as the official AM does, see `float32_demands`.

    Returns
    -------
    list of arrays
        TSP: permutations of 0 ... N - 1. CVRP: customers 1 ... N - 1 with 0 for each depot visit, at both ends too.

    Raises
    ------
    BadInputError
        If the tensors do not fit the policy's problem or each other, or the decoding does not fit these policies.
    """
    check_decoding(decoding)
    check_instances(str(policy.problem), coords, demand, capacity)
    parameter = next(policy.parameters())
    copies = SYMMETRIES if decoding.augmentation == SYMMETRIES else 1
    seen = coords.to(parameter.device, parameter.dtype)
    demands = None
    if demand is not None and capacity is not None:
        count = float32_demands if float32_loads else cvrp_demands
        demands = count(demand.to(parameter.device), capacity.to(parameter.device)).repeat(copies)
    problem = RoutingProblem(symmetries(seen) if copies > 1 else seen, demands)
    metric = coords.to(parameter.device).double().repeat_interleave(copies, dim=0)
    seeds = torch.arange(len(coords)) if seeds is None else seeds
    version = torch.arange(copies, device=parameter.device)
    seeds = (seeds.to(parameter.device)[:, None] * SYMMETRIES + version).flatten()
    task = _Task(cast("EncodeOncePolicy", policy), decoding, problem.coords.device.type)
    nodes, lengths = _solve(task, problem, metric, seeds)
    best = lengths.view(-1, copies).argmin(dim=1) + torch.arange(len(coords), device=nodes.device) * copies
    return solution_arrays(nodes[best], cvrp=demands is not None)


@dataclass(frozen=True)
class _Task:
    """What stays the same during one call."""

    policy: EncodeOncePolicy
    decoding: Decoding
    device: str

    def entries(self) -> int:
        return ENTRIES_AT_A_TIME.get(self.device, 2**20)

    def instances_at_a_time(self, nodes: int, trajectories: int) -> int:
        cap = NODES_AT_A_TIME.get(self.device, 2**16) // nodes
        return max(1, min(cap, self.entries() // (nodes * trajectories)))

    def trajectories_at_a_time(self, nodes: int) -> int:
        return max(1, self.entries() // nodes)


def check_decoding(decoding: Decoding) -> None:
    """Raise `BadInputError` for a decoding that does not fit encode-once policies."""
    if decoding.name not in NAMES:
        raise BadInputError(
            f"Decoding {decoding.name!r} is for models that solve path problems; use one of {', '.join(NAMES)}, x8."
        )
    if decoding.knn is not None:
        raise BadInputError(f"Decoding {decoding}: these models see all nodes; leave knn out.")


def _solve(task: _Task, problem: RoutingProblem, metric: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best trajectory of each instance, ``(B, T)``, and its length, ``(B,)``."""
    nodes = problem.coords.shape[1]
    total = trajectories(task.decoding, nodes - (problem.demands is not None))
    size = task.instances_at_a_time(nodes, total)
    parts = []
    for begin in range(0, len(metric), size):
        rows = slice(begin, begin + size)
        parts.append(_solve_group(task, problem.take(rows), metric[rows], seeds[rows], total))
    longest = max(part.shape[1] for part, _ in parts)
    best = torch.cat([F.pad(part, (0, longest - part.shape[1])) for part, _ in parts])
    return best, torch.cat([lengths for _, lengths in parts])


def trajectories(decoding: Decoding, customers: int) -> int:
    """Trajectories per instance, for n nodes (TSP) or customers (CVRP)."""
    if decoding.name == "multistart":
        return min(decoding.k or customers, customers)
    return decoding.k if decoding.name in ("sample", "beam") else 1


def _solve_group(
    task: _Task, problem: RoutingProblem, metric: Tensor, seeds: Tensor, total: int
) -> tuple[Tensor, Tensor]:
    """Encode instances, decode all trajectories of them in groups, and keep the best so far."""
    encoded = task.policy.encode(problem.nodes())
    best, best_lengths = None, None
    for nodes, lengths in _groups(task, problem, encoded, metric, seeds, total):
        shortest = lengths.min(dim=1)
        found = nodes[torch.arange(len(nodes), device=nodes.device), shortest.indices]
        if best is None or best_lengths is None:
            best, best_lengths = found, shortest.values
            continue
        width = max(best.shape[1], found.shape[1])
        best, found = (F.pad(t, (0, width - t.shape[1])) for t in (best, found))
        better = shortest.values < best_lengths
        best = torch.where(better[:, None], found, best)
        best_lengths = torch.where(better, shortest.values, best_lengths)
    assert best is not None
    assert best_lengths is not None
    return best, best_lengths


def _groups(
    task: _Task, problem: RoutingProblem, encoded: object, metric: Tensor, seeds: Tensor, total: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield trajectories ``(B, P, T)`` and their lengths ``(B, P)``, group by group."""
    starts = _starts(task, problem, total)
    if task.decoding.name == "beam":
        beams = final_beams(task.policy, problem, encoded, total, starts)
        assert beams.log_prob is not None
        lengths = trajectory_lengths(metric, beams.nodes, cvrp=problem.demands is not None)
        yield beams.nodes, lengths.masked_fill(beams.log_prob.isneginf(), torch.inf)
        return
    size = task.trajectories_at_a_time(problem.coords.shape[1])
    for begin in range(0, total, size):
        count = min(size, total - begin)
        choose = sampling(seeds, begin, count) if task.decoding.name == "sample" else greedy_choice
        chosen = None if starts is None else starts[:, begin : begin + count]
        nodes = roll_out(task.policy, problem, encoded, count, choose, starts=chosen).nodes
        yield nodes, trajectory_lengths(metric, nodes, cvrp=problem.demands is not None)


def _starts(task: _Task, problem: RoutingProblem, total: int) -> Tensor | None:
    """Return the first nodes that are given, ``(B, P)``, or None where the policy chooses them."""
    decoding, cvrp = task.decoding, problem.demands is not None
    customers = problem.coords.shape[1] - cvrp
    device = problem.coords.device
    if decoding.name == "multistart":
        first = torch.linspace(0, customers - 1, total, device=device, dtype=torch.float64).round().long()
    elif not task.policy.needs_start:
        return None
    elif decoding.name == "sample":
        first = torch.arange(total, device=device).remainder(customers)
    else:
        first = torch.zeros(1, dtype=torch.int64, device=device)
    return (first + int(cvrp)).expand(len(problem.coords), -1)


def trajectory_lengths(coords: Tensor, nodes: Tensor, *, cvrp: bool) -> Tensor:
    """Lengths of closed tours or of routes, float64.

    Parameters
    ----------
    coords
        ``(B, N, 2)`` float64.
    nodes
        ``(B, P, T)``.
    cvrp
        Whether the vehicle also starts and ends at node 0.

    Returns
    -------
    Tensor
        ``(B, P)``, rounded to 1e-9, so that equal solutions (routes in another order, say) are equally long however
        the sum is cut, and the first of them is kept.
    """
    if cvrp:
        nodes = F.pad(nodes, (1, 0))
    batch, trajectories, moves = nodes.shape
    index = nodes.reshape(batch, -1, 1).expand(-1, -1, 2)
    points = coords.gather(1, index).view(batch, trajectories, moves, 2)
    return (points - points.roll(-1, dims=2)).norm(dim=3).sum(dim=2).round(decimals=9)


def solution_arrays(nodes: Tensor, *, cvrp: bool) -> list[NDArray[np.int64]]:
    """Turn ``(B, T)`` moves into the project's solutions: tours, or sequences with 0 at both ends."""
    rows = nodes.cpu().numpy()
    if not cvrp:
        return list(rows)
    return [np.concatenate([[0], np.trim_zeros(row), [0]]) for row in rows]
