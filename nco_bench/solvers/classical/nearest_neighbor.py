"""Nearest neighbour: from node 0 always to the nearest node not yet visited. About O(N log N) time, O(N) memory.

Each step asks for the nearest unvisited node among the K nearest of the current node, found once for all with a
k-d tree. If none is left (about one step in 30), a k-d tree of the unvisited nodes is asked; it is built again
whenever half of its nodes are visited, which costs O(N log N) in all. GEO, ATT and the other rules on coordinates are
monotone enough in practice that Euclidean neighbours serve, except GEO, where points go to the sphere first; matrix
instances read their rows. Ties go to the lower node number, except in the TSP on coordinates, where the k-d tree decides.
There is nothing random: the seed has no effect.

CVRP: the nearest customer that still fits into the vehicle; if none fits, back to the depot. O(N^2) time for a matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.decoding.nearest import nearest_by_tree, nearest_visits, nearest_visits_by_tree
from nco_bench.solvers.protocol import Solved
from nco_bench.solvers.small import (
    all_points,
    distance_matrix,
    easy_routes,
    easy_tour,
    integer_demand,
    join_fixed_edges,
)


class NearestNeighbor(ChildSolver):
    """Nearest neighbour for TSP and CVRP."""

    NAME = "nearest-neighbor"
    SOLVE = "nco_bench.solvers.classical.nearest_neighbor:solve"
    QUICK = True

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse limits on route lengths."""
        if any(getattr(i, "max_route_length", None) is not None for i in dataset):
            return f"{self.NAME} knows no limit on route lengths, which {dataset.name} has"
        return None


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved:
    """Build one solution; runs in the child."""
    if isinstance(instance, CVRPInstance):
        easy = easy_routes(instance)
        return easy if easy is not None else nearest_routes(instance)
    easy = easy_tour(instance)
    if easy is not None:
        return easy
    if instance.convention == "explicit":
        tour = nearest_by_matrix(distance_matrix(instance))
    else:
        tour = nearest_by_tree(search_points(instance))
    return join_fixed_edges(instance, tour)


def search_points(instance: TSPInstance | CVRPInstance) -> NDArray[np.float64]:
    """Return points whose Euclidean order of distances is the instance's: on the sphere for GEO, else the raw ones."""
    points = all_points(instance)
    if instance.convention != "geo":
        return points
    degrees = np.trunc(points)
    latitude, longitude = np.pi * (degrees + 5.0 * (points - degrees) / 3.0).T / 180.0
    return np.stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=1
    )


def nearest_by_matrix(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Build a nearest-neighbour tour from an ``(N, N)`` matrix."""
    n = len(matrix)
    blocked = np.zeros(n)
    tour, node = [0], 0
    blocked[0] = np.inf
    for _ in range(n - 1):
        node = int((matrix[node] + blocked).argmin())
        blocked[node] = np.inf
        tour.append(node)
    return np.array(tour)


def nearest_routes(instance: CVRPInstance) -> NDArray[np.int64]:
    """Build routes customer by customer."""
    demand, capacity = integer_demand(instance)
    if instance.convention != "explicit":
        return nearest_visits_by_tree(search_points(instance), demand, capacity)
    matrix = distance_matrix(instance)
    return nearest_visits(demand, capacity, lambda node, left: matrix[node, left].copy())
