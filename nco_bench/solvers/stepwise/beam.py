"""Beam search with encode-once policies, as the official AM does it.

All continuations of one instance compete by their summed log-probability, beams are never merged, and the answer is the
shortest solution of the last beam, not the most probable one.

Letters in shapes: B instances, C beams, N nodes, T moves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nco_bench.solvers.stepwise.policy import EncodeOncePolicy
from nco_bench.solvers.stepwise.steps import RoutingProblem, Trajectories, begin, complete, move


@torch.inference_mode()
def final_beams(
    policy: EncodeOncePolicy, problem: RoutingProblem, encoded: Any, width: int, starts: Tensor | None = None
) -> Trajectories:
    """Return the last beam, ``(B, C, T)`` most probable first; beams that do not exist have log-probability ``-inf``.

    Parameters
    ----------
    policy, problem, encoded
        As in `roll_out`.
    width
        C, the beams that are kept.
    starts
        ``(B, 1)`` first nodes that are given, or None.
    """
    progress = begin(problem, 1)
    log_prob = torch.zeros(len(problem.coords), 1, dtype=torch.float64, device=problem.coords.device)
    history: list[tuple[Tensor, Tensor]] = []
    if starts is not None:
        progress = move(problem, progress, starts)
        history.append((torch.zeros_like(starts), starts))
    count = problem.coords.shape[1]
    while not complete(problem, progress, len(history)):
        step = policy.logits(encoded, progress.state).log_softmax(dim=2)
        joint = (log_prob[..., None] + step).flatten(1)
        log_prob, index = joint.topk(min(width, joint.shape[1]), dim=1)
        # Where there are fewer continuations than beams, the rest repeats the best one and never counts.
        index = torch.where(log_prob.isneginf(), index[:, :1], index)
        parent, node = index // count, index % count
        progress = move(problem, progress.follow(parent), node)
        history.append((parent, node))
    return Trajectories(_backtrack(history), log_prob)


def _backtrack(history: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Follow the parents from the last move to the first, ``(B, C, T)``."""
    batch, width = history[-1][0].shape
    beam = torch.arange(width, device=history[-1][0].device).expand(batch, -1)
    nodes = []
    for parent, node in reversed(history):
        nodes.append(node.gather(1, beam))
        beam = parent.gather(1, beam)
    return torch.stack(nodes[::-1], dim=2)
