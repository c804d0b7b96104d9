"""OR-Tools' routing library (Google), for TSP and CVRP; an optional extra.

Cheapest-arc (TSP) or savings (CVRP) construction, then a metaheuristic until ``solutions`` solutions have been
looked at, which repeats, or until the time limit, which need not. The library has no seed: every seed gives the same
solution. Distances are integers: whole ones stay as they are, others are scaled to a largest edge of 10^6. It gets an
N x N matrix, so N is limited to 10,000.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import UnknownNameError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.classical.tsplib_text import whole_matrix
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.small import (
    distance_matrix,
    easy_routes,
    easy_tour,
    integer_demand,
    join_fixed_edges,
    join_routes,
)

METAHEURISTICS = {
    "greedy-descent": "GREEDY_DESCENT",
    "guided-local-search": "GUIDED_LOCAL_SEARCH",
    "simulated-annealing": "SIMULATED_ANNEALING",
    "tabu-search": "TABU_SEARCH",
}


class ORTools(ChildSolver):
    """OR-Tools for TSP and CVRP."""

    NAME = "ortools"
    SOLVE = "nco_bench.solvers.classical.ortools_solver:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {
        "solutions": (int, 0),
        "metaheuristic": (str, "guided-local-search"),
    }
    MAX_N: ClassVar[dict[str, int]] = {"tsp": 10_000, "cvrp": 10_000}
    GRACE = (1.1, 5.0)

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.params["metaheuristic"] not in METAHEURISTICS:
            raise UnknownNameError("metaheuristic of ortools", self.params["metaheuristic"], METAHEURISTICS)

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse limits on route lengths."""
        if any(getattr(i, "max_route_length", None) is not None for i in dataset):
            return f"{self.NAME} is not set up for limits on route lengths, which {dataset.name} has"
        return super().check(dataset, backend)


def warm_up(params: dict[str, Any]) -> None:
    """Import the package before the clock starts."""
    from ortools.constraint_solver import pywrapcp  # noqa: F401


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Run OR-Tools on one instance; runs in the child."""
    if isinstance(instance, CVRPInstance):
        easy = easy_routes(instance)
        if easy is not None:
            return easy
        routes = _search(instance, time_limit, params)
        return join_routes(routes) if routes else Failure("failed", "OR-Tools found no feasible solution")
    easy = easy_tour(instance)
    if easy is not None:
        return easy
    routes = _search(instance, time_limit, params)
    if not routes:
        return Failure("failed", "OR-Tools found no tour")
    return join_fixed_edges(instance, np.concatenate([[0], *routes]))


def _search(
    instance: TSPInstance | CVRPInstance, time_limit: float | None, params: dict[str, Any]
) -> list[NDArray[np.int64]]:
    """Return the routes as node numbers without the depot (node 0); empty if there is no solution."""
    from ortools.constraint_solver import pywrapcp

    distances = whole_matrix(distance_matrix(instance))
    demand, capacity, vehicles = None, 0, 1
    if isinstance(instance, CVRPInstance):
        demand, capacity = integer_demand(instance)
        vehicles = min(instance.n, math.ceil(1.2 * int(demand.sum()) / capacity) + 3)
    manager = pywrapcp.RoutingIndexManager(len(distances), vehicles, 0)
    routing = pywrapcp.RoutingModel(manager)
    routing.SetArcCostEvaluatorOfAllVehicles(routing.RegisterTransitMatrix(distances.tolist()))
    if demand is not None:
        load = routing.RegisterUnaryTransitVector([0, *demand.tolist()])
        routing.AddDimension(load, 0, capacity, True, "load")
    limit = params["solutions"] or 100 + instance.n
    found = routing.SolveWithParameters(_settings(limit, time_limit, params, cvrp=demand is not None))
    return _routes(manager, routing, found, vehicles) if found else []


def _settings(solutions: int, time_limit: float | None, params: dict[str, Any], *, cvrp: bool) -> Any:
    from ortools.constraint_solver import pywrapcp, routing_enums_pb2

    settings = pywrapcp.DefaultRoutingSearchParameters()
    first = routing_enums_pb2.FirstSolutionStrategy
    settings.first_solution_strategy = first.SAVINGS if cvrp else first.PATH_CHEAPEST_ARC
    heuristics = routing_enums_pb2.LocalSearchMetaheuristic
    settings.local_search_metaheuristic = getattr(heuristics, METAHEURISTICS[params["metaheuristic"]])
    if time_limit is None:
        settings.solution_limit = solutions
    else:
        settings.time_limit.FromNanoseconds(int(time_limit * 1e9))
    return settings


def _routes(manager: Any, routing: Any, found: Any, vehicles: int) -> list[NDArray[np.int64]]:
    routes = []
    for vehicle in range(vehicles):
        index = found.Value(routing.NextVar(routing.Start(vehicle)))
        nodes = []
        while not routing.IsEnd(index):
            nodes.append(manager.IndexToNode(index))
            index = found.Value(routing.NextVar(index))
        if nodes:
            routes.append(np.array(nodes))
    return routes
