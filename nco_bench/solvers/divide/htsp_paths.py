"""Open paths of H-TSP's lower model through fragments, between two given ends.

Letters in shapes: F fragments, n cities of a fragment, G trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nco_bench.nn.device import PerDevice
from nco_bench.solvers.divide.htsp import LowerModel
from nco_bench.solvers.stepwise.glimpse import Factors, factored
from nco_bench.solvers.stepwise.policy import RouteState

SCORES_AT_A_TIME = PerDevice(cpu=2**16, gpu=2**26)
"""Scores (fragments x trajectories x cities) that are decoded together: on a CPU as many as its cache holds."""


def scaled_fragments(points: Tensor) -> Tensor:
    """Scale fragments ``(F, n, 2)`` into [0.05, 0.95], one scale for both axes."""
    low = points.amin(dim=1, keepdim=True)
    extent = (points.amax(dim=1, keepdim=True) - low).amax(dim=2, keepdim=True)
    # Cities at one point would have no extent; any scale does for them.
    return 0.9 / torch.where(extent > 0, extent, 1.0) * (points - low) + 0.05


def eight(points: Tensor) -> Tensor:
    """Return the eight symmetries of ``(F, n, 2)`` as blocks of the whole batch, ``(8 F, n, 2)``."""
    x, y = points.unbind(2)
    pairs = ((x, y), (1 - x, y), (x, 1 - y), (1 - x, 1 - y), (y, x), (1 - y, x), (y, 1 - x), (1 - y, 1 - x))
    return torch.cat([torch.stack(pair, dim=2) for pair in pairs])


@dataclass(frozen=True)
class PathTours:
    """Tours of the lower model, whose two ends are neighbours.

    Attributes
    ----------
    tours
        ``(F, G, n)``.
    log_prob
        ``(F, G)`` of all decisions.
    """

    tours: Tensor
    log_prob: Tensor


def path_tours(
    lower: LowerModel,
    coords: Tensor,
    source: Tensor,
    target: Tensor,
    first: Tensor,
    actions: Tensor | None = None,
) -> PathTours:
    """Decode a trajectory from each first city; where one end is chosen, the other one follows at once.

    Parameters
    ----------
    lower
        The lower model.
    coords
        ``(F, n, 2)`` scaled, n >= 3.
    source, target
        ``(F,)`` the two ends.
    first
        ``(G,)`` first cities.
    actions
        ``(F, G, n - 2)`` decisions to follow; None takes the likeliest.
    """
    batch, size, _ = coords.shape
    encoded = lower.encode(coords, source, target)
    ends = torch.stack([source, target], dim=1)[:, None]  # (F, 1, 2)
    chosen = first.expand(batch, -1)
    start, blocked = chosen, coords.new_zeros(batch, len(first), size)
    log_prob = coords.new_zeros(batch, len(first))
    decisions = []
    for step in range(size - 1):
        decisions.append(chosen)
        partner = _partner(chosen, ends)
        blocked = blocked.scatter(2, torch.stack([chosen, partner], dim=2), -torch.inf)
        if step == size - 2:
            break
        if step == 0:
            encoded = factored(encoded, RouteState(start, partner, blocked))
        if encoded.factors is not None:
            _forget(encoded.factors, chosen)
        logits = lower.logits(encoded, RouteState(start, partner, blocked))
        chosen = logits.argmax(dim=2) if actions is None else actions[:, :, step]
        if actions is not None:
            log_prob = log_prob + logits.log_softmax(dim=2).gather(2, chosen[..., None])[..., 0]
    return PathTours(_with_partners(torch.stack(decisions, dim=2), ends), log_prob)


def _forget(factors: Factors, chosen: Tensor) -> None:
    """Clear the attention weights of chosen cities; those of where a trajectory stands are cleared by the next step."""
    factors.first.view(-1).index_fill_(0, (chosen[:, None] + factors.entries).flatten(), 0.0)


def _partner(chosen: Tensor, ends: Tensor) -> Tensor:
    """Return where a trajectory stands after a choice: at the other end after one end, else where it went."""
    source, target = ends.unbind(2)
    return torch.where(chosen == source, target, torch.where(chosen == target, source, chosen))


def _with_partners(decisions: Tensor, ends: Tensor) -> Tensor:
    """Put the second end behind the first: ``(F, G, n - 1)`` decisions to ``(F, G, n)`` tours."""
    batch, trajectories, count = decisions.shape
    either = (decisions[..., None] == ends[:, :, None]).any(dim=3)
    at = either.long().argmax(dim=2, keepdim=True)
    index = torch.arange(count + 1, device=decisions.device).expand(batch, trajectories, -1)
    tours = decisions.gather(2, (index - (index > at).long()).clamp(max=count - 1))
    return tours.scatter(2, at + 1, _partner(decisions.gather(2, at)[..., 0], ends)[..., None])


def path_lengths(coords: Tensor, tours: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Lengths of tours ``(F, G, n)`` without the edge between the two ends, ``(F, G)``."""
    batch, trajectories, size = tours.shape
    points = coords.gather(1, tours.reshape(batch, -1, 1).expand(-1, -1, 2))
    points = points.view(batch, trajectories, size, 2)
    row = torch.arange(batch, device=coords.device)
    edge = (coords[row, source] - coords[row, target]).norm(dim=1)
    return (points - points.roll(-1, 2)).norm(dim=3).sum(dim=2) - edge[:, None]


def solve_paths(lower: LowerModel, points: Tensor, first: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Reorder fragments between their first and last city: eight symmetries, a trajectory from every city, the best.

    Parameters
    ----------
    lower
        The lower model.
    points
        ``(F, n, 2)`` cities in order, n >= 2.
    first
        ``(G,)`` first cities; all in order if None.

    Returns
    -------
    order, length
        ``(F, n)`` from 0 to n - 1, and the scaled length of each path ``(F,)``.
    """
    count, size, _ = points.shape
    if size < 4:
        return torch.arange(size).expand(count, -1), points.new_zeros(count)
    first = torch.arange(size, device=points.device) if first is None else first
    coords = scaled_fragments(points)
    seen = eight(coords)
    source = torch.zeros(len(seen), dtype=torch.int64, device=points.device)
    target = source + size - 1
    block = max(1, SCORES_AT_A_TIME.on(points.device) // (len(first) * size))
    parts = zip(seen.split(block), source.split(block), target.split(block), strict=True)
    tours = torch.cat([path_tours(lower, *part, first).tours for part in parts])
    lengths = path_lengths(seen, tours, source, target).view(8, count, -1).transpose(0, 1).flatten(1)
    shortest = lengths.min(dim=1)
    candidates = tours.view(8, count, len(first), size).transpose(0, 1).flatten(1, 2)
    best = candidates[torch.arange(count, device=tours.device), shortest.indices]
    return _from_source(best), shortest.values


def _from_source(tours: Tensor) -> Tensor:
    """Turn tours ``(F, n)`` that hold 0 and n - 1 side by side, so that they lead from 0 to n - 1."""
    size = tours.shape[1]
    index = torch.arange(size, device=tours.device)
    at = (tours == 0).long().argmax(dim=1, keepdim=True)
    forward = tours.gather(1, (at + index) % size)
    backward = tours.gather(1, (at - index) % size)
    return torch.where(forward[:, -1:] == size - 1, forward, backward)
