"""Instances that both sides are given. Capacities are powers of two: shares of them are exact, in any order of adding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CAPACITY = {10: 32, 20: 32, 50: 32, 100: 64, 200: 64, 500: 128, 1000: 256, 5000: 256, 10_000: 256}


@dataclass(frozen=True)
class Instances:
    """A batch of instances.

    Attributes
    ----------
    coords
        ``(B, N, 2)``; for the CVRP row 0 is the depot.
    demand, capacity
        ``(B, N)`` whole numbers, 0 at the depot, and ``(B,)``; None for the TSP.
    """

    coords: Tensor
    demand: Tensor | None = None
    capacity: Tensor | None = None

    @property
    def shares(self) -> Tensor:
        """Demands of customers as shares of the capacity, ``(B, N - 1)``."""
        assert self.demand is not None
        assert self.capacity is not None
        return self.demand[:, 1:] / self.capacity[:, None]

    @property
    def given(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What our decodings take."""
        return self.coords, self.demand, self.capacity

    def take(self, first: int, count: int) -> Instances:
        rows = slice(first, first + count)
        if self.demand is None or self.capacity is None:
            return Instances(self.coords[rows])
        return Instances(self.coords[rows], self.demand[rows], self.capacity[rows])


def drawn(problem: str, size: int, count: int, seed: int = 1234) -> Instances:
    """Draw uniform instances; demands of 1 to 9."""
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(count, size + (problem == "cvrp"), 2, generator=generator)
    if problem == "tsp":
        return Instances(coords)
    demand = torch.randint(1, 10, (count, size + 1), generator=generator)
    demand[:, 0] = 0
    return Instances(coords, demand, torch.full((count,), CAPACITY[size]))


def routes(nodes: Tensor) -> list[list[int]]:
    """Put sequences with 0 for each depot visit in one form: 0 at both ends, never twice in a row."""
    found = []
    for row in nodes.tolist():
        path = [0]
        path += [node for before, node in zip([0, *row], row, strict=False) if node or before]
        found.append(path if path[-1] == 0 else [*path, 0])
    return found
