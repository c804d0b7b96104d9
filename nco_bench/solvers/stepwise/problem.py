"""Instances as stepwise decodings see them, their solutions' lengths, and the conversion to the project's solution arrays.

Demands are compared as whole numbers wherever they are.

Letters in shapes: B instances, P trajectories, N nodes (depot first), T moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.solvers.stepwise.policy import RoutingNodes


@dataclass(frozen=True)
class Demands:
    """The capacity side of a batch of CVRP instances.

    Attributes
    ----------
    amount
        ``(B, N)``, 0 at the depot: whole numbers, which are added up exactly, or floats.
    capacity
        ``(B,)`` of the same type.
    limit
        ``(B,)`` largest load allowed; the capacity, but for a tolerance where demands are no whole numbers.
    """

    amount: Tensor
    capacity: Tensor
    limit: Tensor

    def shares(self, dtype: torch.dtype) -> Tensor:
        """Demands as shares of the capacity, ``(B, N)``."""
        return self.amount.to(dtype) / self.capacity.to(dtype)[:, None]

    def take(self, rows: slice) -> Demands:
        """Return the demands of some instances."""
        return Demands(self.amount[rows], self.capacity[rows], self.limit[rows])

    def repeat(self, copies: int) -> Demands:
        """Return the demands of each instance `copies` times."""
        return Demands(
            *(t.repeat_interleave(copies, dim=0) for t in (self.amount, self.capacity, self.limit))
        )


@dataclass(frozen=True)
class RoutingProblem:
    """B instances of one size.

    Attributes
    ----------
    coords
        ``(B, N, 2)`` as the policy sees them; row 0 is the depot of a CVRP instance.
    demands
        Demands and capacities, or None for the TSP.
    """

    coords: Tensor
    demands: Demands | None = None

    def nodes(self) -> RoutingNodes:
        """Return what the policy encodes."""
        return RoutingNodes(
            self.coords, None if self.demands is None else self.demands.shares(self.coords.dtype)
        )

    def take(self, rows: slice) -> RoutingProblem:
        """Return some of the instances."""
        return RoutingProblem(self.coords[rows], None if self.demands is None else self.demands.take(rows))


def cvrp_demands(demand: Tensor, capacity: Tensor) -> Demands:
    """Make exact bookkeeping of demands ``(B, N)`` (depot first) and capacities ``(B,)``.

    Whole numbers of any type are counted as integers; others in float64 with the referee's tolerance.

    Raises
    ------
    BadInputError
        For a demand that no vehicle can carry.
    """
    if bool((demand == demand.round()).all()) and bool((capacity == capacity.round()).all()):
        # Twice the capacity marks visited customers, and a load is added to it.
        kind = torch.int32 if float(capacity.max()) < 2**29 else torch.int64
        amount, limit = demand.to(kind), capacity.to(kind)
        return _checked(Demands(amount, limit, limit))
    return _checked(Demands(demand.double(), capacity.double(), capacity.double() * (1 + 1e-9)))


def float32_demands(demand: Tensor, capacity: Tensor) -> Demands:
    """Make the bookkeeping of the official AM: shares of the capacity added up in float32, none above 1.0 allowed.

    With capacities such as 50, loads that fit exactly are sometimes refused: 0.3 + 0.7 may come to 1.0000001.
    """
    shares = demand.float() / capacity.float()[:, None]
    one = torch.ones_like(shares[:, 0])
    return _checked(Demands(shares, one, one))


def _checked(demands: Demands) -> Demands:
    if bool((demands.amount > demands.limit[:, None]).any()):
        raise BadInputError(
            "a customer's demand exceeds the vehicle's capacity; the instance has no solution."
        )
    return demands


def trajectory_lengths(coords: Tensor, nodes: Tensor, *, cvrp: bool) -> Tensor:
    """Lengths of closed tours or of routes, float64.

    Parameters
    ----------
    coords
        ``(B, N, 2)`` float64.
    nodes
        ``(B, P, T)``.
    cvrp
        Whether the vehicle also starts and ends at node 0.

    Returns
    -------
    Tensor
        ``(B, P)``, rounded to 1e-9, so that equal solutions (routes in another order, say) are equally long however
        the sum is cut, and the first of them is kept.
    """
    if cvrp:
        nodes = F.pad(nodes, (1, 0))
    batch, trajectories, moves = nodes.shape
    index = nodes.reshape(batch, -1, 1).expand(-1, -1, 2)
    points = coords.gather(1, index).view(batch, trajectories, moves, 2)
    return (points - points.roll(-1, dims=2)).norm(dim=3).sum(dim=2).round(decimals=9)


def solution_arrays(nodes: Tensor, *, cvrp: bool) -> list[NDArray[np.int64]]:
    """Turn ``(B, T)`` moves into the project's solutions: tours, or sequences with 0 at both ends, none twice in a row."""
    rows = nodes.cpu().numpy()
    if not cvrp:
        return list(rows)
    sequences = [np.concatenate([[0], np.trim_zeros(row), [0]]) for row in rows]
    return [sequence[np.append(True, sequence[1:] != sequence[:-1])] for sequence in sequences]
