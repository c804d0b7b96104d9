"""HGS-CVRP (Vidal, 2022): hybrid genetic search with the SWAP* neighbourhood, by the package hygese.

It stops after ``iterations`` iterations without improvement (20,000, its own default; then the same seed gives the
same solution) or, with a time limit, restarts until the time is up, as its authors run it; how far it then gets
depends on the machine, so a time-limited run does not repeat bit for bit. HGS counts processor time; its child is
killed only at four times the limit, in which waiting for a processor does not count.

HGS wants edges between 0.1 and 100,000. Coordinates of unrounded instances are scaled to an extent of 10,000, where
its float64 costs need no rounding; rounded ones are passed as they are and HGS rounds by floor(d + 0.5). Other
rules, and matrices, go in as a distance matrix. Limits on route lengths become its duration constraint (it measures
durations in its own distances, so under a rounding rule the limit holds for rounded lengths).

HGS keeps all distances: 20,000 customers take 4 GB, 50,000 take 23 GB and 100,000 take 90 GB. What the machine's memory
cannot hold is refused before anything is solved; it was tried up to 20,000 customers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import psutil
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Failure, Solved
from nco_bench.solvers.small import (
    all_points,
    distance_matrix,
    easy_routes,
    integer_demand,
    join_routes,
)

EXTENT = 10_000.0
LARGEST_EDGE = 100_000.0
LARGEST_DEMAND = 10_000
ROUNDED = ("tsplib-nint", "cvrplib-nint")
NO_IMPROVEMENT = 20_000
NEVER = 2**31 - 1
BYTES_PER_PAIR = 9
"""Of customers, measured at 5,000: distances and little else, where vehicles are few."""
COPIES = 4
"""Where distances go in as a matrix, there are some more of it on the way."""


class HGS(ChildSolver):
    """HGS-CVRP for the CVRP."""

    NAME = "hgs"
    SOLVE = "nco_bench.solvers.classical.hgs:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {
        "iterations": (int, NO_IMPROVEMENT),
        "granular": (int, 20),
        "population": (int, 25),
        "generation": (int, 40),
    }
    GRACE = (
        4.0,
        8.0,
    )  # HGS looks at its clock between iterations only, and where nobody counts waiting it lags

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse limits on route lengths under a rule that HGS would apply to them too, and more than memory holds."""
        limited = [i for i in dataset if getattr(i, "max_route_length", None) is not None]
        if any(i.convention != "euclidean" for i in limited):
            return f"{self.NAME} limits rounded route lengths, but {dataset.name} limits unrounded ones"
        largest = dataset.sizes[1]
        by_matrix = any(i.convention not in ("euclidean", *ROUNDED) for i in dataset)
        needed = BYTES_PER_PAIR * largest**2 * (COPIES if by_matrix else 1)
        if needed > (memory := psutil.virtual_memory().total):
            return (
                f"{self.NAME} keeps all distances: the {largest:,} customers of {dataset.name} need "
                f"{needed / 2**30:,.0f} GiB of memory, this machine has {memory / 2**30:,.0f}"
            )
        return super().check(dataset, backend)


def warm_up(params: dict[str, Any]) -> None:
    """Load the library before the clock starts."""
    import hygese

    hygese.Solver(parameters=hygese.AlgorithmParameters(nbIter=1), verbose=False)


def solve(
    instance: CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Run HGS on one instance; runs in the child."""
    import hygese

    easy = easy_routes(instance)
    if easy is not None:
        return easy
    settings = hygese.AlgorithmParameters(
        nbGranular=params["granular"],
        mu=params["population"],
        lambda_=params["generation"],
        seed=seed % NEVER,
        nbIter=params["iterations"],
        timeLimit=time_limit or 0.0,
    )
    data, rounding = _problem(instance)
    found = hygese.Solver(parameters=settings, verbose=False).solve_cvrp(data, rounding=rounding)
    if not found.routes:
        return Failure("timeout" if time_limit else "failed", "HGS found no feasible solution")
    return join_routes([np.asarray(route) for route in found.routes])


def _problem(instance: CVRPInstance) -> tuple[dict[str, Any], bool]:
    """Return hygese's data and whether HGS is to round distances."""
    demand, capacity = integer_demand(instance)
    if not demand.any():  # HGS refuses such a scale; with a vehicle that holds all, any routes fit as well
        demand, capacity = np.ones_like(demand), instance.n
    # Whole loads stay apart by far more than HGS's tolerance of 1e-5 after this scaling.
    shrink = min(1.0, LARGEST_DEMAND / int(demand.max() or 1))
    data: dict[str, Any] = {
        "depot": 0,
        "demands": np.concatenate([[0], demand]) * shrink,
        "vehicle_capacity": capacity * shrink,
    }
    scale = 1.0
    points = np.zeros((1, 2)) if instance.depot is None else all_points(instance)
    points = points - points.min(0)
    small = float(np.hypot(*points.max(0))) <= LARGEST_EDGE
    if instance.convention == "euclidean" or (instance.convention in ROUNDED and small):
        if instance.convention == "euclidean":
            scale = EXTENT / float(points.max())
        data["x_coordinates"], data["y_coordinates"] = (points * scale).T.copy()
        rounding = instance.convention != "euclidean"
    else:
        matrix = distance_matrix(instance)
        scale = min(1.0, LARGEST_EDGE / float(matrix.max() or 1.0))
        data["distance_matrix"], rounding = matrix * scale, False
    if instance.max_route_length is not None:
        data["duration_limit"] = instance.max_route_length * scale
    # HGS's default fleet may be too tight for tours of few large demands; unused vehicles cost nothing.
    data["num_vehicles"] = min(instance.n, int(np.ceil(1.3 * demand.sum() / capacity)) + 10)
    return data, rounding
