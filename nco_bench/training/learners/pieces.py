"""Random pieces of label solutions as path problems: what is drawn, and what is left of it after a decision."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nco_bench.solvers.path.policy import gather_rows
from nco_bench.solvers.path.route_moves import Routes, load_before, reverse_all, reverse_routes, rotate_routes
from nco_bench.training.shards import unpack_routes


@dataclass(frozen=True)
class SubPaths:
    """Pieces of label tours.

    Attributes
    ----------
    coords
        ``(B, L, 2)`` in the order of the tour: origin, the nodes between, destination.
    closed
        The piece is a whole tour; the last row repeats the first.
    instance_size
        Nodes of the instance that it was cut from.
    """

    coords: Tensor
    closed: bool
    instance_size: int

    @property
    def decisions(self) -> int:
        """How many times a next node is chosen until the destination is reached."""
        return self.coords.shape[1] - 2

    def following(self) -> SubPaths:
        """Return what is left of the pieces after their first decision."""
        return SubPaths(self.coords[:, 1:], False, self.instance_size)


@dataclass(frozen=True)
class RoutePieces:
    """Pieces of CVRP solutions.

    Attributes
    ----------
    coords, demand
        ``(B, M + 2, 2)``, ``(B, M + 2)`` in the order of the solution: where the vehicle stands, M customers, the depot.
    remaining, capacity
        ``(B,)`` whole units left in the vehicle and when it is full.
    via
        ``(B, M)``: whether each customer is reached via the depot.
    closed
        Nothing is visited yet: the vehicle stands at the depot.
    instance_size
        Customers of the instance.
    """

    coords: Tensor
    demand: Tensor
    remaining: Tensor
    via: Tensor
    capacity: Tensor
    closed: bool
    instance_size: int

    @property
    def decisions(self) -> int:
        """How many times a next customer and its flag are chosen."""
        return self.via.shape[1]

    def following(self) -> RoutePieces:
        """Return what is left of the pieces after their first decision; the customer there is served."""
        full = self.via[:, 0] | self.closed
        remaining = torch.where(full, self.capacity, self.remaining) - self.demand[:, 1]
        return dataclasses.replace(
            self, coords=self.coords[:, 1:], demand=self.demand[:, 1:], remaining=remaining, via=self.via[:, 1:],
            closed=False,
        )  # fmt: skip

    def rows(self, chosen: Tensor) -> RoutePieces:
        """Return some of the pieces."""
        parts = ("coords", "demand", "remaining", "via", "capacity")
        return dataclasses.replace(self, **{name: getattr(self, name)[chosen] for name in parts})

    def to(self, device: torch.device) -> RoutePieces:
        """Move them to a device."""
        parts = ("coords", "demand", "remaining", "via", "capacity")
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in parts})


def draw_length(shortest: int, longest: int, lengths: str, rng: np.random.Generator) -> int:
    """Draw the rows of a sub-path, ends included, as `Recipe.lengths` says."""
    if lengths == "uniform":
        return int(rng.integers(shortest, longest + 1))
    shares = 1.0 / np.arange(shortest, longest + 1)
    return int(rng.choice(np.arange(shortest, longest + 1), p=shares / shares.sum()))


def draw_sub_paths(ordered: Tensor, length: int, rng: np.random.Generator, symmetries: bool) -> Tensor:
    """Cut one piece out of each tour, on the device where the tours are.

    Parameters
    ----------
    ordered
        ``(B, N, 2)`` coordinates in tour order.
    length
        Rows of the piece, 3 to N + 1; N + 1 gives the closed tour.
    rng
        Draws starts, directions and symmetries.
    symmetries
        Apply one of the eight symmetries of the unit square to each piece.
    """
    batch, nodes, _ = ordered.shape
    start = rng.integers(nodes, size=batch)
    direction = rng.choice((-1, 1), size=batch)
    begin, towards = torch.from_numpy(np.stack([start, direction])).to(ordered.device)[..., None]
    rows = (begin + towards * torch.arange(length, device=ordered.device)) % nodes
    pieces = gather_rows(ordered, rows)
    return transformed(pieces, rng.integers(8, size=batch)) if symmetries else pieces


def transformed(pieces: Tensor, symmetry: NDArray[np.integer]) -> Tensor:
    """Apply symmetries 0..7 of the unit square, ``(B,)``, to ``(B, L, 2)``: swap x and y, mirror x, mirror y."""
    wanted = torch.from_numpy((symmetry[:, None] & (1, 2, 4)) > 0).to(pieces.device)[:, None]
    pieces = torch.where(wanted[..., :1], pieces.flip(2), pieces)
    return torch.where(wanted[..., 1:], 1 - pieces, pieces)


def draw_route_pieces(
    packed: NDArray[np.float32], customers: int, rng: np.random.Generator, symmetries: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Cut a piece that ends at the depot out of each CVRP solution.

    Parameters
    ----------
    packed
        ``(B, V + 1, 5)``, see `data.pack_routes`.
    customers
        Customers in the piece, the one where the vehicle stands included; 2 to V.
    rng
        Draws reversals, rotations and symmetries.

    Returns
    -------
    coords, demand, remaining, via, capacity
        ``(B, L + 1, 2)`` and ``(B, L + 1)``: the piece in order, then the depot; ``(B,)`` whole units left in the
        vehicle at the first customer; ``(B, L)`` flags; ``(B,)``.
    """
    if symmetries:
        points = transformed(torch.from_numpy(packed[..., :2].copy()), rng.integers(8, size=len(packed)))
        packed = np.concatenate([points.numpy(), packed[..., 2:]], axis=2)
    coords, demand, capacity, via = unpack_routes(torch.from_numpy(np.ascontiguousarray(packed)))
    batch, count = via.shape
    routes: Routes = (torch.arange(1, count + 1).expand(batch, -1), via)
    coins = torch.from_numpy(rng.random((batch, count)) < 0.5)
    routes = reverse_routes(reverse_all(routes) if rng.random() < 0.5 else routes, coins)
    turns = torch.from_numpy(rng.random(batch)) * via.sum(1)  # every route's end is as likely as any other's
    routes = rotate_routes(routes, turns.long())
    order, via = routes
    begin = count - customers
    served = load_before(routes, demand, torch.full((batch, 1), begin)).squeeze(1)
    first = order[:, begin]
    full = torch.where(via[:, begin], capacity, capacity - served)
    remaining = full - demand.gather(1, first[:, None]).squeeze(1)
    rows = torch.cat([order[:, begin:], torch.zeros(batch, 1, dtype=torch.int64)], dim=1)
    return gather_rows(coords, rows), demand.gather(1, rows), remaining, via[:, begin:], capacity
