"""One step of encode-once policies, as the loops of `nco_bench.solvers.decoding.search` take it (`EncodeOnce`).

Masks are kept and changed in place, one entry per move.

Letters in shapes: B instances, P trajectories, N nodes (depot first), T moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.nn.device import PerDevice
from nco_bench.solvers.decoding.search import Move
from nco_bench.solvers.stepwise.glimpse import Glimpse, factored, many_states, pointer_scores
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy, RouteState
from nco_bench.solvers.stepwise.problem import RoutingProblem

MASKS_AT_A_TIME = PerDevice(cpu=2**18, gpu=2**25)
"""Entries of the masks of moves that go through the network together: on a CPU as many as its cache holds."""


@dataclass(frozen=True)
class Progress:
    """Trajectories under way.

    Attributes
    ----------
    state
        What the policy sees.
    used
        ``(B, P)`` load since the last visit to the depot, or None for the TSP.
    open_demand
        ``(B, P, N)`` demands, those of visited customers beyond any capacity; or None for the TSP.
    left
        ``(B, P)`` customers still to be served, or None for the TSP.
    ready
        What was encoded, made ready for this roll-out, see `nco_bench.solvers.stepwise.glimpse.factored`; or None.
    pending
        CVRP: at least so many moves are to come, of one trajectory or another; looking it up makes a GPU wait.
    """

    state: RouteState
    used: Tensor | None = None
    open_demand: Tensor | None = None
    left: Tensor | None = None
    ready: Any = None
    pending: int = 0

    def to_come(self) -> int:
        """Return how many moves the slowest CVRP trajectory needs at least: its customers, and back to the depot."""
        assert self.left is not None
        away = (self.left > 0) | (self.state.current != 0)
        return int((self.left + away).amax())

    def follow(self, parent: Tensor) -> Progress:
        """Return the trajectories ``(B, C)`` given by number, for beam search."""

        def pick(values: Tensor | None) -> Tensor | None:
            if values is None:
                return None
            index = parent if values.dim() == 2 else parent[..., None].expand(-1, -1, values.shape[2])
            return values.gather(1, index)

        state = self.state
        blocked = pick(state.blocked)
        assert blocked is not None
        moved = RouteState(pick(state.first), pick(state.current), blocked, pick(state.room))
        return Progress(moved, pick(self.used), pick(self.open_demand), pick(self.left), pending=self.pending)


def begin(problem: RoutingProblem, trajectories: int) -> Progress:
    """Return P empty trajectories per instance: nowhere (TSP), or at the depot with an empty load (CVRP)."""
    batch, count, _ = problem.coords.shape
    blocked = problem.coords.new_zeros(batch, trajectories, count)
    demands = problem.demands
    if demands is None:
        return Progress(RouteState(None, None, blocked))
    blocked[..., 0] = -torch.inf
    depot = torch.zeros(batch, trajectories, dtype=torch.int64, device=blocked.device)
    open_demand = demands.amount[:, None].repeat(1, trajectories, 1)
    used = torch.zeros_like(depot, dtype=demands.amount.dtype)
    state = RouteState(None, depot, blocked, torch.ones_like(blocked[..., 0]))
    return Progress(state, used, open_demand, torch.full_like(depot, count - 1), pending=count)


def move(problem: RoutingProblem, progress: Progress, node: Tensor) -> Progress:
    """Go to the nodes ``(B, P)``. The masks of `progress` are changed in place, unless gradients are recorded."""
    demands, state = problem.demands, progress.state
    first = node if state.first is None else state.first
    if demands is None:
        blocked = state.blocked.clone() if torch.is_grad_enabled() else state.blocked
        blocked.scatter_(2, node[..., None], -torch.inf)
        return Progress(RouteState(first, node, blocked), ready=progress.ready)
    assert progress.used is not None
    assert progress.open_demand is not None
    assert progress.left is not None
    at_depot = node == 0
    left = progress.left - (~at_depot).long()
    used = (progress.used + demands.amount.gather(1, node)).masked_fill_(at_depot, 0)
    # A visited customer's demand becomes one that never fits; the depot's stays 0.
    never = (demands.capacity + demands.capacity)[:, None].expand_as(node)
    mark = torch.where(at_depot, torch.zeros_like(never), never)
    open_demand = progress.open_demand.scatter_(2, node[..., None], mark[..., None])
    fits = open_demand + used[..., None] <= demands.limit[:, None, None]
    blocked = state.blocked.new_zeros(()).where(fits, -torch.inf)
    # The depot is never left out twice in a row, but it is where finished vehicles stay.
    blocked[..., 0] = torch.where(at_depot & (left > 0), -torch.inf, 0.0)
    capacity = demands.capacity[:, None]
    room = (capacity - used).to(blocked.dtype) / capacity.to(blocked.dtype)
    moved = RouteState(first, node, blocked, room)
    return Progress(moved, used, open_demand, left, progress.ready, progress.pending - 1)


@dataclass(frozen=True)
class EncodeOnce:
    """An encode-once policy at work on some instances; its actions are nodes.

    Attributes
    ----------
    policy, problem, encoded
        The network, the instances, and ``policy.encode(problem.nodes())``.
    """

    policy: EncodeOncePolicy
    problem: RoutingProblem
    encoded: Any

    def begin(self, trajectories: int, starts: Tensor | None = None) -> tuple[Progress, Move | None]:
        """Return P trajectories that are empty, or hold the first nodes ``(B, P)``; and the move that led there."""
        if starts is None and self.policy.needs_start:
            raise BadInputError("this policy does not choose its first node; give it start nodes.")
        progress = begin(self.problem, trajectories)
        return (progress, None) if starts is None else self.follow(progress, None, starts)

    def scores(self, progress: Progress) -> tuple[Tensor, None]:
        """Return logits, ``(B, P, N)``."""
        encoded = self.encoded if progress.ready is None else progress.ready
        return self.policy.logits(encoded, progress.state), None

    def log_probs(self, progress: Progress, scores: Tensor, seen: None) -> Tensor:
        """Normalise logits."""
        return scores.log_softmax(dim=2)

    def only(self, progress: Progress, moves: int) -> tuple[Tensor, None] | None:
        """Return the last node of a tour."""
        if self.problem.demands is not None or moves < self.problem.coords.shape[1] - 1:
            return None
        return progress.state.blocked.argmax(dim=2), None

    def follow(
        self, progress: Progress, seen: None, action: Tensor, parent: Tensor | None = None
    ) -> tuple[Progress, Move]:
        """Go to the nodes ``(B, P)``."""
        first = parent is None and progress.state.first is None
        progress = move(self.problem, progress if parent is None else progress.follow(parent), action)
        if first:
            progress = replace(progress, ready=factored(self.encoded, progress.state))
        if self.problem.demands is not None and progress.pending < 1:
            to_come = progress.to_come()  # of these beams; others may be chosen next
            progress = replace(progress, pending=to_come if parent is None else min(to_come, 1))
        return progress, (action, None)

    def finished(self, progress: Progress, moves: int) -> bool:
        """Whether all trajectories are done."""
        return (
            moves == self.problem.coords.shape[1] if self.problem.demands is None else progress.pending == 0
        )

    def work(self, progress: Progress) -> Sequence[float]:
        """Return ones, a step per node; visits of the depot come on top."""
        return [1] * self.problem.coords.shape[1]


def log_probabilities(
    policy: EncodeOncePolicy, problem: RoutingProblem, encoded: Any, nodes: Tensor, *, given: int = 0
) -> Tensor:
    """Return log-probabilities of finished trajectories, ``(B, P)``, with all moves in one pass of the network.

    A policy that encodes once sees a state and not how it came about, so the states of all moves may stand side by side as
    trajectories. Gradients are those of `construct` with ``log_prob=True``, without its steps.

    Parameters
    ----------
    nodes
        ``(B, P, T)`` moves.
    given
        How many of the first moves were given and not chosen by the policy.
    """
    progress, states, opening = begin(problem, nodes.shape[1]), [], None
    for step, node in enumerate(nodes.unbind(2)):
        state = replace(progress.state, blocked=progress.state.blocked.clone())
        if step >= given and state.current is None:
            opening = _chosen(policy.logits(encoded, state), node)
        elif step >= given:
            states.append(state)
        with torch.no_grad():
            progress = move(problem, progress, node)
    total, begun = opening, nodes.shape[2] - len(states)
    together = max(1, MASKS_AT_A_TIME.on(nodes.device) // progress.state.blocked.numel())
    for first in range(0, len(states), together):
        part = states[first : first + together]
        chosen = nodes[:, :, begun + first : begun + first + len(part)].transpose(1, 2).flatten(1)
        steps = _log_probs(policy, encoded, _side_by_side(part), chosen)
        made = steps.view(len(nodes), len(part), -1).sum(dim=1)
        total = made if total is None else total + made
    assert total is not None
    return total


def _side_by_side(states: Sequence[RouteState]) -> RouteState:
    """Join the states of several moves, ``(B, P)`` each, to one of ``(B, T P)`` trajectories."""

    def joined(values: list[Tensor | None]) -> Tensor | None:
        present = [value for value in values if value is not None]
        return torch.cat(present, dim=1) if present else None

    return RouteState(
        first=joined([state.first for state in states]),
        current=joined([state.current for state in states]),
        blocked=torch.cat([state.blocked for state in states], dim=1),
        room=joined([state.room for state in states]),
    )


def _log_probs(policy: EncodeOncePolicy, encoded: Any, state: RouteState, node: Tensor) -> Tensor:
    """Log-probabilities of nodes ``(B, P)`` at states."""
    if isinstance(encoded, Glimpse) and encoded.clip is not None and many_states(encoded, state):
        from nco_bench.solvers.stepwise.together_training import log_probs

        return log_probs(pointer_scores(encoded, state), state.blocked, node, encoded.clip)
    return _chosen(policy.logits(encoded, state), node)


def _chosen(logits: Tensor, node: Tensor) -> Tensor:
    """Log-probabilities of nodes ``(B, P)`` under logits ``(B, P, N)``."""
    return -F.cross_entropy(logits.flatten(0, 1), node.flatten(), reduction="none").view_as(node)
