"""One step of construction, as the loops of `nco_bench.solvers.decoding.search` take it (`PathSteps`).

A search keeps C partial solutions per instance (1 for greedy); they are stored instance by instance as R = B C rows of
indices. Visited nodes leave these rows, so sub-problems shrink; features are gathered, never recomputed.

Letters in shapes: B batch, R = B C partial solutions, M candidates left, A = M (TSP) or 2 M (CVRP) actions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

import torch
from torch import Tensor

from nco_bench.errors import SolverFailedError
from nco_bench.nn.device import PerDevice
from nco_bench.solvers.decoding.search import Move
from nco_bench.solvers.path.policy import PathPolicy, PathState
from nco_bench.solvers.path.problem import PathProblem, shares

TOKENS_PER_CALL = PerDevice(cpu=2**12, gpu=2**20)
"""How many tokens the network is given at once; larger batches are cut, which keeps them in the processor's cache."""


@dataclass(frozen=True)
class Frontier:
    """The partial solutions of a search.

    Attributes
    ----------
    rows
        ``(R, M + 2)`` int64: current node, unvisited nodes, destination.
    remaining
        ``(R,)`` capacity left, or None for the TSP.
    closed
        As in `PathState`.
    """

    rows: Tensor
    remaining: Tensor | None
    closed: bool

    @property
    def candidates(self) -> int:
        """Number of unvisited nodes."""
        return self.rows.shape[1] - 2


def start(problem: PathProblem, copies: int = 1) -> Frontier:
    """Return the empty solution of each problem, `copies` times."""
    remaining = None if problem.load is None else problem.load.remaining.repeat_interleave(copies)
    return Frontier(problem.rows.repeat_interleave(copies, dim=0), remaining, problem.closed)


def candidate_limit(policy: PathPolicy, knn: int | None) -> int | None:
    """Return how many candidates the network may see under ``knn``, or None for all.

    BQ-NCO counts the current node and the destination among its k, SIT and SIGD count candidates only.
    """
    if knn is None:
        return policy.default_knn
    return max(1, knn - 2) if policy.knn_counts_ends else knn


