"""Decoding with encode-once policies: one step of TSP and CVRP, and the loop of greedy, sampling and teacher forcing.

Masks are kept and changed in place, one entry per move; demands are compared as whole numbers. Nothing here judges
solutions: costs and feasibility are the referee's.

Letters in shapes: B instances, P trajectories, N nodes (depot first), T moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nco_bench.errors import BadInputError
from nco_bench.solvers.decoding.draws import mixed, streams
from nco_bench.solvers.stepwise.glimpse import factored
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy, RouteState, RoutingNodes

Choose = Callable[[Tensor, int], Tensor]
"""Picks nodes: ``(B, P, N)`` logits and the number of the move to ``(B, P)`` indices."""


@dataclass(frozen=True)
class Demands:
    """The capacity side of a batch of CVRP instances.

    Attributes
    ----------
    amount
        ``(B, N)``, 0 at the depot: whole numbers, which are added up exactly, or floats.
    capacity
        ``(B,)`` of the same type.
    limit
        ``(B,)`` largest load allowed; the capacity, but for a tolerance where demands are no whole numbers.
    """

    amount: Tensor
    capacity: Tensor
    limit: Tensor

    def shares(self, dtype: torch.dtype) -> Tensor:
        """Demands as shares of the capacity, ``(B, N)``."""
        return self.amount.to(dtype) / self.capacity.to(dtype)[:, None]

    def take(self, rows: slice) -> Demands:
        """Return the demands of some instances."""
        return Demands(self.amount[rows], self.capacity[rows], self.limit[rows])

    def repeat(self, copies: int) -> Demands:
        """Return the demands of each instance `copies` times."""
        return Demands(
            *(t.repeat_interleave(copies, dim=0) for t in (self.amount, self.capacity, self.limit))
        )


@dataclass(frozen=True)
class RoutingProblem:
    """B instances of one size.

    Attributes
    ----------
    coords
        ``(B, N, 2)`` as the policy sees them; row 0 is the depot of a CVRP instance.
    demands
        Demands and capacities, or None for the TSP.
    """

    coords: Tensor
    demands: Demands | None = None

    def nodes(self) -> RoutingNodes:
        """Return what the policy encodes."""
        return RoutingNodes(
            self.coords, None if self.demands is None else self.demands.shares(self.coords.dtype)
        )

    def take(self, rows: slice) -> RoutingProblem:
        """Return some of the instances."""
        return RoutingProblem(self.coords[rows], None if self.demands is None else self.demands.take(rows))


def cvrp_demands(demand: Tensor, capacity: Tensor) -> Demands:
    """Make exact bookkeeping of demands ``(B, N)`` (depot first) and capacities ``(B,)``.

    Whole numbers of any type are counted as integers; others in float64 with the referee's tolerance.

    Raises
    ------
    BadInputError
        For a demand that no vehicle can carry.
    """
    if bool((demand == demand.round()).all()) and bool((capacity == capacity.round()).all()):
        # Twice the capacity marks visited customers, and a load is added to it.
        kind = torch.int32 if float(capacity.max()) < 2**29 else torch.int64
        amount, limit = demand.to(kind), capacity.to(kind)
        return _checked(Demands(amount, limit, limit))
    return _checked(Demands(demand.double(), capacity.double(), capacity.double() * (1 + 1e-9)))


def float32_demands(demand: Tensor, capacity: Tensor) -> Demands:
    """Make the bookkeeping of the official AM: shares of the capacity added up in float32, none above 1.0 allowed.

    With capacities such as 50, loads that fit exactly are sometimes refused: 0.3 + 0.7 may come to 1.0000001.
    """
    shares = demand.float() / capacity.float()[:, None]
    one = torch.ones_like(shares[:, 0])
    return _checked(Demands(shares, one, one))


def _checked(demands: Demands) -> Demands:
    if bool((demands.amount > demands.limit[:, None]).any()):
        raise BadInputError(
            "a customer's demand exceeds the vehicle's capacity; the instance has no solution."
        )
    return demands


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
    """

    state: RouteState
    used: Tensor | None = None
    open_demand: Tensor | None = None
    left: Tensor | None = None

    @property
    def finished(self) -> bool:
        """Whether every CVRP trajectory has served all customers and is back at the depot."""
        return self.left is not None and bool(((self.left == 0) & (self.state.current == 0)).all())

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
        return Progress(moved, pick(self.used), pick(self.open_demand), pick(self.left))


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
    return Progress(state, used, open_demand, torch.full_like(depot, count - 1))


def move(problem: RoutingProblem, progress: Progress, node: Tensor) -> Progress:
    """Go to the nodes ``(B, P)``. The masks of `progress` are changed in place, unless gradients are recorded."""
    demands, state = problem.demands, progress.state
    first = node if state.first is None else state.first
    if demands is None:
        blocked = state.blocked.clone() if torch.is_grad_enabled() else state.blocked
        blocked.scatter_(2, node[..., None], -torch.inf)
        return Progress(RouteState(first, node, blocked))
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
    return Progress(RouteState(first, node, blocked, room), used, open_demand, left)


@dataclass(frozen=True)
class Trajectories:
    """Finished trajectories.

    Attributes
    ----------
    nodes
        ``(B, P, T)`` moves. TSP: permutations. CVRP: without the start at the depot; zeros at the end are padding.
    log_prob
        ``(B, P)`` log-probability of all moves that the policy chose, where asked for.
    """

    nodes: Tensor
    log_prob: Tensor | None = None


