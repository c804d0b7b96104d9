"""Beam search with path policies: the last beam, and the shortest solution in it, which is not the most probable one.

Letters in shapes: B batch, C beams, M candidates.
"""

from __future__ import annotations

from threading import Event

import torch
from torch import Tensor

from nco_bench.nn.threads import cut, in_threads
from nco_bench.solvers.decoding.search import beam_search
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Path, PathProblem, joined, part_of, path_lengths, route_lengths
from nco_bench.solvers.path.step import PathSteps, candidate_limit, start


@torch.inference_mode()
def beam(
    policy: PathPolicy,
    problem: PathProblem,
    width: int,
    *,
    knn: int | None = None,
    deadline: float | None = None,
) -> Path:
    """Keep the `width` most probable partial solutions of each problem at every step; return the shortest final one.

    Parameters
    ----------
    policy
        A path policy in evaluation mode.
    problem
        B path problems. The path runs from the origin through all candidates to the destination.
    width
        Number of beams; 1 equals greedy.
    knn, deadline
        As in `greedy`.
    """
    return shortest(problem, final_beams(policy, problem, width, knn=knn, deadline=deadline))[0]


@torch.inference_mode()
def final_beams(
    policy: PathPolicy,
    problem: PathProblem,
    width: int,
    *,
    knn: int | None = None,
    deadline: float | None = None,
) -> Path:
    """Return all final beams, ``(B C, M)`` instance by instance, most probable first, with their log-probabilities."""
    features = policy.embed(problem.nodes)
    limit = candidate_limit(policy, knn)
    shown = problem.candidates if limit is None else min(limit, problem.candidates)

    def search(part: slice, stopped: Event) -> Path:
        some = part_of(problem, part)
        steps = PathSteps(policy, some, features[part], limit, stopped=stopped, deadline=deadline)
        return Path.of(beam_search(steps, (start(some), None), width))

    return joined(in_threads(search, cut(len(problem.rows), width, shown + 2, problem.rows.device)))


def shortest(problem: PathProblem, paths: Path) -> tuple[Path, Tensor]:
    """Return the shortest of the C paths of each problem that exist, and its length ``(B,)`` float64."""
    lengths = beam_lengths(problem, paths)
    lengths = lengths.masked_fill(paths.log_prob.view(lengths.shape).isneginf(), torch.inf)
    best = lengths.argmin(dim=1) + torch.arange(lengths.shape[0], device=lengths.device) * lengths.shape[1]
    via = None if paths.via is None else paths.via[best]
    return Path(paths.order[best], via, paths.log_prob[best]), lengths.amin(dim=1)


def beam_lengths(problem: PathProblem, paths: Path) -> Tensor:
    """Lengths of C solutions per problem from origin to destination, ``(B C, M)`` to ``(B, C)`` float64."""
    batch = problem.rows.shape[0]
    copies = paths.order.shape[0] // batch
    coords = problem.nodes.coords.repeat_interleave(copies, dim=0)
    ends = problem.rows[:, [0, -1]].repeat_interleave(copies, dim=0)
    if paths.via is None:
        lengths = path_lengths(coords, torch.cat([ends[:, :1], paths.order, ends[:, 1:]], dim=1))
    elif problem.closed:
        lengths = route_lengths(coords, paths.order, paths.via)
    else:  # the origin is a customer, whose own way in is given
        order = torch.cat([ends[:, :1], paths.order], dim=1)
        via = torch.cat([torch.zeros_like(paths.via[:, :1]), paths.via], dim=1)
        lengths = route_lengths(coords, order, via, first_edge=False)
    return lengths.view(batch, copies)
