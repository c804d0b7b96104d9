"""Decoding of local-view policies (INViT, DGL), and their step as the loops of `decoding.search` take it (`LocalViews`).

Loads are whole numbers.

Letters in shapes: B instances, P solutions of each, R = B P rows instance by instance, N nodes (depot first), A options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.nn.device import PerDevice
from nco_bench.solvers.decoding.draws import mixed, scaled, streams, uniform
from nco_bench.solvers.decoding.instances import SYMMETRIES, check_instances, symmetries
from nco_bench.solvers.decoding.search import Move
from nco_bench.solvers.decoding.spec import Decoding
from nco_bench.solvers.decoding.turns import turns
from nco_bench.solvers.stepwise.decode import Task, check_decoding, shortest
from nco_bench.solvers.stepwise.policy import LocalViewPolicy, Options, RoutingNodes, Walk
from nco_bench.solvers.stepwise.problem import Demands, RoutingProblem, cvrp_demands

ROWS_AT_A_TIME = PerDevice(cpu=64, gpu=4096)
"""Local views: partial solutions that are built together: on a CPU as many as its cache holds."""

VIEWED_AT_A_TIME = PerDevice(cpu=2**22, gpu=2**27)
"""Local views: partial solutions x nodes that are held at once."""

START_STEP = 1 << 20
"""A step number that no angle is drawn with."""


@dataclass(frozen=True)
class Walks:
    """Partial solutions with what the policy does not see.

    Attributes
    ----------
    state
        What the policy sees.
    used
        ``(R,)`` load since the last visit to the depot, in the units of the demands; None for the TSP.
    """

    state: Walk
    used: Tensor | None = None

    def follow(self, rows: Tensor) -> Walks:
        """Return copies of the rows ``(R',)``, for beam search."""
        s = self.state
        room = None if s.room is None else s.room[rows]
        memory = tuple(table[rows] for table in s.memory)
        state = Walk(s.first[rows], s.current[rows], s.open[rows], s.left, room, memory)
        return Walks(state, None if self.used is None else self.used[rows])


@dataclass(frozen=True)
class LocalViews:
    """A local-view policy at work on some instances; its actions are positions among the options.

    Attributes
    ----------
    policy, problem, nodes
        The network, the instances, and ``problem.nodes()``.
    """

    policy: LocalViewPolicy
    problem: RoutingProblem
    nodes: RoutingNodes

    def begin(self, copies: int, starts: Tensor | None = None) -> tuple[Walks, Move | None]:
        """Return P solutions per instance that are empty (CVRP, at the depot), or hold their first node.

        Parameters
        ----------
        copies
            P.
        starts
            ``(B, P)`` first nodes, reached via the depot; None if the policy chooses them.
        """
        demands, coords = self.problem.demands, self.problem.coords
        batch, count, _ = coords.shape
        cvrp = demands is not None
        depot = torch.zeros(batch * copies, dtype=torch.int64, device=coords.device)
        is_open = torch.ones(batch * copies, count, dtype=torch.bool, device=depot.device)
        is_open[:, 0] = not cvrp
        memory = tuple(table.repeat_interleave(copies, dim=0) for table in self.policy.remember(self.nodes))
        room = torch.ones_like(depot, dtype=coords.dtype) if cvrp else None
        used = None if demands is None else torch.zeros_like(depot, dtype=demands.amount.dtype)
        walks = Walks(Walk(depot, depot, is_open, count - cvrp, room, memory), used)
        if starts is None:
            return walks, None
        rows = starts.flatten()
        if not cvrp:
            walks = replace(walks, state=replace(walks.state, first=rows))
        via = torch.ones_like(starts, dtype=torch.bool)
        return self.move(walks, rows, via.flatten()), (starts, via if cvrp else None)

    def move(self, walks: Walks, node: Tensor, via: Tensor | None) -> Walks:
        """Go to the nodes ``(R,)``, via the depot where `via` says so; `walks` gives its table of open nodes away."""
        state = walks.state
        is_open = state.open.scatter_(1, node[:, None], False)
        left, room, used = state.left - 1, None, None
        if self.problem.demands is not None and walks.used is not None:
            used, room = _loaded(self.problem.demands, walks.used, node, via, self.problem.coords)
            if via is None and left < 1:  # rows visit the depot at different times; to look makes a GPU wait
                left = int(is_open.sum(dim=1).amax())
        moved = Walk(state.first, node, is_open, left, room, state.memory)
        return Walks(replace(moved, memory=self.policy.moved(self.nodes, moved)), used)

    def scores(self, walks: Walks) -> tuple[Tensor, Options]:
        """Return log-probabilities, ``(B, P, A)``, and the options that they belong to."""
        options = self.policy.options(self.nodes, walks.state)
        return options.log_probs.unflatten(0, (len(self.problem.coords), -1)), options

    def log_probs(self, walks: Walks, scores: Tensor, options: Options) -> Tensor:
        """Return the scores, which are log-probabilities, in float64."""
        return scores.double()

    def only(self, walks: Walks, moves: int) -> tuple[Tensor, Options] | None:
        """Return the last node of a tour."""
        if self.problem.demands is not None or walks.state.left > 1:
            return None
        last = walks.state.open.long().argmax(dim=1)
        here = torch.zeros_like(last).view(len(self.problem.coords), -1)
        return here, Options(last[:, None], torch.zeros_like(last[:, None], dtype=torch.float32))

    def follow(
        self, walks: Walks, options: Options, action: Tensor, parent: Tensor | None = None
    ) -> tuple[Walks, Move]:
        """Take the options ``(B, P)``."""
        nodes, flags, batch = options.nodes, options.via, len(action)
        if parent is not None:
            before = len(walks.state.current) // batch
            rows = (parent + torch.arange(batch, device=parent.device)[:, None] * before).flatten()
            walks, nodes, flags = walks.follow(rows), nodes[rows], None if flags is None else flags[rows]
            if flags is None and self.problem.demands is not None:  # what was known was of other beams
                walks = replace(walks, state=replace(walks.state, left=1))
        picked = action.reshape(-1, 1)
        node = nodes.gather(1, picked).squeeze(1)
        via = None if flags is None else flags.gather(1, picked).squeeze(1)
        walks = self.move(walks, node, via)
        return walks, (node.view(batch, -1), None if via is None else via.view(batch, -1))

    def finished(self, walks: Walks, moves: int) -> bool:
        """Whether every node is visited."""
        return walks.state.left == 0

    def work(self, walks: Walks) -> Sequence[float]:
        """Return ones, a step per node; visits of the depot come on top."""
        return [1] * walks.state.left


def quick(policy: nn.Module) -> LocalViewPolicy:
    """Return the policy's `LocalViewPolicy.quick`; itself where it is wrapped."""
    found = cast("LocalViewPolicy", policy)
    return found.quick() if hasattr(policy, "quick") else found


def _loaded(
    demands: Demands, used: Tensor, node: Tensor, via: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the load after a move, and the share of the capacity that is left, ``(R,)`` each."""
    home = node == 0 if via is None else via
    batch = len(demands.capacity)
    added = demands.amount.gather(1, node.view(batch, -1)).flatten()
    used = torch.where(home, torch.zeros_like(used), used) + added
    capacity = demands.capacity.repeat_interleave(len(node) // batch)
    return used, (capacity - used).to(like.dtype) / capacity.to(like.dtype)


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
    network, like = quick(policy), next(policy.parameters())
    device, nodes = like.device, coords.shape[1]
    seen = coords.to(device, like.dtype)
    demands = None
    if demand is not None and capacity is not None:
        demands = cvrp_demands(demand.to(device), capacity.to(device))
    seeds = (torch.arange(len(coords)) if seeds is None else seeds).to(device)
    rows = min(ROWS_AT_A_TIME.on(device), VIEWED_AT_A_TIME.on(device) // nodes)
    task = Task(
        lambda problem: LocalViews(network, problem, problem.nodes()), decoding, max(1, rows), double=True
    )
    if decoding.augmentation > 1:
        copies, versions = SYMMETRIES, symmetries(seen)
    else:
        versions = turns(seen, copies, seeds) if copies > 1 else seen
    number = torch.arange(copies, device=device)
    own = (mixed(seeds)[:, None] + number).flatten()
    shift = None
    if decoding.augmentation == 1 and decoding.name != "multistart":
        random = scaled(uniform(streams(own, 0, 1), START_STEP), nodes - (demands is not None))
        shift = torch.where(number.repeat(len(seeds))[:, None] > 0, random, 0)
    return shortest(task, coords.to(device), versions, demands, own, shift)
