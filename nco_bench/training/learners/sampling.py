"""Sampling without replacement: distinct solutions in one pass, by stochastic beam search (Kool 2019; SIGD, section 3).

Every partial solution carries its log-probability and a Gumbel-perturbed one. The k partial solutions whose perturbed
values are largest go on; the perturbed values of the continuations of one are drawn so that their maximum is its own.
What is left at the end is a sample without replacement of k solutions from the policy.

Letters in shapes: B batch, C solutions per instance, A actions, M candidates.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from nco_bench.solvers.path.beam import _backtrack, _follow, _repaired, beam_lengths
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Path, PathProblem
from nco_bench.solvers.path.step import action_scores, advance, candidate_limit, split_action, start


@torch.inference_mode()
def sample_without_replacement(
    policy: PathPolicy, problem: PathProblem, count: int, generator: torch.Generator
) -> Path:
    """Draw up to `count` distinct solutions per problem.

    Parameters
    ----------
    policy
        A path policy in evaluation mode.
    problem
        B path problems.
    count
        Solutions per problem; where fewer exist, the others repeat nothing but have a log-probability of minus infinity.
    generator
        Source of the Gumbel noise.

    Returns
    -------
    Path
        ``(B C, M)`` instance by instance, with log-probabilities.
    """
    features = policy.embed(problem.nodes)
    limit = candidate_limit(policy, None)
    frontier = start(problem)
    batch, cvrp = frontier.rows.shape[0], problem.load is not None
    log_prob = torch.zeros(batch, 1, dtype=torch.float64, device=frontier.rows.device)
    perturbed = torch.zeros_like(log_prob)
    history: list[tuple[Tensor, Tensor, Tensor | None]] = []
    for _ in range(problem.candidates):
        scores, shown = action_scores(policy, problem, features, frontier, limit)
        step = torch.log_softmax(scores.double(), dim=1)
        if cvrp and policy.repairs:
            step = _repaired(problem, frontier, step, shown).log_softmax(dim=1)
        step = step.view(batch, -1, step.shape[1])
        joint = log_prob[:, :, None] + step
        noise = torch.rand(joint.shape, generator=generator, dtype=torch.float64).to(joint.device)
        values = conditioned(joint - torch.log(-torch.log(noise.clamp(1e-300, 1 - 1e-16))), perturbed)
        actions = joint.shape[2]
        perturbed, index = values.flatten(1).topk(min(count, values[0].numel()), dim=1)
        log_prob = joint.flatten(1).gather(1, index)
        parent = index // actions  # (B, C)
        frontier, shown = _follow(frontier, shown, parent, parent.shape[1])
        choice, via = split_action((index % actions).flatten(), shown, cvrp=cvrp)
        frontier, node, via = advance(problem, frontier, choice, via)
        history.append((parent, node.view(batch, -1), None if via is None else via.view(batch, -1)))
    return replace(_backtrack(history), log_prob=log_prob.flatten())


def conditioned(values: Tensor, maximum: Tensor) -> Tensor:
    """Shift Gumbel variables, ``(B, C, A)``, so that the maximum over actions is ``(B, C)``, with the right distribution.

    The numerically stable form of Kool et al. 2019, appendix B; minus infinity stays minus infinity.
    """
    largest = values.amax(dim=2, keepdim=True)
    v = maximum[..., None] - values + torch.log1p(-torch.exp(values - largest))
    shifted = maximum[..., None] - v.clamp(min=0) - torch.log1p(torch.exp(-v.abs()))
    impossible = values.isneginf() | maximum[..., None].isneginf()
    return shifted.masked_fill(impossible, -torch.inf)


def best_of_distinct(
    policy: PathPolicy, problem: PathProblem, count: int, generator: torch.Generator
) -> tuple[Path, Tensor]:
    """Return the shortest of `count` distinct samples per problem, and its length ``(B,)``."""
    paths = sample_without_replacement(policy, problem, count, generator)
    lengths = beam_lengths(problem, paths)
    lengths = lengths.masked_fill(paths.log_prob.view(lengths.shape).isneginf(), torch.inf)
    copies = lengths.shape[1]
    best = lengths.argmin(dim=1) + torch.arange(lengths.shape[0], device=lengths.device) * copies
    via = None if paths.via is None else paths.via[best]
    return Path(paths.order[best], via, paths.log_prob[best]), lengths.amin(dim=1)
