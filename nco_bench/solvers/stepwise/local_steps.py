"""Decoding with local-view policies (INViT, DGL): moves, greedy, sampling, teacher forcing and beam search.

One loop over moves serves all instances and partial solutions at once. Loads are whole numbers. Nothing here judges
solutions: costs and feasibility are the referee's.

Letters in shapes: B instances, C solutions of each, R = B C rows instance by instance, N nodes (depot first), A options,
T moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nco_bench.solvers.decoding.draws import uniform
from nco_bench.solvers.stepwise.policy import LocalViewPolicy, Options, RoutingNodes, Walk
from nco_bench.solvers.stepwise.steps import Demands, RoutingProblem

Choose = Callable[[Options, int], Tensor]
"""Picks options: what can be done and the number of the move to ``(R,)`` positions among the options."""


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

    @property
    def finished(self) -> bool:
        """Whether every node is visited."""
        return self.state.left == 0

    def follow(self, rows: Tensor) -> Walks:
        """Return copies of the rows ``(R',)``, for beam search."""
        s = self.state
        room = None if s.room is None else s.room[rows]
        memory = tuple(table[rows] for table in s.memory)
        state = Walk(s.first[rows], s.current[rows], s.open[rows], s.left, room, memory)
        return Walks(state, None if self.used is None else self.used[rows])


@dataclass(frozen=True)
class Moves:
    """Solutions as moves.

    Attributes
    ----------
    nodes
        ``(R, T)`` int64; 0 is a visit to the CVRP's depot.
    via
        ``(R, T)`` bool: reached via the depot; None for the TSP.
    log_prob
        ``(R,)`` float64 log-probability of all moves that the policy chose; empty where it was not asked for.
    """

    nodes: Tensor
    via: Tensor | None
    log_prob: Tensor

    @property
    def flags(self) -> Tensor:
        """``via``, with no visit of a depot for the TSP."""
        return torch.zeros_like(self.nodes, dtype=torch.bool) if self.via is None else self.via


def begin(
    policy: LocalViewPolicy, problem: RoutingProblem, nodes: RoutingNodes, copies: int, starts: Tensor | None
) -> Walks:
    """Return C solutions per instance that are empty (CVRP, at the depot) or hold their first node.

    Parameters
    ----------
    policy, problem
        The network and the instances.
    nodes
        ``problem.nodes()``.
    copies
        C.
    starts
        ``(R,)`` first nodes, reached via the depot; None if the policy chooses them.
    """
    batch, count, _ = problem.coords.shape
    cvrp = problem.demands is not None
    depot = torch.zeros(batch * copies, dtype=torch.int64, device=problem.coords.device)
    is_open = torch.ones(batch * copies, count, dtype=torch.bool, device=depot.device)
    is_open[:, 0] = not cvrp
    memory = tuple(table.repeat_interleave(copies, dim=0) for table in policy.remember(nodes))
    room = torch.ones_like(depot, dtype=problem.coords.dtype) if cvrp else None
    used = None if problem.demands is None else torch.zeros_like(depot, dtype=problem.demands.amount.dtype)
    walks = Walks(Walk(depot, depot, is_open, count - cvrp, room, memory), used)
    if starts is None:
        return walks
    if not cvrp:
        walks = replace(walks, state=replace(walks.state, first=starts))
    return move(policy, problem, nodes, walks, starts, torch.ones_like(starts, dtype=torch.bool))


def move(
    policy: LocalViewPolicy,
    problem: RoutingProblem,
    nodes: RoutingNodes,
    walks: Walks,
    node: Tensor,
    via: Tensor | None,
) -> Walks:
    """Go to the nodes ``(R,)``, via the depot where ``via`` says so; `walks` gives its table of open nodes away."""
    state = walks.state
    is_open = state.open.scatter_(1, node[:, None], False)
    left, room, used = state.left - 1, None, None
    if problem.demands is not None and walks.used is not None:
        used, room = _loaded(problem.demands, walks.used, node, via, problem.coords)
        if via is None:  # rows visit the depot at different times
            left = int(is_open.sum(dim=1).amax())
    moved = Walk(state.first, node, is_open, left, room, state.memory)
    return Walks(replace(moved, memory=policy.moved(nodes, moved)), used)


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


def construct(
    policy: LocalViewPolicy,
    problem: RoutingProblem,
    choose: Choose,
    *,
    copies: int = 1,
    starts: Tensor | None = None,
    log_prob: bool = False,
) -> Moves:
    """Build C solutions per instance with a rule that picks options. Gradients flow into `log_prob` where recorded.

    Parameters
    ----------
    policy, problem
        The network and the instances.
    choose
        The rule; moves that the policy makes are counted from 0.
    copies
        C.
    starts
        ``(R,)`` first nodes, if the policy does not choose them.
    log_prob
        Whether to add up log-probabilities. Without them the last node of a tour needs no network.
    """
    nodes = problem.nodes()
    walks = begin(policy, problem, nodes, copies, starts)
    taken: list[Tensor] = [] if starts is None else [starts]
    flags: list[Tensor] = [] if starts is None else [torch.ones_like(starts, dtype=torch.bool)]
    total = torch.zeros(walks.state.current.shape, dtype=torch.float64, device=problem.coords.device)
    step = 0
    while not walks.finished:
        if problem.demands is None and walks.state.left == 1 and not log_prob:
            node, via = walks.state.open.long().argmax(dim=1), None
        else:
            options = policy.options(nodes, walks.state)
            picked = choose(options, step)[:, None]
            node = options.nodes.gather(1, picked).squeeze(1)
            via = None if options.via is None else options.via.gather(1, picked).squeeze(1)
            if log_prob:
                total = total + options.log_probs.gather(1, picked).squeeze(1).double()
        walks = move(policy, problem, nodes, walks, node, via)
        taken.append(node)
        flags.append(torch.zeros_like(node, dtype=torch.bool) if via is None else via)
        step += 1
    via = None if problem.demands is None else torch.stack(flags, dim=1)
    return Moves(torch.stack(taken, dim=1), via, total)


def best_option(options: Options, step: int) -> Tensor:
    """Take the most probable option (the first among equals)."""
    return options.log_probs.argmax(dim=1)


def drawn(stream: Tensor) -> Choose:
    """Draw options by their probability; `stream` are ``(R,)`` keys, see `nco_bench.solvers.decoding.draws.streams`."""

    def choose(options: Options, step: int) -> Tensor:
        cumulative = options.log_probs.double().exp().cumsum(dim=1)
        total = cumulative[:, -1:]
        # Below the total whatever rounding does, so that no option of probability 0 is drawn.
        target = torch.minimum(
            uniform(stream, step)[:, None] * total, torch.nextafter(total, torch.zeros_like(total))
        )
        return torch.searchsorted(cumulative, target, right=True).squeeze(1)

    return choose


def beams(policy: LocalViewPolicy, problem: RoutingProblem, width: int, starts: Tensor | None) -> Moves:
    """Keep the `width` most probable partial solutions of each instance at every move.

    All continuations of one instance compete by their summed log-probability, and beams are never merged.

    Parameters
    ----------
    starts
        ``(B,)`` first nodes, if the policy does not choose them.

    Returns
    -------
    Moves
        ``(B C, T)``, most probable first; beams that do not exist have log-probability ``-inf``.
    """
    nodes = problem.nodes()
    walks = begin(policy, problem, nodes, 1, starts)
    batch = len(problem.coords)
    log_prob = torch.zeros(batch, 1, dtype=torch.float64, device=problem.coords.device)
    history: list[tuple[Tensor, Tensor, Tensor]] = []
    while not walks.finished:
        options = policy.options(nodes, walks.state)
        count = options.nodes.shape[1]
        joint = (log_prob[..., None] + options.log_probs.double().view(batch, -1, count)).flatten(1)
        log_prob, index = joint.topk(min(width, joint.shape[1]), dim=1)
        # Where there are fewer continuations than beams, the rest repeats the best one and never counts.
        index = torch.where(log_prob.isneginf(), index[:, :1], index)
        parent = index // count  # (B, C)
        before = len(walks.state.current) // batch
        rows = (parent + torch.arange(batch, device=parent.device)[:, None] * before).flatten()
        picked = (index % count).flatten()
        node, via = options.nodes[rows, picked], None if options.via is None else options.via[rows, picked]
        walks = move(policy, problem, nodes, walks.follow(rows), node, via)
        flags = torch.zeros_like(node, dtype=torch.bool) if via is None else via
        history.append((parent, node.view(batch, -1), flags.view(batch, -1)))
    return _backtrack(history, starts, log_prob, cvrp=problem.demands is not None)


def _backtrack(
    history: list[tuple[Tensor, Tensor, Tensor]], starts: Tensor | None, log_prob: Tensor, *, cvrp: bool
) -> Moves:
    """Follow the parents from the last move to the first."""
    batch, width = log_prob.shape
    beam_of = torch.arange(width, device=log_prob.device).expand(batch, -1)
    taken, flags = [], []
    for parent, node, via in reversed(history):
        taken.append(node.gather(1, beam_of))
        flags.append(via.gather(1, beam_of))
        beam_of = parent.gather(1, beam_of)
    if starts is not None:
        first = starts[:, None].expand(-1, width)
        taken.append(first)
        flags.append(torch.ones_like(first, dtype=torch.bool))
    via_rows = torch.stack(flags[::-1], dim=2).flatten(0, 1) if cvrp else None
    return Moves(torch.stack(taken[::-1], dim=2).flatten(0, 1), via_rows, log_prob.flatten())
