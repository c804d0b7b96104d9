"""Instances that are drawn anew for every update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.cards import network_card
from nco_bench.errors import BadInputError
from nco_bench.problems.shaped_points import clustered, mixed
from nco_bench.solvers.stepwise.problem import Demands, RoutingProblem, cvrp_demands
from nco_bench.training.courses import Assignment

UNIFORM = "uniform"
DISTRIBUTIONS = (UNIFORM, "uniform+clustered+mixed")


@dataclass(frozen=True)
class FreshInstances:
    """Instances that are made as they are needed.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    size
        Nodes (TSP) or customers (CVRP).
    capacity
        Of the vehicles.
    demand
        ``integer`` draws 1..9 (AM), ``unit`` draws real numbers below 1 (EIE).
    distribution
        Of the coordinates, one of `DISTRIBUTIONS`; of several each batch takes one, with equal chances.
    """

    problem: str = "tsp"
    size: int = 100
    capacity: float = 50.0
    demand: str = "integer"
    distribution: str = UNIFORM

    def draw(self, count: int, rng: np.random.Generator) -> RoutingProblem:
        """Return `count` instances in the unit square, on the CPU."""
        depot = int(self.problem == "cvrp")
        coords = torch.from_numpy(self._points(count, rng))
        if not depot:
            return RoutingProblem(coords)
        if self.demand == "unit":
            amount = 1.0 - rng.random((count, self.size))
        else:
            amount = rng.integers(1, 10, (count, self.size)).astype(np.float64)
        with_depot = torch.from_numpy(np.concatenate([np.zeros((count, 1)), amount], axis=1))
        capacity = torch.full((count,), float(self.capacity), dtype=torch.float64)
        return RoutingProblem(coords, cvrp_demands(with_depot, capacity))

    def _points(self, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return coordinates, the depot's first; where all are clustered it is one of them, else uniform (ELG)."""
        kinds = self.distribution.split("+")
        kind = kinds[int(rng.integers(len(kinds)))] if len(kinds) > 1 else UNIFORM
        nodes = self.size + int(self.problem == "cvrp")
        points = rng.random((count, nodes, 2), dtype=np.float32)
        for index in range(count if kind != UNIFORM else 0):
            if kind == "clustered":
                points[index] = clustered(rng, nodes)
            else:
                points[index, nodes - self.size :] = mixed(rng, self.size)
        return points


def on_device(problem: RoutingProblem, device: torch.device) -> RoutingProblem:
    """Move instances to a device."""
    demands = problem.demands
    if demands is not None:
        demands = Demands(*(t.to(device) for t in (demands.amount, demands.capacity, demands.limit)))
    return RoutingProblem(problem.coords.to(device), demands)


def problem_to_draw(assignment: Assignment) -> str:
    """Return the problem whose instances a model learns from, ``tsp`` by default.

    Raises
    ------
    BadInputError
        For a problem that the model does not solve, and where data were given.
    """
    model, problem = assignment.model, assignment.problem or "tsp"
    if problem not in network_card(model).problems:
        raise BadInputError(f"--problem {problem}: {model} is no model for the {problem}.")
    if assignment.data:
        raise BadInputError(f"{model} learns by policy gradient from instances of its own; leave --data out.")
    return problem
