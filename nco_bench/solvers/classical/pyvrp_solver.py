"""PyVRP (Wouda, Lan and Kool, 2024), for CVRP and TSP.

It stops after ``iterations`` iterations (then the same seed gives the same solution) or at the time limit (then how
far it gets depends on the machine). PyVRP counts in integers: unrounded distances are scaled so that the largest is
10^5 (its penalties do not adapt to larger numbers in time), whole ones stay as they are. It keeps an N x N matrix, so
N is limited.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.distances import euclidean
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Failure, Solved
from nco_bench.solvers.small import (
    all_points,
    distance_matrix,
    easy_routes,
    easy_tour,
    integer_demand,
    join_fixed_edges,
    join_routes,
)

LARGEST = 100_000


class PyVRP(ChildSolver):
    """PyVRP for CVRP and TSP."""

    NAME = "pyvrp"
    SOLVE = "nco_bench.solvers.classical.pyvrp_solver:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {"iterations": (int, 2_000)}
    MAX_N: ClassVar[dict[str, int]] = {"cvrp": 20_000, "tsp": 20_000}
    GRACE = (1.1, 5.0)


def warm_up(params: dict[str, Any]) -> None:
    """Import the package before the clock starts."""
    import pyvrp  # noqa: F401


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Run PyVRP on one instance; runs in the child."""
    import pyvrp
    from pyvrp.stop import MaxIterations, MaxRuntime

    easy = easy_routes(instance) if isinstance(instance, CVRPInstance) else easy_tour(instance, up_to=5)
    if easy is not None:
        return easy
    stop = MaxRuntime(time_limit) if time_limit is not None else MaxIterations(params["iterations"])
    data = _routing(instance) if isinstance(instance, CVRPInstance) else _tour(instance)
    result = pyvrp.solve(data, stop=stop, seed=seed % 2**32, collect_stats=False, display=False)
    if not result.is_feasible():
        return Failure("timeout" if time_limit is not None else "failed", "PyVRP found no feasible solution")
    routes = [_clients(route) for route in result.best.routes()]
    if isinstance(instance, CVRPInstance):
        return join_routes([route + 1 for route in routes])
    return join_fixed_edges(instance, np.concatenate([[0], *(route + 1 for route in routes)]))


def _clients(route: Any) -> NDArray[np.int64]:
    """Return the clients of a route, counted from 0 without the depot."""
    return np.array([visit.idx for visit in route if visit.is_client()], dtype=np.int64)


def whole_distances(matrix: NDArray[np.float64]) -> Any:
    """Return ``(N, N)`` integer distances: as they are if whole, else scaled so that the largest is `LARGEST`."""
    largest = float(matrix.max())
    if not largest or (matrix == np.rint(matrix)).all():
        return matrix.astype(np.int64)
    return np.rint(matrix * (LARGEST / largest)).astype(np.int64)


def _routing(instance: CVRPInstance) -> Any:
    import pyvrp

    demand, capacity = integer_demand(instance)
    distances = whole_distances(distance_matrix(instance))
    durations: Any = np.zeros_like(distances)
    limit: dict[str, Any] = {}
    if instance.max_route_length is not None:
        # The limit is on unrounded lengths, whatever the costs are: it becomes a shift of real durations, rounded up.
        points = all_points(instance)
        scale = LARGEST / instance.max_route_length
        durations = np.stack([np.ceil(euclidean(points, p) * scale) for p in points]).astype(np.int64)
        np.fill_diagonal(durations, 0)
        limit = {"shift_duration": LARGEST}
    vehicles = [pyvrp.VehicleType(instance.n, capacity=[capacity], **limit)]
    clients = [pyvrp.Client(k, delivery=[int(q)]) for k, q in enumerate(demand, start=1)]
    return pyvrp.ProblemData(
        _locations(instance), clients, [pyvrp.Depot(0)], vehicles, [distances], [durations]
    )


def _tour(instance: TSPInstance) -> Any:
    import pyvrp

    distances = whole_distances(distance_matrix(instance))
    durations: Any = np.zeros_like(distances)
    clients = [pyvrp.Client(k) for k in range(1, instance.n)]
    return pyvrp.ProblemData(
        _locations(instance), clients, [pyvrp.Depot(0)], [pyvrp.VehicleType(1)], [distances],
        [durations],
    )  # fmt: skip


def _locations(instance: TSPInstance | CVRPInstance) -> list[Any]:
    """Return PyVRP's locations; matrix instances without display data get none that mean anything."""
    import pyvrp

    nodes = instance.n + (1 if isinstance(instance, CVRPInstance) else 0)
    known = instance.depot if isinstance(instance, CVRPInstance) else instance.coords
    points = all_points(instance) if known is not None else np.zeros((nodes, 2))
    return [pyvrp.Location(float(x), float(y)) for x, y in points]
