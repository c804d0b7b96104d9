"""`decode_local_views`: from raw instances to solutions, with any local-view policy and any decoding that fits it.

Instances and their copies are cut into groups, so that memory stays bounded. Which samples are drawn does not depend
on the groups.

Letters in shapes: B instances, V = B x copies versions of them, C trajectories of each, N nodes (depot first), T moves.
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
from nco_bench.solvers.decoding.draws import mixed, scaled, streams, uniform
from nco_bench.solvers.decoding.inputs import check_instances
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.decoding.symmetries import SYMMETRIES, symmetries
from nco_bench.solvers.decoding.turns import turns
from nco_bench.solvers.stepwise.decode import solution_arrays, trajectories, trajectory_lengths
from nco_bench.solvers.stepwise.local_steps import Moves, beams, best_option, construct, drawn
from nco_bench.solvers.stepwise.policy import LocalViewPolicy
from nco_bench.solvers.stepwise.steps import RoutingProblem, cvrp_demands

ROWS_AT_A_TIME = {"cpu": 64, "cuda": 4096}
"""Partial solutions that are built together: on a CPU as many as its cache holds."""

ENTRIES_AT_A_TIME = {"cpu": 2**22, "cuda": 2**27}
"""Partial solutions x nodes that are held at once."""

NAMES = ("greedy", "sample", "multistart", "beam")
START_STEP = 1 << 20
"""A step number that no angle is drawn with."""


def check_decoding(decoding: Decoding, copies: int = 1) -> None:
    """Raise `BadInputError` for a decoding that does not fit local-view policies."""
    if decoding.name not in NAMES:
        raise BadInputError(
            f"Decoding {decoding.name!r} is for models that solve path problems; use one of {', '.join(NAMES)}, x8."
        )
    if copies < 1 or (copies > 1 and decoding.augmentation > 1):
        raise BadInputError(
            f"turns={copies}: expected a positive number of copies, and 1 together with x8 in decoding {decoding}."
        )


@torch.inference_mode()
def decode_local_views(
    policy: nn.Module,
    coords: Tensor,
    demand: Tensor | None = None,
    capacity: Tensor | None = None,
    *,
    decoding: Decoding,
    seeds: Tensor | None = None,
    copies: int = 1,
) -> list[NDArray[np.int64]]:
    """Solve a batch of instances of one size.

    Parameters
    ----------
    policy
        A local-view policy in evaluation mode; its ``problem`` decides what is expected. Work is done on its device.
    coords
        ``(B, N, 2)`` floats; for the CVRP row 0 is the depot.
    demand, capacity
        CVRP: ``(B, N)`` whole numbers with 0 for the depot, and ``(B,)``.
    decoding
        ``greedy``, ``sample:K``, ``beam:K``, ``multistart[:K]``, each also with ``+x8``. Policies that do not choose their
        first node start at node 0 (CVRP: customer 1); sample c of theirs starts at node c, turned copies at random ones.
    seeds
        ``(B,)`` int64, one per instance, for samples and turns; 0, 1, ... if None.
    copies
        Turned copies of each instance, the original among them, see `nco_bench.solvers.decoding.turns`; the best one counts.

    Returns
    -------
    list of arrays
        TSP: permutations of 0 ... N - 1. CVRP: customers 1 ... N - 1 with 0 for each depot visit, at both ends too.

    Raises
    ------
    BadInputError
        If the tensors do not fit the policy's problem or each other, or the decoding does not fit these policies.
    """
    check_decoding(decoding, copies)
    check_instances(str(policy.problem), coords, demand, capacity, whole_numbers=True)
    parameter = next(policy.parameters())
    device = parameter.device
    seen = coords.to(device, parameter.dtype)
    seeds = (torch.arange(len(coords)) if seeds is None else seeds).to(device)
    if decoding.augmentation > 1:
        copies, versions = SYMMETRIES, symmetries(seen)
    else:
        versions = turns(seen, copies, seeds) if copies > 1 else seen
    demands = None
    if demand is not None and capacity is not None:
        demands = cvrp_demands(demand.to(device), capacity.to(device)).repeat(copies)
    number = torch.arange(copies, device=device)
    task = _Task(cast("LocalViewPolicy", policy), decoding, decoding.augmentation == 1)
    metric = coords.to(device).double().repeat_interleave(copies, dim=0)
    own = mixed(seeds)[:, None] + number
    found, lengths = _solve(
        task, RoutingProblem(versions, demands), metric, own.flatten(), number.repeat(len(seeds))
    )
    best = lengths.view(-1, copies).argmin(dim=1) + torch.arange(len(coords), device=device) * copies
    return _arrays(found[best], cvrp=demands is not None)


@dataclass(frozen=True)
class _Task:
    """What stays the same during one call; `turned` is True where copies are turned and not mirrored in the square."""

    policy: LocalViewPolicy
    decoding: Decoding
    turned: bool


def _solve(
    task: _Task, problem: RoutingProblem, metric: Tensor, seeds: Tensor, number: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the best solution of each version as a sequence of nodes, ``(V, T)``, and its length, ``(V,)``."""
    nodes = problem.coords.shape[1]
    total = trajectories(task.decoding, nodes - (problem.demands is not None))
    kind = problem.coords.device.type
    rows = max(1, min(ROWS_AT_A_TIME.get(kind, 1024), ENTRIES_AT_A_TIME.get(kind, 2**26) // nodes))
    size = max(1, rows // total)
    parts = []
    for begin in range(0, len(metric), size):
        group = slice(begin, begin + size)
        best: tuple[Tensor, Tensor] | None = None
        for moves in _groups(task, problem.take(group), seeds[group], number[group], total, rows):
            best = _better(best, moves, metric[group])
        assert best is not None
        parts.append(best)
    longest = max(part.shape[1] for part, _ in parts)
    found = torch.cat([F.pad(part, (0, longest - part.shape[1])) for part, _ in parts])
    return found, torch.cat([lengths for _, lengths in parts])


def _groups(
    task: _Task, problem: RoutingProblem, seeds: Tensor, number: Tensor, total: int, rows: int
) -> Iterator[Moves]:
    """Yield solutions of some versions, ``(V C, T)``, group by group."""
    starts = _starts(task, problem, seeds, number, total)
    if task.decoding.name == "beam":
        yield beams(task.policy, problem, total, None if starts is None else starts[:, 0])
        return
    for first in range(0, total, rows):
        count = min(rows, total - first)
        sampled = task.decoding.name == "sample"
        choose = drawn(streams(seeds, first, count).flatten()) if sampled else best_option
        chosen = None if starts is None else starts[:, first : first + count].flatten()
        yield construct(task.policy, problem, choose, copies=count, starts=chosen)


def _starts(task: _Task, problem: RoutingProblem, seeds: Tensor, number: Tensor, total: int) -> Tensor | None:
    """Return the first nodes that are given, ``(V, C)``, or None where the policy chooses them."""
    cvrp = problem.demands is not None
    customers = problem.coords.shape[1] - cvrp
    device = problem.coords.device
    if task.decoding.name == "multistart":
        first = torch.linspace(0, customers - 1, total, device=device, dtype=torch.float64).round().long()
    elif not task.policy.needs_start:
        return None
    else:
        first = torch.arange(total if task.decoding.name == "sample" else 1, device=device)
    starts = first.expand(len(problem.coords), -1)
    if task.turned and task.decoding.name != "multistart":
        moved = scaled(uniform(streams(seeds, 0, 1), START_STEP), customers)
        starts = starts + torch.where(number[:, None] > 0, moved, 0)
    return starts.remainder(customers) + int(cvrp)


def _better(best: tuple[Tensor, Tensor] | None, moves: Moves, metric: Tensor) -> tuple[Tensor, Tensor]:
    """Keep the shortest solution of each version (the first among equals)."""
    cvrp = moves.via is not None
    sequences = _sequences(moves).unflatten(0, (len(metric), -1))
    lengths = trajectory_lengths(metric, sequences, cvrp=cvrp)
    lengths = lengths.masked_fill(moves.log_prob.view(lengths.shape).isneginf(), torch.inf)
    shortest = lengths.min(dim=1)
    found = sequences[torch.arange(len(metric), device=metric.device), shortest.indices]
    if best is None:
        return found, shortest.values
    width = max(best[0].shape[1], found.shape[1])
    old, found = (F.pad(t, (0, width - t.shape[1])) for t in (best[0], found))
    better = shortest.values < best[1]
    return torch.where(better[:, None], found, old), torch.where(better, shortest.values, best[1])


def _sequences(moves: Moves) -> Tensor:
    """Write visits of the depot out, ``(R, T)`` to ``(R, 2 T)``; where there is none, the last node is repeated."""
    if moves.via is None:
        return moves.nodes
    before = F.pad(moves.nodes[:, :-1], (1, 0)).masked_fill(moves.via, 0)
    return torch.stack([before, moves.nodes], dim=2).flatten(1)


def _arrays(found: Tensor, *, cvrp: bool) -> list[NDArray[np.int64]]:
    """Turn sequences ``(B, T)`` into the project's solutions."""
    solutions = solution_arrays(found, cvrp=cvrp)
    if not cvrp:
        return solutions
    return [row[np.append(True, row[1:] != row[:-1])] for row in solutions]
