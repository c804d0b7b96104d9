"""Path problems as decodings see them, their solutions, and the conversion to the project's solution arrays.

Capacities are kept as exact integers here; policies are given shares.

Letters in shapes: B batch, N nodes, M candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nco_bench.solvers.decoding.search import Trajectories
from nco_bench.solvers.path.policy import PathNodes


@dataclass(frozen=True)
class Load:
    """The capacity side of a CVRP path problem, in the instance's own units.

    Attributes
    ----------
    demand
        ``(B, N)`` int64, 0 at the depot (row 0).
    capacity
        ``(B,)`` int64 capacity of a vehicle.
    remaining
        ``(B,)`` int64 capacity left where the path starts.
    """

    demand: Tensor
    capacity: Tensor
    remaining: Tensor


@dataclass(frozen=True)
class PathProblem:
    """A batch of path problems.

    Attributes
    ----------
    nodes
        What the policy embeds.
    rows
        ``(B, M + 2)`` int64: origin, candidates, destination, as indices of nodes.
    closed
        As in `PathState`: origin and destination are the same node (TSP), nothing is visited yet (CVRP).
    load
        Demands and capacities, or None for the TSP.
    """

    nodes: PathNodes
    rows: Tensor
    closed: bool
    load: Load | None = None

    @property
    def candidates(self) -> int:
        """Number of nodes to be visited between origin and destination."""
        return self.rows.shape[1] - 2


@dataclass(frozen=True)
class Path:
    """Solutions of a batch of path problems.

    Attributes
    ----------
    order
        ``(B, M)`` int64: the candidates in visiting order.
    via
        ``(B, M)`` bool: reached via the depot; None for the TSP. The first flag of a closed problem means nothing.
    log_prob
        ``(B,)`` float64 log-probability under the policy; empty where the decoding does not compute it.
    """

    order: Tensor
    via: Tensor | None = None
    log_prob: Tensor = field(default_factory=lambda: torch.empty(0))

    @classmethod
    def of(cls, found: Trajectories) -> Path:
        """Put the trajectories ``(B, C, M)`` of all problems in one row, ``(B C, M)``."""
        flat = [None if t is None else t.flatten(0, 1) for t in (found.nodes, found.via, found.log_prob)]
        assert flat[0] is not None
        return cls(flat[0], flat[1], torch.empty(0) if flat[2] is None else flat[2])

    @property
    def flags(self) -> Tensor:
        """``via``, with no visit of a depot for the TSP."""
        return torch.zeros_like(self.order, dtype=torch.bool) if self.via is None else self.via


def tsp_problem(coords: Tensor, start: int | Tensor = 0) -> PathProblem:
    """Make the path problem of whole TSP instances, ``(B, N, 2)``: from a start node through all others back to it.

    Parameters
    ----------
    coords
        ``(B, N, 2)``.
    start
        Start node, one for all or ``(B,)``.
    """
    batch, count, _ = coords.shape
    first = torch.as_tensor(start, device=coords.device).expand(batch)[:, None]
    others = torch.arange(count - 1, device=coords.device).expand(batch, -1)
    rows = torch.cat([first, others + (others >= first), first], dim=1)
    return PathProblem(PathNodes(coords, None, count), rows, closed=True)


def cvrp_problem(coords: Tensor, demand: Tensor, capacity: Tensor) -> PathProblem:
    """Make the path problem of whole CVRP instances, starting at the depot with a full vehicle.

    Parameters
    ----------
    coords
        ``(B, N + 1, 2)``, row 0 the depot.
    demand
        ``(B, N + 1)`` integers, 0 at the depot.
    capacity
        ``(B,)`` integers.
    """
    batch, count, _ = coords.shape
    rows = torch.arange(count + 1, device=coords.device).remainder(count).expand(batch, -1)
    nodes = PathNodes(coords, shares(demand, capacity, coords.dtype), count - 1)
    return PathProblem(nodes, rows, closed=True, load=Load(demand, capacity, capacity))


def part_of(problem: PathProblem, part: slice) -> PathProblem:
    """Return some of a batch of problems."""
    nodes, load = problem.nodes, problem.load
    return PathProblem(
        PathNodes(
            nodes.coords[part], None if nodes.demand is None else nodes.demand[part], nodes.instance_size
        ),
        problem.rows[part],
        problem.closed,
        None if load is None else Load(load.demand[part], load.capacity[part], load.remaining[part]),
    )


def joined(paths: list[Path]) -> Path:
    """Put the solutions of parts of a batch together, in order."""
    if len(paths) == 1:
        return paths[0]
    flags = [path.via for path in paths if path.via is not None]
    return Path(
        torch.cat([path.order for path in paths]),
        torch.cat(flags) if flags else None,
        torch.cat([path.log_prob for path in paths]),
    )


def shares(amount: Tensor, capacity: Tensor, dtype: torch.dtype) -> Tensor:
    """Express ``(B, ...)`` amounts as shares of the capacity ``(B,)``; equal amounts give equal floats."""
    divisor = capacity.to(dtype).view(-1, *[1] * (amount.dim() - 1))
    return amount.to(dtype) / divisor


def tour_lengths(coords: Tensor, tours: Tensor) -> Tensor:
    """Lengths of closed tours, ``(B, N, 2)`` and ``(B, N)`` to ``(B,)`` float64."""
    points = _points(coords, tours)
    return (points - points.roll(-1, dims=1)).norm(dim=2).sum(1)


def path_lengths(coords: Tensor, paths: Tensor) -> Tensor:
    """Lengths of open paths, ``(B, N, 2)`` and ``(B, L)`` to ``(B,)`` float64."""
    points = _points(coords, paths)
    return (points[:, 1:] - points[:, :-1]).norm(dim=2).sum(1)


def route_lengths(coords: Tensor, order: Tensor, via: Tensor, *, first_edge: bool = True) -> Tensor:
    """Lengths of CVRP solutions (or of segments that end at the depot), ``(B,)`` float64.

    Parameters
    ----------
    coords
        ``(B, N + 1, 2)``, row 0 the depot.
    order, via
        ``(B, M)`` customers, and whether each is reached via the depot.
    first_edge
        Whether the way into the first customer counts where its flag is False; where it is True the way from the depot
        always counts.
    """
    points = _points(coords, order)
    depot = coords[:, :1].double()
    to_depot = (points - depot).norm(dim=2)  # (B, M)
    direct = (points[:, 1:] - points[:, :-1]).norm(dim=2)
    steps = torch.where(via[:, 1:], to_depot[:, :-1] + to_depot[:, 1:], direct).sum(1)
    first = to_depot[:, 0] if first_edge else torch.where(via[:, 0], to_depot[:, 0], 0.0)
    return first + steps + to_depot[:, -1]


def _points(coords: Tensor, order: Tensor) -> Tensor:
    return coords.gather(1, order.unsqueeze(-1).expand(-1, -1, 2)).double()


def tour_arrays(tours: Tensor) -> list[NDArray[np.int64]]:
    """Split ``(B, N)`` tours into one array per instance."""
    return list(tours.cpu().numpy())


def route_arrays(order: Tensor, via: Tensor) -> list[NDArray[np.int64]]:
    """Turn ``(B, M)`` customers and flags into sequences with 0 for each depot visit, at both ends too."""
    flags = via.cpu().numpy().copy()
    flags[:, 0] = True
    customers = order.cpu().numpy()
    return [
        np.append(np.insert(row, np.flatnonzero(flag), 0), 0)
        for row, flag in zip(customers, flags, strict=True)
    ]
