"""Beam search as BQ-NCO and the decoder-scaling paper do it, batched over instances and beams.

All expansions of one instance compete by their joint log-probability, beams are never merged, and the answer is the
shortest solution of the last beam, not the most probable one.

Letters in shapes: B batch, C beams, M candidates, A actions.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import torch
from torch import Tensor

from nco_bench.nn.threads import in_threads
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.problem import Path, PathProblem, joined, part_of, path_lengths, route_lengths
from nco_bench.solvers.path.step import Frontier, action_scores, advance, candidate_limit, split_action, start
from nco_bench.solvers.path.threaded import cut


@torch.inference_mode()
def beam(policy: PathPolicy, problem: PathProblem, width: int, *, knn: int | None = None) -> Path:
    """Keep the `width` most probable partial solutions of each problem at every step; return the shortest final one.

    Parameters
    ----------
    policy
        A path policy in evaluation mode.
    problem
        B path problems. The path runs from the origin through all candidates to the destination.
    width
        Number of beams; 1 equals greedy.
    knn
        As in `greedy`.
    """
    paths = final_beams(policy, problem, width, knn=knn)
    lengths = beam_lengths(problem, paths)
    lengths = lengths.masked_fill(paths.log_prob.view(lengths.shape).isneginf(), torch.inf)
    best = lengths.argmin(dim=1) + torch.arange(lengths.shape[0], device=lengths.device) * lengths.shape[1]
    via = None if paths.via is None else paths.via[best]
    return Path(paths.order[best], via, paths.log_prob[best])


@torch.inference_mode()
def final_beams(policy: PathPolicy, problem: PathProblem, width: int, *, knn: int | None = None) -> Path:
    """Return all final beams, ``(B C, M)`` instance by instance, most probable first, with their log-probabilities."""
    features = policy.embed(problem.nodes)
    limit = candidate_limit(policy, knn)
    shown = problem.candidates if limit is None else min(limit, problem.candidates)

    def search(part: slice, stopped: Event) -> Path:
        return _final_beams(policy, part_of(problem, part), features[part], width, limit, stopped)

    return joined(in_threads(search, cut(len(problem.rows), width, shown + 2, problem.rows.device)))


def _final_beams(
    policy: PathPolicy, problem: PathProblem, features: Tensor, width: int, limit: int | None, stopped: Event
) -> Path:
    frontier = start(problem)
    batch, cvrp = frontier.rows.shape[0], problem.load is not None
    log_prob = torch.zeros(batch, 1, dtype=torch.float64, device=frontier.rows.device)
    history: list[tuple[Tensor, Tensor, Tensor | None]] = []
    for _ in range(problem.candidates):
        if stopped.is_set():
            break
        scores, shown = action_scores(policy, problem, features, frontier, limit)
        step = torch.log_softmax(scores.double(), dim=1)
        if cvrp and policy.repairs:
            step = _repaired(problem, frontier, step, shown)
        actions = step.shape[1]
        joint = (log_prob[:, :, None] + step.view(batch, -1, actions)).flatten(1)
        log_prob, index = joint.topk(min(width, joint.shape[1]), dim=1)
        parent = index // actions  # (B, C)
        frontier, shown = _follow(frontier, shown, parent, log_prob.shape[1])
        choice, via = split_action((index % actions).flatten(), shown, cvrp=cvrp)
        frontier, node, via = advance(problem, frontier, choice, via)
        history.append((parent, node.view(batch, -1), None if via is None else via.view(batch, -1)))
    return replace(_backtrack(history), log_prob=log_prob.flatten())


def _follow(
    frontier: Frontier, shown: Tensor | None, parent: Tensor, width: int
) -> tuple[Frontier, Tensor | None]:
    """Copy the partial solutions that the kept beams continue."""
    batch = parent.shape[0]
    before = frontier.rows.shape[0] // batch
    source = (parent + torch.arange(batch, device=parent.device)[:, None] * before).flatten()
    remaining = None if frontier.remaining is None else frontier.remaining[source]
    return Frontier(frontier.rows[source], remaining, frontier.closed), None if shown is None else shown[
        source
    ]


def _repaired(problem: PathProblem, frontier: Frontier, log_prob: Tensor, shown: Tensor | None) -> Tensor:
    """Join actions that come to the same, where a policy leaves infeasible direct choices to the repair rule.

    A direct choice that does not fit (and any at the very start) is carried out via the depot. It would fill the beam with
    copies, so the choice via the depot takes the better of the two log-probabilities, and the direct one is dropped.
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
    via = torch.where(same, torch.maximum(direct, via), via)
    return torch.stack([direct.masked_fill(same, -torch.inf), via], dim=-1).flatten(1)


def _backtrack(history: list[tuple[Tensor, Tensor, Tensor | None]]) -> Path:
    """Follow the parents from the last step to the first; returns ``(B C, M)`` nodes and flags."""
    batch, width = history[-1][0].shape
    beam_of = torch.arange(width, device=history[-1][0].device).expand(batch, -1)
    nodes, flags = [], []
    for parent, node, via in reversed(history):
        nodes.append(node.gather(1, beam_of))
        if via is not None:
            flags.append(via.gather(1, beam_of))
        beam_of = parent.gather(1, beam_of)
    order = torch.stack(nodes[::-1], dim=2).flatten(0, 1)
    return Path(order, torch.stack(flags[::-1], dim=2).flatten(0, 1) if flags else None)


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
