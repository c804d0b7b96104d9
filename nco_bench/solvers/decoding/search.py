"""Greedy, sampling, teacher forcing and beam search: the loops over moves, one for all policies that decode step by step.

What a step is, each kind of policy says for itself (`Steps`): path policies in `path/step.py`, encode-once and local-view
policies in `stepwise/steps.py`. Nothing here judges solutions: costs and feasibility are the referee's.

Letters in shapes: B instances, P trajectories or beams of each, A actions, T moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.progress import opened
from nco_bench.solvers.decoding.draws import coarse_uniform, picked, streams, uniform

Choose = Callable[[Tensor, int], Tensor]
"""Picks actions: ``(B, P, A)`` scores and the number of the move, from 0, to ``(B, P)`` indices."""

Keep = Callable[[Tensor, int], Tensor]
"""Picks beams: log-probabilities of all continuations ``(B, P, A)`` and how many are kept to ``(B, C)`` flat indices."""

Move = tuple[Tensor, Tensor | None]
"""Nodes ``(B, P)``, and whether each is reached via the depot; None where there is none, or where going there is a move."""

State = TypeVar("State")
Seen = TypeVar("Seen")


class Steps(Protocol[State, Seen]):
    """A policy at work on B instances, one step at a time; a state holds P partial solutions of each."""

    def scores(self, state: State) -> tuple[Tensor, Seen]:
        """Return unnormalised log-probabilities of what may come next, ``(B, P, A)``, and what the actions mean."""

    def log_probs(self, state: State, scores: Tensor, seen: Seen) -> Tensor:
        """Normalise what `scores` returned, ``(B, P, A)``."""

    def only(self, state: State, moves: int) -> tuple[Tensor, Seen] | None:
        """Return the actions ``(B, P)`` where there is nothing to choose and no network is needed."""

    def follow(
        self, state: State, seen: Seen, action: Tensor, parent: Tensor | None = None
    ) -> tuple[State, Move]:
        """Carry out the actions ``(B, C)``, of the partial solutions ``parent`` ``(B, C)`` if beams are copied."""

    def finished(self, state: State, moves: int) -> bool:
        """Whether all solutions are complete after so many moves."""

    def work(self, state: State) -> Sequence[float]:
        """Return how much work each move to come is, in any unit, for whoever shows how far it is; a guess will do."""


@dataclass(frozen=True)
class Trajectories:
    """Finished trajectories.

    Attributes
    ----------
    nodes
        ``(B, P, T)`` moves. TSP: permutations. CVRP: without the start at the depot; zeros at the end are padding.
    log_prob
        ``(B, P)`` log-probability of all moves that the policy chose, where asked for; beams that do not exist have
        ``-inf``.
    via
        ``(B, P, T)`` bool: reached via the depot; None where visits of the depot are moves of their own.
    """

    nodes: Tensor
    log_prob: Tensor | None = None
    via: Tensor | None = None

    def sequences(self) -> Tensor:
        """Write visits of the depot out, ``(B, P, 2 T)``: before each node the depot, or the node before it once more."""
        if self.via is None:
            return self.nodes
        before = F.pad(self.nodes[..., :-1], (1, 0)).masked_fill(self.via, 0)
        return torch.stack([before, self.nodes], dim=3).flatten(2)


def most_probable(joint: Tensor, width: int) -> Tensor:
    """Keep the beams with the largest log-probabilities."""
    flat = joint.flatten(1)
    return flat.topk(min(width, flat.shape[1]), dim=1).indices


def greedy_choice(scores: Tensor, step: int) -> Tensor:
    """Take the best action (the first among equals)."""
    return scores.argmax(dim=2)


def forced(actions: Tensor) -> Choose:
    """Follow given actions ``(B, P, T)``; beyond them take action 0, which is to stay at the depot."""

    def choose(scores: Tensor, step: int) -> Tensor:
        return actions[:, :, step] if step < actions.shape[2] else torch.zeros_like(actions[:, :, 0])

    return choose


def sampling(
    seeds: Tensor, first_sample: int, samples: int, *, double: bool = False, given: int = 0
) -> Choose:
    """Draw actions from the softmax of the scores.

    The random number of a move is a hash of the instance's seed, the number of its sample and that of the move. So what
    is drawn depends on neither the batch nor the groups that samples are cut into, and nothing is stored.

    Parameters
    ----------
    seeds
        ``(B,)`` int64, one per instance.
    first_sample, samples
        Number of the first of the P samples, and P.
    double
        Draw in float64, as path and local-view policies do; else in the scores' type, from 24 bits.
    given
        How many moves were given; draws are counted from the first that was not.
    """
    stream = streams(seeds, first_sample, samples)  # (B, P)

    def choose(scores: Tensor, step: int) -> Tensor:
        if double:
            return picked(scores.double().softmax(dim=2), uniform(stream, step - given))
        draw = coarse_uniform(stream, step - given).to(scores.dtype)
        return picked(scores.softmax(dim=2), draw)

    return choose


def construct(
    steps: Steps[State, Seen], begun: tuple[State, Move | None], choose: Choose, *, log_prob: bool = False
) -> Trajectories:
    """Complete the partial solutions with a rule that picks actions.

    Gradients flow into the log-probabilities where they are recorded.

    Parameters
    ----------
    steps, begun
        The policy at work, and where it begins, with the move that led there if one was given.
    choose
        The rule; a move that was given counts too.
    log_prob
        Whether to add up log-probabilities. Without them the last move of a tour needs no network.
    """
    state, given = begun
    moves = [] if given is None else [given]
    total: Tensor | None = None
    with _told(steps.work(state)) as moved:
        while not steps.finished(state, len(moves)):
            decided = None if log_prob else steps.only(state, len(moves))
            if decided is None:
                scores, seen = steps.scores(state)
                action = choose(scores, len(moves))
                if log_prob:
                    step = steps.log_probs(state, scores, seen).gather(2, action[..., None]).squeeze(2)
                    total = step if total is None else total + step
            else:
                action, seen = decided
            state, move = steps.follow(state, seen, action)
            moves.append(move)
            moved()
    return _joined(moves, total)


def beam_search(
    steps: Steps[State, Seen], begun: tuple[State, Move | None], width: int, *, keep: Keep = most_probable
) -> Trajectories:
    """Keep the `width` most probable partial solutions of each instance at every move.

    All continuations of one instance compete by their summed log-probability, and beams are never merged: BQ-NCO, DGL and
    the official AM do it alike. The decoder-scaling paper gives the width alone.

    Parameters
    ----------
    steps, begun
        As in `construct`; one partial solution per instance.
    width
        C, the beams that are kept.
    keep
        Another rule than the most probable ones.

    Returns
    -------
    Trajectories
        The last beam, ``(B, C, T)``, most probable first.
    """
    log_prob: Tensor | None = None
    state, given = begun
    moves = [] if given is None else [given]
    parents = [torch.zeros_like(node) for node, _ in moves]
    with _told(steps.work(state)) as moved:
        while not steps.finished(state, len(moves)):
            scores, seen = steps.scores(state)
            joint = steps.log_probs(state, scores, seen).double()
            joint = joint if log_prob is None else log_prob[..., None] + joint
            index = keep(joint, width)
            log_prob = joint.flatten(1).gather(1, index)
            # Where there are fewer continuations than beams, the rest repeats the best one and never counts.
            index = torch.where(log_prob.isneginf(), index[:, :1], index)
            parent = index // joint.shape[2]
            state, move = steps.follow(state, seen, index % joint.shape[2], parent)
            parents.append(parent)
            moves.append(move)
            moved()
    return _joined(_backtrack(parents, moves), log_prob)


@contextmanager
def _told(work: Sequence[float]) -> Iterator[Callable[[], None]]:
    """Give a function to call after every move, so that whoever listens knows how far a construction is.

    What is counted within a step moves no share: a network passes over its parts more than once.
    """
    reached = list(accumulate(work))
    with opened("step", len(reached), reached[-1] if reached else 0.0) as level:
        level.item = 0.0

        def moved() -> None:
            count = min(level.count + 1, len(reached))
            if count:
                level.reach(count, reached[count - 1])

        yield moved


def _backtrack(parents: list[Tensor], moves: list[Move]) -> list[Move]:
    """Follow the parents from the last move to the first; return the moves of the last beam."""
    beam = torch.arange(parents[-1].shape[1], device=parents[-1].device).expand_as(parents[-1])
    found: list[Move] = []
    for parent, (node, via) in zip(reversed(parents), reversed(moves), strict=True):
        found.append((node.gather(1, beam), None if via is None else via.gather(1, beam)))
        beam = parent.gather(1, beam)
    return found[::-1]


def _joined(moves: list[Move], log_prob: Tensor | None) -> Trajectories:
    nodes = torch.stack([node for node, _ in moves], dim=2)
    if all(via is None for _, via in moves):
        return Trajectories(nodes, log_prob)
    flags = [torch.zeros_like(node, dtype=torch.bool) if via is None else via for node, via in moves]
    return Trajectories(nodes, log_prob, torch.stack(flags, dim=2))
