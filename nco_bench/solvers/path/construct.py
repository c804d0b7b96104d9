"""Greedy construction and sampling: one pass that adds a node at a time.

Letters in shapes: B batch, C solutions per instance, M candidates, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import torch
from torch import Tensor

from nco_bench.nn.threads import in_threads
from nco_bench.solvers.decoding.draws import streams, uniform
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Path, PathProblem, joined, part_of
from nco_bench.solvers.path.step import Frontier, action_scores, advance, candidate_limit, split_action, start
from nco_bench.solvers.path.threaded import cut

Choose = Callable[[Tensor, int, slice], Tensor]
"""Picks actions: scores ``(R, A)`` of some of the B C solutions, the number of the step and which solutions they are, to
``(R,)`` indices."""


def best_action(scores: Tensor, step: int, rows: slice) -> Tensor:
    """The rule of greedy construction, whatever the step."""
    return scores.argmax(dim=1)


@torch.inference_mode()
def greedy(policy: PathPolicy, problem: PathProblem, *, knn: int | None = None) -> Path:
    """Build one solution per problem by always taking the best-scored action.

    Parameters
    ----------
    policy
        A path policy in evaluation mode.
    problem
        B path problems.
    knn
        Show the network only the nearest candidates, counted as the policy's paper counts them; None is the
        policy's default.
    """
    return construct(policy, problem, best_action, knn=knn)


@torch.inference_mode()
def sample(
    policy: PathPolicy,
    problem: PathProblem,
    count: int,
    seeds: Tensor,
    *,
    first: int = 0,
    knn: int | None = None,
) -> Path:
    """Draw `count` solutions per problem, step by step from the softmax of the scores.

    Parameters
    ----------
    policy, problem, knn
        As in `greedy`.
    count
        Solutions per problem.
    seeds
        ``(B,)`` int64, one per instance; a solution depends on its instance's seed and the number of the sample alone, not
        on the batch or on how samples are grouped.
    first
        Number of the first sample.

    Returns
    -------
    Path
        ``(B count, M)``, instance by instance.
    """
    stream = streams(seeds.to(problem.rows.device), first, count).flatten()  # (B C,)

    def choose(scores: Tensor, step: int, rows: slice) -> Tensor:
        cumulative = torch.softmax(scores.double(), dim=1).cumsum(dim=1)
        total = cumulative[:, -1:]
        # Below the total whatever rounding does, so that no action of probability 0 is drawn.
        target = torch.minimum(
            uniform(stream[rows], step)[:, None] * total, torch.nextafter(total, torch.zeros_like(total))
        )
        return torch.searchsorted(cumulative, target, right=True).squeeze(1)

    return construct(policy, problem, choose, copies=count, knn=knn)


@torch.inference_mode()
def construct(
    policy: PathPolicy, problem: PathProblem, choose: Choose, *, copies: int = 1, knn: int | None = None
) -> Path:
    """Build `copies` solutions per problem with a rule that picks actions.

    Returns
    -------
    Path
        ``(B copies, M)``, instance by instance.
    """
    return construct_from(policy, problem, policy.embed(problem.nodes), choose, copies=copies, knn=knn)


@torch.inference_mode()
def construct_from(
    policy: PathPolicy,
    problem: PathProblem,
    features: Tensor,
    choose: Choose,
    *,
    copies: int = 1,
    knn: int | None = None,
    steps: int | None = None,
) -> Path:
    """Build solutions as `construct`, from given features ``(B, N, E)``; only the first nodes of each if `steps` is given.

    On the CPU threads share the batch (`parts`). Within a part the only loop is over steps.
    """
    limit = candidate_limit(policy, knn)
    shown = problem.candidates if limit is None else min(limit, problem.candidates)
    parts = cut(len(problem.rows), copies, shown + 2, problem.rows.device)

    def build(part: slice, stopped: Event) -> Path:
        rows = slice(part.start * copies, part.stop * copies)
        return _construct(
            policy, part_of(problem, part), features[part], start(part_of(problem, part), copies),
            lambda scores, step: choose(scores, step, rows), limit, problem.candidates if steps is None else steps,
            stopped,
        )  # fmt: skip

    return joined(in_threads(build, parts))


def _construct(
    policy: PathPolicy,
    problem: PathProblem,
    features: Tensor,
    frontier: Frontier,
    choose: Callable[[Tensor, int], Tensor],
    limit: int | None,
    steps: int,
    stopped: Event,
) -> Path:
    total, cvrp = frontier.rows.shape[0], problem.load is not None
    device = frontier.rows.device
    order = torch.empty(total, steps, dtype=torch.int64, device=device)
    flags = torch.empty(total, steps, dtype=torch.bool, device=device) if cvrp else None
    for step in range(steps):
        if stopped.is_set():
            break
        if frontier.candidates == 1 and not cvrp:  # nothing to decide
            action, shown = torch.zeros(total, dtype=torch.int64, device=device), None
        else:
            scores, shown = action_scores(policy, problem, features, frontier, limit)
            action = choose(scores, step)
        choice, via = split_action(action, shown, cvrp=cvrp)
        frontier, node, via = advance(problem, frontier, choice, via)
        order[:, step] = node
        if flags is not None and via is not None:
            flags[:, step] = via
    return Path(order, flags)
