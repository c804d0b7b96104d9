"""One step of local-view policies (INViT, DGL), as the loops of `nco_bench.solvers.decoding.search` take it (`LocalViews`).

Loads are whole numbers.

Letters in shapes: B instances, P solutions of each, R = B P rows instance by instance, N nodes (depot first), A options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nco_bench.solvers.decoding.search import Move
from nco_bench.solvers.stepwise.policy import LocalViewPolicy, Options, RoutingNodes, Walk
from nco_bench.solvers.stepwise.problem import Demands, RoutingProblem


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
