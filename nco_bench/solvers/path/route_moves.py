"""Moves on complete CVRP solutions that leave cost and feasibility as they are: reversals, rotations, re-orderings.

A solution is a pair ``order, via``: ``(B, V)`` customers in visiting order, and whether each is reached via the depot,
which is always so for the first. Nothing here loops over instances, routes or customers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Routes = tuple[Tensor, Tensor]
"""``(order, via)``."""


def route_index(via: Tensor) -> Tensor:
    """Number of the route that each position belongs to, ``(B, V)``, from 0."""
    return via.long().cumsum(1) - 1


def route_starts(via: Tensor) -> Tensor:
    """Position where the route of each position starts, ``(B, V)``."""
    positions = torch.arange(via.shape[1], device=via.device).expand_as(via)
    return torch.where(via, positions, 0).cummax(1).values


def route_ends(via: Tensor) -> Tensor:
    """Position where the route of each position ends, ``(B, V)``."""
    last = ends_route(via)
    positions = torch.arange(via.shape[1], device=via.device).expand_as(via)
    return torch.where(last, positions, via.shape[1]).flip(1).cummin(1).values.flip(1)


def ends_route(via: Tensor) -> Tensor:
    """Whether each position is the last of its route, ``(B, V)`` bool."""
    return torch.cat([via[:, 1:], torch.ones_like(via[:, :1])], dim=1)


def reverse_all(routes: Routes, chosen: bool | Tensor = True) -> Routes:
    """Run whole solutions backwards, all or those chosen, ``(B,)`` bool; every route keeps its customers."""
    order, via = routes
    chosen = torch.as_tensor(chosen, device=via.device).expand(len(via))[:, None]
    return torch.where(chosen, order.flip(1), order), torch.where(chosen, ends_route(via).flip(1), via)


def reverse_routes(routes: Routes, chosen: Tensor) -> Routes:
    """Run the chosen routes backwards in place; `chosen` is ``(B, >= routes)`` bool per route of each instance."""
    order, via = routes
    positions = torch.arange(via.shape[1], device=via.device)
    mirrored = route_starts(via) + route_ends(via) - positions
    source = torch.where(chosen.gather(1, route_index(via)), mirrored, positions)
    return order.gather(1, source), via


def rotate(routes: Routes, first: Tensor) -> Routes:
    """Rotate left so that position ``first`` ``(B,)``, which must start a route, becomes position 0."""
    order, via = routes
    source = (torch.arange(via.shape[1], device=via.device) + first[:, None]) % via.shape[1]
    return order.gather(1, source), via.gather(1, source)


def rotate_routes(routes: Routes, count: Tensor) -> Routes:
    """Rotate left by ``count`` ``(B,)`` routes; a rotation by all of them is none."""
    via = routes[1]
    target = count % via.sum(1)
    return rotate(routes, (route_index(via) == target[:, None]).long().argmax(1))


def sort_by_angle(coords: Tensor, routes: Routes) -> Routes:
    """Order routes counter-clockwise around the depot, starting with the first route, as SIT's code does before PRC.

    SIT's appendix B.3 does not speak of an order. Details of the code that move it are kept: customer 1 is not counted when
    the centroid of its route is divided, and the depot takes part in every centroid. Its code leaves the last solution of
    an odd batch as it is; here all are ordered.

    Parameters
    ----------
    coords
        ``(B, V + 1, 2)``, row 0 the depot.
    """
    order, via = routes
    batch, customers = order.shape
    index = route_index(via)
    depot = coords[:, :1]
    points = coords.gather(1, order[..., None].expand(-1, -1, 2))
    sums = torch.zeros(batch, customers, 2, dtype=coords.dtype, device=coords.device)
    sums.scatter_add_(1, index[..., None].expand(-1, -1, 2), points)
    counts = torch.zeros(batch, customers, dtype=coords.dtype, device=coords.device)
    counts.scatter_add_(1, index, (order > 1).to(coords.dtype))
    direction = (sums + depot) / (counts + 1)[..., None] - depot  # (B, routes padded to V, 2)
    angles = _angles(direction)
    exists = torch.arange(customers, device=via.device) < via.sum(1, keepdim=True)
    rank = angles.masked_fill(~exists, torch.inf).argsort(dim=1, stable=True).argsort(1)
    source = rank.gather(1, index).argsort(dim=1, stable=True)
    return order.gather(1, source), via.gather(1, source)


def _angles(direction: Tensor) -> Tensor:
    """Counter-clockwise angles from the first direction, ``(B, R, 2)`` to ``(B, R)`` in [0, 2 pi]."""
    first = direction[:, :1]
    cosine = (direction * first).sum(2) / (direction.norm(dim=2) * first.norm(dim=2))
    cosine = torch.where(cosine >= 1, 1 - 1e-5, torch.where(cosine <= -1, -1 + 1e-5, cosine))
    angle = torch.arccos(cosine)
    cross = first[..., 0] * direction[..., 1] - first[..., 1] * direction[..., 0]
    angle = torch.where(cross < 0, 2 * math.pi - angle, angle)
    return torch.where(angle.isnan(), 2 * math.pi, angle)


def load_before(routes: Routes, demand: Tensor, positions: Tensor) -> Tensor:
    """Demand served on a route before some of its positions.

    Parameters
    ----------
    routes
        B solutions.
    demand
        ``(B, V + 1)``.
    positions
        ``(B, F)`` positions in the solutions.

    Returns
    -------
    Tensor
        ``(B, F)``.
    """
    order, via = routes
    served = demand.gather(1, order).cumsum(1)
    before = torch.cat([torch.zeros_like(served[:, :1]), served], dim=1)
    starts = route_starts(via).gather(1, positions)
    return before.gather(1, positions) - before.gather(1, starts)
