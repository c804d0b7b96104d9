"""Greedy construction and sampling with path policies; threads share the batch.

Letters in shapes: B batch, M candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import torch
from torch import Tensor

from nco_bench.nn.threads import cut, in_threads
from nco_bench.solvers.decoding import search
from nco_bench.solvers.decoding.search import Choose, greedy_choice, sampling
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Path, PathProblem, joined, part_of
from nco_bench.solvers.path.step import PathSteps, candidate_limit, start

Rule = Callable[[slice], Choose]
"""Makes the rule that picks actions for some of the B instances."""


@torch.inference_mode()
def greedy(
    policy: PathPolicy, problem: PathProblem, *, knn: int | None = None, deadline: float | None = None
) -> Path:
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
    deadline
        When the time is over, as ``time.monotonic`` tells it; None for no limit.

    Raises
    ------
    TimeIsUpError
        Where the deadline comes before the last step.
    """
    return construct(policy, problem, lambda part: greedy_choice, knn=knn, deadline=deadline)


@torch.inference_mode()
def sample(
    policy: PathPolicy,
    problem: PathProblem,
    count: int,
    seeds: Tensor,
    *,
    first: int = 0,
    knn: int | None = None,
    deadline: float | None = None,
) -> Path:
    """Draw `count` solutions per problem, step by step from the softmax of the scores.

    Parameters
    ----------
    policy, problem, knn, deadline
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
    seeds = seeds.to(problem.rows.device)

    def rule(part: slice) -> Choose:
        return sampling(seeds[part], first, count, double=True)

    return construct(policy, problem, rule, copies=count, knn=knn, deadline=deadline)


@torch.inference_mode()
def construct(
    policy: PathPolicy,
    problem: PathProblem,
    rule: Rule,
    *,
    copies: int = 1,
    knn: int | None = None,
    deadline: float | None = None,
) -> Path:
    """Build `copies` solutions per problem with a rule that picks actions.

    Returns
    -------
    Path
        ``(B copies, M)``, instance by instance.
    """
    features = policy.embed(problem.nodes)
    return construct_from(policy, problem, features, rule, copies=copies, knn=knn, deadline=deadline)


@torch.inference_mode()
def construct_from(
    policy: PathPolicy,
    problem: PathProblem,
    features: Tensor,
    rule: Rule,
    *,
    copies: int = 1,
    knn: int | None = None,
    steps: int | None = None,
    deadline: float | None = None,
) -> Path:
    """Build solutions as `construct`, from given features ``(B, N, E)``; only the first nodes of each if `steps` is given.

    On the CPU threads share the batch (`cut`). Within a part the only loop is over steps.
    """
    limit = candidate_limit(policy, knn)
    shown = problem.candidates if limit is None else min(limit, problem.candidates)

    def build(part: slice, stopped: Event) -> Path:
        some = part_of(problem, part)
        at_work = PathSteps(policy, some, features[part], limit, steps, stopped, deadline)
        return Path.of(search.construct(at_work, (start(some, copies), None), rule(part)))

    return joined(in_threads(build, cut(len(problem.rows), copies, shown + 2, problem.rows.device)))