def action_scores(
    policy: PathPolicy, problem: PathProblem, features: Tensor, frontier: Frontier, limit: int | None
) -> tuple[Tensor, Tensor | None]:
    """Score the actions of all partial solutions.

    Parameters
    ----------
    policy, problem
        The network, and what it solves.
    features
        ``(B, N, E)``, from ``policy.embed(problem.nodes)``.
    frontier
        R partial solutions.
    limit
        Only this many nearest candidates are shown to the network (None for all).

    Returns
    -------
    scores
        ``(R, A)`` logits; for the CVRP node by node: directly, via the depot.
    shown
        ``(R, min(limit, M))`` positions of the candidates that the scores belong to; None if they are all, in order.
    """
    total, tokens = frontier.rows.shape
    source = torch.arange(problem.nodes.coords.shape[0], device=frontier.rows.device)
    source = source.repeat_interleave(total // source.shape[0])
    width = tokens if limit is None else min(tokens, limit + 2)
    size = max(1, TOKENS_PER_CALL.on(frontier.rows.device) // width)
    if size >= total:
        return _score(policy, problem, features, frontier, source, limit)
    parts = []
    for begin in range(0, total, size):
        part = slice(begin, begin + size)
        remaining = None if frontier.remaining is None else frontier.remaining[part]
        piece = Frontier(frontier.rows[part], remaining, frontier.closed)
        parts.append(_score(policy, problem, features, piece, source[part], limit))
    shown = [s for _, s in parts if s is not None]
    return torch.cat([scores for scores, _ in parts]), torch.cat(shown) if shown else None


def _score(
    policy: PathPolicy,
    problem: PathProblem,
    features: Tensor,
    frontier: Frontier,
    source: Tensor,
    limit: int | None,
) -> tuple[Tensor, Tensor | None]:
    rows, shown = frontier.rows, None
    nodes, load = problem.nodes, problem.load
    flat = rows + source[:, None] * nodes.coords.shape[1]
    if limit is not None and limit < frontier.candidates:
        shown = _nearest(_take(nodes.coords, flat), limit)
        ends = torch.zeros_like(shown[:, :1])
        flat = flat.gather(1, torch.cat([ends, shown + 1, ends + frontier.candidates + 1], dim=1))
    remaining = None
    if load is not None and frontier.remaining is not None:
        remaining = shares(frontier.remaining, load.capacity[source], nodes.coords.dtype)
    state = PathState(
        features=_take(features, flat),
        coords=_take(nodes.coords, flat),
        demand=None if nodes.demand is None else _take(nodes.demand[..., None], flat).squeeze(-1),
        remaining=remaining,
        closed=frontier.closed,
        instance_size=nodes.instance_size,
    )
    return policy.scores(state).flatten(1), shown


def _take(table: Tensor, flat: Tensor) -> Tensor:
    """Copy rows of ``(B, N, E)`` at indices into its flattened first two axes, ``(R, T)``, to ``(R, T, E)``."""
    width = table.shape[-1]
    return table.reshape(-1, width).index_select(0, flat.reshape(-1)).view(*flat.shape, width)


def _nearest(coords: Tensor, limit: int) -> Tensor:
    """Positions of the candidates nearest to the origin, ``(R, M + 2, 2)`` to ``(R, limit)``, nearest first."""
    delta = (coords[:, 1:-1] - coords[:, :1]).square().sum(-1)
    return delta.topk(limit, dim=1, largest=False).indices


def advance(
    problem: PathProblem, frontier: Frontier, choice: Tensor, via: Tensor | None
) -> tuple[Frontier, Tensor, Tensor | None]:
    """Move every partial solution on to its chosen candidate.

    Parameters
    ----------
    problem, frontier
        What is solved, and R partial solutions of it.
    choice
        ``(R,)`` position of the chosen node among the candidates.
    via
        ``(R,)`` bool: via the depot; None for the TSP. Set where the customer does not fit (LEHD's and SIT's repair).

    Returns
    -------
    frontier, node, via
        The shrunk rows, the chosen nodes ``(R,)`` and the flags as they were carried out.
    """
    rows = frontier.rows
    shift = torch.arange(rows.shape[1] - 1, device=rows.device)
    kept = shift + (shift > choice[:, None])
    kept[:, 0] = choice + 1
    rows = rows.gather(1, kept)
    node = rows[:, 0]
    load = problem.load
    if load is None or frontier.remaining is None or via is None:
        return Frontier(rows, None, closed=False), node, None
    copies = node.shape[0] // load.capacity.shape[0]
    demand = load.demand.gather(1, node.view(-1, copies)).flatten()
    via = via | (demand > frontier.remaining)
    full = load.capacity.repeat_interleave(copies)
    remaining = torch.where(via, full, frontier.remaining) - demand
    return Frontier(rows, remaining, closed=False), node, via


def split_action(action: Tensor, shown: Tensor | None, *, cvrp: bool) -> tuple[Tensor, Tensor | None]:
    """Turn ``(R,)`` action indices into positions among all candidates, and via-depot flags for the CVRP."""
    choice, via = (action // 2, action % 2 == 1) if cvrp else (action, None)
    if shown is not None:
        choice = shown.gather(1, choice[:, None]).squeeze(1)
    return choice, via


class TimeIsUpError(SolverFailedError):
    """A construction that its time limit ended before it had a solution."""


@dataclass(frozen=True)
class PathSteps:
    """A path policy at work on B problems.

    Attributes
    ----------
    policy, problem, features
        The network, what it solves, and ``policy.embed(problem.nodes)``.
    limit
        As in `action_scores`.
    count
        How many nodes are visited; None for all candidates.
    stopped
        Set when the result is not wanted any more.
    deadline
        When the time of the construction is over, as ``time.monotonic`` tells it; None for no limit.
    drawn
        Whether solutions are drawn, not searched for: what `_repaired` joins then has the sum of its probabilities.
    """

    policy: PathPolicy
    problem: PathProblem
    features: Tensor
    limit: int | None
    count: int | None = None
    stopped: Event | None = None
    deadline: float | None = None
    drawn: bool = False

    def scores(self, frontier: Frontier) -> tuple[Tensor, Tensor | None]:
        """Return ``(B, C, A)`` logits, and the positions of what is shown, see `action_scores`.

        Raises
        ------
        TimeIsUpError
            Where the step would begin after the deadline.
        """
        if self.deadline is not None and time.monotonic() >= self.deadline:
            count, left = self.problem.candidates, frontier.candidates
            raise TimeIsUpError(
                f"the time limit came after {count - left} of {count} steps of a construction"
            )
        scores, shown = action_scores(self.policy, self.problem, self.features, frontier, self.limit)
        return scores.view(len(self.problem.rows), -1, scores.shape[1]), shown

    def log_probs(self, frontier: Frontier, scores: Tensor, shown: Tensor | None) -> Tensor:
        """Normalise in float64; where a policy leaves it to the repair rule, actions that come to the same are joined."""
        step = scores.double().log_softmax(dim=2)
        if self.problem.load is None or not getattr(self.policy, "repairs", False):
            return step
        join = torch.logaddexp if self.drawn else torch.maximum
        return _repaired(self.problem, frontier, step.flatten(0, 1), shown, join).view(step.shape)

    def only(self, frontier: Frontier, moves: int) -> tuple[Tensor, None] | None:
        """Return the last candidate of a tour."""
        if frontier.candidates > 1 or self.problem.load is not None:
            return None
        copies = len(frontier.rows) // len(self.problem.rows)
        return torch.zeros(
            len(self.problem.rows), copies, dtype=torch.int64, device=frontier.rows.device
        ), None

    def follow(
        self, frontier: Frontier, shown: Tensor | None, action: Tensor, parent: Tensor | None = None
    ) -> tuple[Frontier, Move]:
        """Carry out actions ``(B, C)``."""
        batch = len(action)
        if parent is not None:
            before = frontier.rows.shape[0] // batch
            source = (parent + torch.arange(batch, device=parent.device)[:, None] * before).flatten()
            remaining = None if frontier.remaining is None else frontier.remaining[source]
            frontier = Frontier(frontier.rows[source], remaining, frontier.closed)
            shown = None if shown is None else shown[source]
        choice, via = split_action(action.flatten(), shown, cvrp=self.problem.load is not None)
        frontier, node, via = advance(self.problem, frontier, choice, via)
        # A copy: the chosen node is a part of the rows, which would all stay in memory.
        return frontier, (node.view(batch, -1).clone(), None if via is None else via.view(batch, -1))

    def finished(self, frontier: Frontier, moves: int) -> bool:
        """Whether all nodes that were asked for are visited."""
        count = self.problem.candidates if self.count is None else self.count
        return moves >= count or (self.stopped is not None and self.stopped.is_set())

    def work(self, frontier: Frontier) -> Sequence[float]:
        """Return how much is left to visit before each step, or ones where the policy sees the nearest nodes only."""
        left = self.problem.candidates
        count = left if self.count is None else self.count
        return range(left, left - count, -1) if self.limit is None else [1] * count


def _repaired(
    problem: PathProblem,
    frontier: Frontier,
    log_prob: Tensor,
    shown: Tensor | None,
    join: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Join actions that come to the same, where a policy leaves infeasible direct choices to the repair rule.

    A direct choice that does not fit (and any at the very start) is carried out via the depot. It would fill the beam with
    copies, so it is dropped, and the choice via the depot takes what `join` makes of both log-probabilities: the better of
    the two in a search, whose best step is then the greedy one; their sum where solutions are drawn.
    """
    rows = frontier.rows[:, 1:-1] if shown is None else frontier.rows.gather(1, shown + 1)
    load = problem.load
    if load is None or frontier.remaining is None:
        return log_prob
    batch = load.demand.shape[0]
    demand = load.demand.gather(1, rows.reshape(batch, -1)).view(rows.shape)
    same = demand > frontier.remaining[:, None]
    if frontier.closed:
        same = torch.ones_like(same)
    direct, via = log_prob.view(*rows.shape, 2).unbind(-1)
    via = torch.where(same, join(direct, via), via)
    return torch.stack([direct.masked_fill(same, -torch.inf), via], dim=-1).flatten(1)
