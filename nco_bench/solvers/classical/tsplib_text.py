"""Problem files for LKH and Concorde. Both understand TSPLIB's rules, so library instances keep theirs.

Unrounded Euclidean instances are moved and scaled so that the larger extent is `EXTENT`, and rounded: each edge is off
by at most one millionth of the extent or so, and an optimum is proven for the rounded instance. The tour is scored on
the raw coordinates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.distances import EARTH_RADIUS_KM
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.small import all_points, distance_matrix

EXTENT = 1_000_000
"""Largest coordinate after scaling; its square root of 2 times LKH's precision of 100 still fits into an int."""

FIXED_EDGE_FACTOR = 4
"""Bound of the weights with `_with_fixed_edges`: both ends of an edge may belong to two fixed edges."""

EDGE_WEIGHT_TYPES = {
    "euclidean": "EUC_2D",
    "tsplib-nint": "EUC_2D",
    "cvrplib-nint": "EUC_2D",
    "ceil": "CEIL_2D",
    "att": "ATT",
    "geo": "GEO",
    "manhattan": "MAN_2D",
    "maximum": "MAX_2D",
}


def scaled_points(points: NDArray[np.float64], convention: str) -> NDArray[np.float64]:
    """Return coordinates for the file: scaled and rounded for ``euclidean``, raw otherwise."""
    if convention != "euclidean":
        return points
    low = points.min(0)
    extent = float((points.max(0) - low).max())
    return np.rint((points - low) * (EXTENT / extent if extent else 1.0))


def whole_matrix(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return integer distances: as they are if they are whole numbers, else scaled to at most `EXTENT`."""
    if (matrix == np.rint(matrix)).all():
        return matrix.astype(np.int64)
    return np.rint(matrix * (EXTENT / np.abs(matrix).max())).astype(np.int64)


def tsp_text(instance: TSPInstance) -> str:
    """Return the TSPLIB file of an instance.

    Fixed edges become costs, in a matrix: Concorde ignores FIXED_EDGES_SECTION and elkai crashes on it.
    """
    lines = ["NAME : p", "TYPE : TSP", f"DIMENSION : {instance.n}"]
    if instance.convention == "explicit" or instance.fixed_edges:
        matrix = whole_matrix(distance_matrix(instance))
        lines += _matrix_lines(_with_fixed_edges(matrix, instance.fixed_edges))
    else:
        lines += _coordinate_lines(
            scaled_points(all_points(instance), instance.convention), instance.convention
        )
    return "\n".join([*lines, "EOF", ""])


def cvrp_text(
    instance: CVRPInstance, demand: NDArray[np.int64], capacity: int, vehicles: int | None = None
) -> str:
    """Return the TSPLIB file of a CVRP; node 1 is the depot.

    Parameters
    ----------
    instance
        The instance; without a limit on route lengths.
    demand, capacity
        Whole numbers, see `integer_demand`.
    vehicles
        Number of vehicles; LKH takes the smallest number that the demands allow otherwise.
    """
    lines = ["NAME : p", "TYPE : CVRP", f"DIMENSION : {instance.n + 1}", f"CAPACITY : {capacity}"]
    if vehicles is not None:
        lines.append(f"VEHICLES : {vehicles}")
    if instance.convention == "explicit":
        lines += _matrix_lines(whole_matrix(distance_matrix(instance)))
    else:
        lines += _coordinate_lines(
            scaled_points(all_points(instance), instance.convention), instance.convention
        )
    lines += ["DEMAND_SECTION", "1 0"]
    lines += [f"{k} {q}" for k, q in enumerate(demand.tolist(), start=2)]
    return "\n".join([*lines, "DEPOT_SECTION", "1", "-1", "EOF", ""])


def _coordinate_lines(points: NDArray[np.float64], convention: str) -> list[str]:
    lines = [f"EDGE_WEIGHT_TYPE : {EDGE_WEIGHT_TYPES[convention]}", "NODE_COORD_SECTION"]
    if (points == np.rint(points)).all() and np.abs(points).max() < 2**53:
        rows = points.astype(np.int64).tolist()
    else:
        rows = points.tolist()
    return lines + [f"{k} {x!r} {y!r}" for k, (x, y) in enumerate(rows, start=1)]


def _matrix_lines(matrix: NDArray[np.int64]) -> list[str]:
    lines = ["EDGE_WEIGHT_TYPE : EXPLICIT", "EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION"]
    return lines + [" ".join(map(str, row)) for row in matrix.tolist()]


def _with_fixed_edges(matrix: NDArray[np.int64], edges: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Make all other edges at the ends of a fixed edge dearer, by more than a tour can save by leaving it out.

    A tour that holds the edge pays the extra twice, another one four times; moving one end beside the other lengthens a
    tour by at most two longest edges. All other edges stay as they are.
    """
    if not edges:
        return matrix
    extra = int(matrix.max()) + 1
    raised = matrix.copy()
    for a, b in edges:
        kept = raised[a, b]
        for node in (a, b):
            raised[node, :] += extra
            raised[:, node] += extra
        raised[a, b] = raised[b, a] = kept
    np.fill_diagonal(raised, 0)
    return raised


def largest_weight(instance: TSPInstance | CVRPInstance) -> float:
    """Upper bound of the weights in the instance's file."""
    if instance.convention == "geo":
        largest = np.pi * EARTH_RADIUS_KM
    elif instance.convention == "explicit":
        assert instance.matrix is not None
        largest = float(whole_matrix(instance.matrix).max())
    else:
        points = scaled_points(all_points(instance), instance.convention)
        # Manhattan distances are at most sqrt(2) times as long.
        largest = 1.5 * float(np.hypot(*(points.max(0) - points.min(0))))
    fixed = isinstance(instance, TSPInstance) and bool(instance.fixed_edges)
    return largest * (1 + FIXED_EDGE_FACTOR) if fixed else largest
