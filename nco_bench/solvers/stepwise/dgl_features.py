"""Numbers that DGL's weights have learned with, as the official code computes them: distances, features, small chances.

Letters in shapes: B instances, R partial solutions, N nodes (depot first), A options, T tokens, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON, TINY = 1e-7, 1e-5
CDIST_DIRECT = 25
"""Up to here ``torch.cdist`` subtracts coordinates; above, it multiplies matrices."""


def distances_to(coords: Tensor, here: Tensor) -> Tensor:
    """Distances of all nodes to one node per row, as ``torch.cdist`` computes a whole matrix of them.

    Above 25 nodes that is |a|^2 - 2 a.b + |b|^2, whose rounding (up to 5e-4 for distances near 0) the weights have learned
    with: features are scaled to [0, 1], and so is the rounding. The chain of additions is written out, with the fused
    multiply-add of matrix products, so the result depends on neither the batch nor the machine.

    Parameters
    ----------
    coords
        ``(B, N, 2)``; official training on the CVRP has the demand as a third axis.
    here
        ``(R,)`` node indices, instance by instance.

    Returns
    -------
    Tensor
        ``(R, N)``.
    """
    batch, count, axes = coords.shape
    at = here.view(batch, -1)
    if count <= CDIST_DIRECT:
        there = coords.gather(1, at[..., None].expand(-1, -1, axes))
        return (coords[:, None] - there[:, :, None]).square().sum(dim=3).sqrt().view(-1, count)
    total: Tensor | None = None
    for x in coords.unbind(2):
        a, b = -2 * x[:, None], x.gather(1, at)[..., None]
        total = a * b if total is None else (a.double() * b.double() + total.double()).to(x.dtype)
    assert total is not None
    norm = coords.square().sum(dim=2)
    squares = total + norm[:, None] + norm.gather(1, at)[..., None]
    return squares.clamp_(min=0).sqrt_().view(-1, count)


def relative_demand(demand: Tensor, room: Tensor) -> Tensor:
    """Divide demands by the capacity left; 1.1 where there is none (the official rule)."""
    room = torch.where(room < TINY, room + EPSILON, room)
    return torch.where(room < TINY, 1.1, demand / room.clamp(min=EPSILON))


def normalised(features: Tensor) -> Tensor:
    """Scale every feature to [0, 1] within its neighbourhood, ``(R, T, F)``; constant ones become 0."""
    low, high = features.aminmax(dim=1, keepdim=True)
    return (features - low) / torch.where(high > low, high - low, 1.0)


def floored(scores: Tensor) -> Tensor:
    """Return log-probabilities ``(R, A)``; 1e-7 is added to those of at most 1e-5 that are possible."""
    p = scores.softmax(dim=1)
    return torch.where(p <= TINY, p + EPSILON, p).log().masked_fill(scores.isneginf(), -torch.inf)