def roll_out(
    policy: EncodeOncePolicy,
    problem: RoutingProblem,
    encoded: Any,
    trajectories: int,
    choose: Choose,
    *,
    starts: Tensor | None = None,
    log_prob: bool = False,
) -> Trajectories:
    """Build P solutions per instance with a rule that picks nodes; the only loop is over moves.

    Gradients flow into `log_prob` where they are recorded.

    Parameters
    ----------
    policy, problem, encoded
        The network, the instances, and ``policy.encode(problem.nodes())``.
    trajectories
        P.
    choose
        The rule; moves are counted from 0.
    starts
        ``(B, P)`` first nodes that are given, or None if the policy chooses them too.
    log_prob
        Whether to add up log-probabilities. Without them the last move of a tour needs no network.
    """
    if starts is None and policy.needs_start:
        raise BadInputError("this policy does not choose its first node; give it start nodes.")
    progress = begin(problem, trajectories)
    count = problem.coords.shape[1]
    moves: list[Tensor] = []
    total: Tensor | None = None
    if starts is not None:
        progress = move(problem, progress, starts)
        moves.append(starts)
    while not complete(problem, progress, len(moves)):
        if problem.demands is None and len(moves) == count - 1 and not log_prob:
            node = progress.state.blocked.argmax(dim=2)
        else:
            if len(moves) == 1:
                encoded = factored(encoded, progress.state)
            logits = policy.logits(encoded, progress.state)
            node = choose(logits, len(moves))
            if log_prob:
                step = logits.log_softmax(dim=2).gather(2, node[..., None]).squeeze(2)
                total = step if total is None else total + step
        progress = move(problem, progress, node)
        moves.append(node)
    return Trajectories(torch.stack(moves, dim=2), total)


def log_probabilities(
    policy: EncodeOncePolicy, problem: RoutingProblem, encoded: Any, nodes: Tensor, *, given: int = 0
) -> Tensor:
    """Return log-probabilities of finished trajectories, ``(B, P)``, with all moves in one pass of the network.

    A policy that encodes once sees a state and not how it came about, so the states of all moves may stand side by side as
    trajectories. Gradients are those of `roll_out` with ``log_prob=True``, without its steps.

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
    batch, trajectories, moves = nodes.shape
    joined = RouteState(
        first=_side_by_side([state.first for state in states]),
        current=_side_by_side([state.current for state in states]),
        blocked=torch.cat([state.blocked for state in states], dim=1),
        room=_side_by_side([state.room for state in states]),
    )
    begun = moves - len(states)
    chosen = nodes[:, :, begun:].transpose(1, 2).reshape(batch, -1)
    steps = _chosen(policy.logits(encoded, joined), chosen).view(batch, -1, trajectories)
    return steps.sum(dim=1) if opening is None else opening + steps.sum(dim=1)


def _chosen(logits: Tensor, node: Tensor) -> Tensor:
    """Log-probabilities of nodes ``(B, P)`` under logits ``(B, P, N)``."""
    return logits.gather(2, node[..., None]).squeeze(2) - logits.logsumexp(dim=2)


def _side_by_side(values: list[Tensor | None]) -> Tensor | None:
    """Join ``(B, P)`` tensors of all steps to ``(B, T P)``; None if they are None."""
    present = [value for value in values if value is not None]
    return torch.cat(present, dim=1) if present else None


def complete(problem: RoutingProblem, progress: Progress, moves: int) -> bool:
    """Whether all trajectories are done; looked up no more often than needed, since it makes a GPU wait."""
    count = problem.coords.shape[1]
    if problem.demands is None:
        return moves == count
    return moves >= count and progress.finished


def greedy_choice(logits: Tensor, step: int) -> Tensor:
    """Take the best node (the first among equals)."""
    return logits.argmax(dim=2)


def forced(nodes: Tensor) -> Choose:
    """Follow given moves ``(B, P, T)``; beyond them, stay at the depot."""

    def choose(logits: Tensor, step: int) -> Tensor:
        return nodes[:, :, step] if step < nodes.shape[2] else torch.zeros_like(nodes[:, :, 0])

    return choose


def sampling(seeds: Tensor, first_sample: int, trajectories: int) -> Choose:
    """Draw nodes from the softmax of the logits.

    The random number of a move is a hash of the instance's seed, the number of its sample and that of the move. So what
    is drawn depends on neither the batch nor the groups that samples are cut into, and nothing is stored.

    Parameters
    ----------
    seeds
        ``(B,)`` int64, one per instance.
    first_sample
        Number of the first of the `trajectories` samples.
    """
    stream = streams(seeds, first_sample, trajectories)  # (B, P)

    def choose(logits: Tensor, step: int) -> Tensor:
        # 24 bits, the mantissa of a float32.
        draw = (mixed(stream + step) >> 40 & 0xFFFFFF).to(logits.dtype)[..., None] / 2**24
        cumulative = logits.softmax(dim=2).cumsum(dim=2)
        total = cumulative[..., -1:]
        # Below the total whatever rounding does, so that no node of probability 0 is drawn.
        target = torch.minimum(draw * total, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, target, right=True).squeeze(2)

    return choose
