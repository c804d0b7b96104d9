"""From raw instances to solutions, with any stepwise policy and any decoding that fits it.

`decode_encode_once` is for policies that see all nodes; those that see a few have theirs in `local_steps`. Instances, copies
of them, starts and samples are cut into groups, so that memory stays bounded; an instance is encoded once (eight times
with ``x8``). Which samples are drawn does not depend on the groups.

Letters in shapes: B instances, V = B x copies versions of them, P trajectories, N nodes (depot first), T moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.nn.device import PerDevice
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.instances import SYMMETRIES, best_of, check_instances, symmetries
from nco_bench.solvers.decoding.search import (
    Choose,
    Move,
    Steps,
    Trajectories,
    beam_search,
    construct,
    greedy_choice,
    sampling,
)
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.stepwise import rollout
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy
from nco_bench.solvers.stepwise.problem import (
    Demands,
    RoutingProblem,
    cvrp_demands,
    float32_demands,
    solution_arrays,
    trajectory_lengths,
)
from nco_bench.solvers.stepwise.steps import EncodeOnce

NODES_AT_A_TIME = PerDevice(cpu=2**12, gpu=2**20)
"""Nodes that are encoded and decoded together: on a CPU as many as its cache holds."""

ENTRIES_AT_A_TIME = PerDevice(cpu=5 * 2**13, gpu=2**25)
"""Scores (instances x trajectories x nodes) that are held at once."""

NAMES = ("greedy", "sample", "multistart", "beam")


def check_decoding(decoding: Decoding, copies: int | None = None) -> None:
    """Raise `BadInputError` for a decoding that does not fit encode-once policies, or local-view ones with some copies."""
    if decoding.name not in NAMES:
        raise BadInputError(
            f"Decoding {decoding.name!r} is for models that solve path problems; use one of {', '.join(NAMES)}, x8."
        )
    if copies is None:
        if decoding.knn is not None:
            raise BadInputError(f"Decoding {decoding}: these models see all nodes; leave knn out.")
    elif copies < 1 or (copies > 1 and decoding.augmentation > 1):
        raise BadInputError(
            f"turns={copies}: expected a positive number of copies, and 1 together with x8 in decoding {decoding}."
        )


def trajectories(decoding: Decoding, customers: int) -> int:
    """Trajectories per instance, for n nodes (TSP) or customers (CVRP)."""
    if decoding.name == "multistart":
        return min(decoding.k or customers, customers)
    return decoding.k if decoding.name in ("sample", "beam") else 1


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
    network, like = cast("EncodeOncePolicy", policy), next(policy.parameters())
    device, nodes, copies = like.device, coords.shape[1], decoding.augmentation
    seen = coords.to(device, like.dtype)
    demands = None
    if demand is not None and capacity is not None:
        count = float32_demands if float32_loads else cvrp_demands
        demands = count(demand.to(device), capacity.to(device))
    seeds = (torch.arange(len(coords)) if seeds is None else seeds).to(device)
    task = Task(
        lambda problem: EncodeOnce(network, problem, network.encode(problem.nodes())),
        decoding,
        max(1, ENTRIES_AT_A_TIME.on(device) // nodes),
        NODES_AT_A_TIME.on(device) // nodes,
    )
    versions = symmetries(seen) if copies > 1 else seen
    own = seeds[:, None] * SYMMETRIES + torch.arange(copies, device=device)
    return shortest(task, coords.to(device), versions, demands, own.flatten())


class Policy(Steps[Any, Any], Protocol):
    """A policy at work."""

    @property
    def policy(self) -> Any:
        """The network."""

    @property
    def problem(self) -> RoutingProblem:
        """The instances."""

    def begin(self, trajectories: int, starts: Tensor | None) -> tuple[Any, Move | None]:
        """Return P trajectories of each instance, and the move that led there."""


@dataclass(frozen=True)
class Task:
    """What stays the same during one call.

    Attributes
    ----------
    at_work
        Sets the policy to work on some instances.
    decoding
        Which trajectories are wanted.
    rows, instances
        Trajectories and instances at a time.
    double
        As in `sampling`.
    """

    at_work: Callable[[RoutingProblem], Policy]
    decoding: Decoding
    rows: int
    instances: int = 2**20
    double: bool = False


def shortest(
    task: Task,
    coords: Tensor,
    versions: Tensor,
    demands: Demands | None,
    seeds: Tensor,
    shift: Tensor | None = None,
) -> list[NDArray[np.int64]]:
    """Solve all versions ``(V, N, 2)``, each with its seed, and return the best solution of each instance."""
    copies = len(versions) // len(coords)
    problem = RoutingProblem(versions, None if demands is None else demands.repeat(copies))
    metric = coords.double().repeat_interleave(copies, dim=0)
    total = trajectories(task.decoding, versions.shape[1] - (demands is not None))
    size = max(1, min(task.instances, task.rows // total))
    parts = []
    for begin in tracked(range(0, len(metric), size), "group"):
        rows = slice(begin, begin + size)
        moved = None if shift is None else shift[rows]
        done = _groups(task, task.at_work(problem.take(rows)), seeds[rows], moved, total)
        parts.append(_best(done, metric[rows], cvrp=demands is not None))
    nodes = torch.cat(_padded([part for part, _ in parts]))
    found = best_of(torch.cat([lengths for _, lengths in parts]), nodes, copies)
    return solution_arrays(found, cvrp=demands is not None)


def _groups(
    task: Task, policy: Policy, seeds: Tensor, shift: Tensor | None, total: int
) -> Iterator[Trajectories]:
    """Yield the trajectories of some versions, ``(V, P, T)``, group by group."""
    starts = _starts(task.decoding, policy, shift, total)
    if task.decoding.name == "beam":
        yield beam_search(policy, policy.begin(1, starts), total)
        return
    for first in tracked(range(0, total, task.rows), "group"):
        count = min(task.rows, total - first)
        given = None if starts is None else starts[:, first : first + count]
        drawn = task.decoding.name == "sample"
        if isinstance(policy, EncodeOnce):
            yield rollout.completed(policy, count, given, seeds if drawn else None, first)
            continue
        begun = policy.begin(count, given)
        choose: Choose = greedy_choice
        if drawn:
            before = int(task.double and starts is not None)
            choose = sampling(seeds, first, count, double=task.double, given=before)
        yield construct(policy, begun, choose)


def _starts(decoding: Decoding, policy: Policy, shift: Tensor | None, total: int) -> Tensor | None:
    """Return the first nodes that are given, ``(V, P)``, moved on by ``(V, 1)``; None where the policy chooses them."""
    problem = policy.problem
    cvrp, device = problem.demands is not None, problem.coords.device
    customers = problem.coords.shape[1] - cvrp
    if decoding.name == "multistart":
        first = torch.linspace(0, customers - 1, total, device=device, dtype=torch.float64).round().long()
    elif not policy.policy.needs_start:
        return None
    else:
        first = torch.arange(total if decoding.name == "sample" else 1, device=device)
    starts = first.expand(len(problem.coords), -1)
    return (starts if shift is None else starts + shift).remainder(customers) + int(cvrp)


def _best(groups: Iterator[Trajectories], metric: Tensor, *, cvrp: bool) -> tuple[Tensor, Tensor]:
    """Keep the shortest trajectory of each version (the first among equals), ``(V, T)``, and its length ``(V,)``."""
    best, best_lengths = None, None
    for done in groups:
        sequences = done.sequences()
        lengths = trajectory_lengths(metric, sequences, cvrp=cvrp)
        if done.log_prob is not None:
            lengths = lengths.masked_fill(done.log_prob.isneginf(), torch.inf)
        shortest = lengths.min(dim=1)
        found = sequences[torch.arange(len(metric), device=metric.device), shortest.indices]
        if best is None or best_lengths is None:
            best, best_lengths = found, shortest.values
            continue
        best, found = _padded([best, found])
        better = shortest.values < best_lengths
        best = torch.where(better[:, None], found, best)
        best_lengths = torch.where(better, shortest.values, best_lengths)
    assert best is not None
    assert best_lengths is not None
    return best, best_lengths


def _padded(parts: list[Tensor]) -> list[Tensor]:
    """Fill sequences up with zeros to the same length."""
    longest = max(part.shape[1] for part in parts)
    return [F.pad(part, (0, longest - part.shape[1])) for part in parts]
