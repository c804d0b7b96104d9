"""Sampling without replacement: distinct solutions in one pass, by stochastic beam search (Kool 2019; SIGD, section 3).

Every partial solution carries its log-probability and a Gumbel-perturbed one. The k partial solutions whose perturbed
values are largest go on; the perturbed values of the continuations of one are drawn so that their maximum is its own.
What is left at the end is a sample without replacement of k solutions from the policy.

Letters in shapes: B batch, C solutions per instance, A actions, M candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.solvers.decoding.search import beam_search
from nco_bench.solvers.path.beam import shortest
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Path, PathProblem
from nco_bench.solvers.path.step import PathSteps, candidate_limit, start


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
        Solutions per problem; where fewer exist, the others have a log-probability of minus infinity.
    generator
        Source of the Gumbel noise.

    Returns
    -------
    Path
        ``(B C, M)`` instance by instance, with log-probabilities.
    """
    perturbed = torch.zeros(len(problem.rows), 1, dtype=torch.float64, device=problem.rows.device)

    def keep(joint: Tensor, width: int) -> Tensor:
        nonlocal perturbed
        noise = torch.rand(joint.shape, generator=generator, dtype=torch.float64).to(joint.device)
        values = conditioned(joint - torch.log(-torch.log(noise.clamp(1e-300, 1 - 1e-16))), perturbed)
        perturbed, index = values.flatten(1).topk(min(width, values[0].numel()), dim=1)
        return index

    limit = candidate_limit(policy, None)
    steps = PathSteps(policy, problem, policy.embed(problem.nodes), limit, drawn=True)
    return Path.of(beam_search(steps, (start(problem), None), count, keep=keep))


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
    return shortest(problem, sample_without_replacement(policy, problem, count, generator))
