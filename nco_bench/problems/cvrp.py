"""The capacitated vehicle routing problem: instances, feasibility and cost.

Instance: one depot (node 0), N >= 1 customers (nodes 1..N) with demands, one vehicle capacity, any number of
vehicles. Golden 1-8 and Li also limit the length of a route.
Solution: the node sequence with 0 for each depot visit, ``[0, 3, 1, 0, 2, 0]``; it starts and ends with 0.
Consecutive zeros are an empty route: tolerated, and free of charge under every convention (solvers pad with them).
Feasibility: every customer exactly once; no route carries more than the capacity. Integer demands are compared
exactly, real demands with a relative tolerance of `LOAD_TOLERANCE`. Where the instance limits route lengths, the
unrounded length of each route counts, whatever the convention, with a relative tolerance of `LENGTH_TOLERANCE`.
Cost: total length of all routes under the instance's convention, float64. Lower is better.
Generation: `nco_bench.datasets.generate`.
References: Dantzig and Ramser (1959); Uchoa et al. (2017) for CVRPLIB's rules.

Version history: 1 (first).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.distances import coordinate_fault, edge_rule, euclidean, matrix_fault

NAME = "cvrp"
VERSION = "1"
OBJECTIVE = "min"

LOAD_TOLERANCE = 1e-9
"""Relative excess of a load that rounding of real demands may cause; integer demands get none."""

LENGTH_TOLERANCE = 1e-9
"""Relative excess of a route length that float64 summation may cause."""

LARGEST_LOAD = 2**53
"""Sum of whole demands up to which loads are exact, also beside a capacity in float64; much further on they overflow."""

SHOWN_ROUTES = 5
"""Overloaded routes named one by one; more are counted."""


@dataclass(frozen=True, eq=False)
class CVRPInstance:
    """One CVRP instance. Messages and solutions number customers from 1, arrays hold customer k at index k - 1.

    Attributes
    ----------
    name
        Unique within its dataset.
    depot
        ``(2,)`` float64 raw coordinates, or None for a matrix instance without display data.
    customers
        ``(N, 2)`` float64 raw coordinates, or None likewise.
    demand
        ``(N,)`` int64 or float64, not negative.
    capacity
        Of each vehicle, in units of demand; whole where the source is.
    convention
        Name of the distance rule, see `nco_bench.problems.distances`; ``explicit`` reads `matrix`.
    matrix
        ``(N + 1, N + 1)`` float64 distances, not negative, the depot first, for the convention ``explicit`` only.
    max_route_length
        Limit of the unrounded length of one route, or None.

    Raises
    ------
    BadInputError
        For missing or non-finite coordinates, shapes that do not fit, a negative or non-finite demand, a demand
        above the capacity (names the customer), whole demands whose sum is beyond `LARGEST_LOAD`, a capacity that is not
        a positive number.
    """

    name: str
    depot: NDArray[np.float64] | None
    customers: NDArray[np.float64] | None
    demand: NDArray[Any]
    capacity: float
    convention: str = "euclidean"
    matrix: NDArray[np.float64] | None = None
    max_route_length: float | None = None
    problem: str = field(default=NAME, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "demand", _checked_demand(self.name, self.demand))
        object.__setattr__(self, "capacity", _checked_capacity(self.name, self.capacity, self.demand))
        # The referee computes in float64, whatever precision the coordinates came in.
        for key in ("depot", "customers", "matrix"):
            value = getattr(self, key)
            if value is not None:
                object.__setattr__(self, key, np.asarray(value, dtype=np.float64))
        if (self.depot is None) != (self.customers is None):
            raise BadInputError(
                f"{self.name}: give coordinates for both the depot and the customers, or for neither."
            )
        if self.depot is not None and self.customers is not None:
            self._check_coordinates(self.depot, self.customers)
        if self.convention == "explicit":
            self._check_matrix()
        else:
            edge_rule(self.convention)
            if self.customers is None:
                raise BadInputError(f"{self.name}: convention {self.convention!r} needs coordinates.")
        limit = self.max_route_length
        if limit is not None and not (np.isfinite(limit) and limit > 0):
            raise BadInputError(
                f"{self.name}: the limit of route lengths is {limit}; expected a positive number."
            )

    def _check_coordinates(self, depot: NDArray[np.float64], customers: NDArray[np.float64]) -> None:
        if depot.shape != (2,) or customers.shape != (self.n, 2):
            raise BadInputError(
                f"{self.name}: depot of shape {depot.shape} and customers of shape {customers.shape} for "
                f"{self.n} demands; expected (2,) and ({self.n}, 2)."
            )
        fault = coordinate_fault(depot[None])
        if fault is not None:
            raise BadInputError(f"{self.name}: the coordinates of the depot {fault[1]}.")
        fault = coordinate_fault(customers)
        if fault is not None:
            raise BadInputError(f"{self.name}: the coordinates of customer {fault[0] + 1} {fault[1]}.")

    def _check_matrix(self) -> None:
        if self.matrix is None:
            raise BadInputError(f"{self.name}: convention 'explicit' needs a distance matrix.")
        if self.matrix.shape != (self.n + 1, self.n + 1):
            raise BadInputError(
                f"{self.name}: distance matrix of shape {self.matrix.shape} for {self.n} customers; "
                f"expected ({self.n + 1}, {self.n + 1}), depot first."
            )
        fault = matrix_fault(self.matrix)
        if fault is not None:
            raise BadInputError(f"{self.name}: {fault}; expected numbers >= 0.")

    @property
    def n(self) -> int:
        """Number of customers."""
        return len(self.demand)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the instance, for hashing and storage."""
        out: dict[str, NDArray[Any]] = {
            "demand": self.demand,
            "capacity": np.array(self.capacity, dtype=np.float64),
        }
        if self.depot is not None and self.customers is not None:
            out["depot"] = self.depot
            out["customers"] = self.customers
        if self.matrix is not None:
            out["matrix"] = self.matrix
        if self.max_route_length is not None:
            out["max_route_length"] = np.array(self.max_route_length, dtype=np.float64)
        return out


def _checked_demand(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return the demands as int64 or float64."""
    demand = np.asarray(values)
    if demand.ndim != 1 or demand.dtype.kind not in "iuf":
        raise BadInputError(
            f"{name}: demands are a flat array of numbers, got {demand.dtype} of shape {demand.shape}."
        )
    if not len(demand):
        raise BadInputError(f"{name}: a CVRP instance needs at least 1 customer, this one has none.")
    demand = demand.astype(np.float64 if demand.dtype.kind == "f" else np.int64, copy=False)
    smallest = demand.min()
    # The comparison is False for NaN, and a finite minimum does not exclude an infinite maximum.
    if smallest >= 0 and np.isfinite(demand.max()):
        if demand.dtype.kind == "i" and demand.sum(dtype=np.float64) > LARGEST_LOAD:
            raise BadInputError(f"{name}: the demands add up to more than {LARGEST_LOAD:,}; scale them down.")
        return demand
    bad = int(np.flatnonzero(~(np.isfinite(demand) & (demand >= 0)))[0])
    raise BadInputError(f"{name}: the demand of customer {bad + 1} is {demand[bad]}; expected a number >= 0.")


def _checked_capacity(name: str, value: float, demand: NDArray[Any]) -> float:
    capacity = float(value)
    if not (np.isfinite(capacity) and capacity > 0):
        raise BadInputError(f"{name}: the capacity is {value}; expected a positive number.")
    if demand.max() > _load_limit(capacity, demand):
        largest = int(demand.argmax())
        raise BadInputError(
            f"{name}: the demand of customer {largest + 1} is {demand[largest]}, above the capacity {capacity:g}; "
            "no vehicle can serve it."
        )
    return capacity


def _load_limit(capacity: float, demand: NDArray[Any]) -> float:
    return capacity if demand.dtype.kind == "i" else capacity * (1.0 + LOAD_TOLERANCE)


def from_arrays(name: str, convention: str, arrays: Mapping[str, NDArray[Any]]) -> CVRPInstance:
    """Build an instance from its arrays; undoes `CVRPInstance.arrays`."""
    limit = arrays.get("max_route_length")
    return CVRPInstance(
        name=name,
        depot=arrays.get("depot"),
        customers=arrays.get("customers"),
        demand=arrays["demand"],
        capacity=arrays["capacity"].item(),
        convention=convention,
        matrix=arrays.get("matrix"),
        max_route_length=None if limit is None else float(limit),
    )


def violations(instance: CVRPInstance, solution: NDArray[np.integer]) -> tuple[str, ...]:
    """Say what is wrong with a solution; empty for a feasible one. O(N) time and memory.

    Parameters
    ----------
    instance
        The instance.
    solution
        Candidate node sequence; any array is accepted and judged.

    Returns
    -------
    tuple of str
        One entry for a malformed sequence; else one for wrong visits and one per overloaded or overlong route.
    """
    sequence = np.asarray(solution)
    malformed = _malformed(instance, sequence)
    if malformed:
        return malformed
    sequence = sequence.astype(np.int64, copy=False)
    found = _wrong_visits(instance, sequence)
    starts = np.flatnonzero(sequence == 0)
    # Number routes as a reader counts them: empty ones have none.
    number = np.cumsum(np.diff(starts) > 1)
    loads = np.add.reduceat(_with_depot(instance.demand)[sequence], starts[:-1])
    over = np.flatnonzero(loads > _load_limit(instance.capacity, instance.demand))
    found += _listed(
        [f"route {number[r]} carries {loads[r]}, the capacity is {instance.capacity:g}" for r in over]
    )
    if instance.max_route_length is not None:
        lengths = np.add.reduceat(_edges(instance, sequence, "euclidean"), starts[:-1])
        limit = instance.max_route_length
        over = np.flatnonzero(lengths > limit * (1.0 + LENGTH_TOLERANCE))
        found += _listed(
            [f"route {number[r]} is {lengths[r]:.6f} long, the limit is {limit:g}" for r in over]
        )
    return tuple(found)


def _malformed(instance: CVRPInstance, sequence: NDArray[Any]) -> tuple[str, ...]:
    if not sequence.size:
        return ("the solution is empty",)
    if sequence.ndim != 1 or not np.issubdtype(sequence.dtype, np.integer):
        return (
            f"a solution is a flat array of integers with 0 for the depot, got {sequence.dtype} "
            f"with shape {sequence.shape}",
        )
    if len(sequence) < 2 or sequence[0] != 0 or sequence[-1] != 0:
        return ("a solution starts and ends at the depot (0)",)
    outside = (sequence < 0) | (sequence > instance.n)
    if outside.any():
        return (f"node {int(sequence[outside][0])} is outside 0..{instance.n}",)
    return ()


def _wrong_visits(instance: CVRPInstance, sequence: NDArray[np.int64]) -> list[str]:
    visits = np.bincount(sequence, minlength=instance.n + 1)[1:]
    if (visits == 1).all():
        return []
    missing, repeated = np.flatnonzero(visits == 0), np.flatnonzero(visits > 1)
    parts = []
    if len(repeated):
        first = int(repeated[0])
        others = f" (and {len(repeated) - 1} others more than once)" if len(repeated) > 1 else ""
        parts.append(f"customer {first + 1} is visited {int(visits[first])} times{others}")
    if len(missing):
        others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
        parts.append(f"customer {int(missing[0]) + 1}{others} is never visited")
    return [", ".join(parts)]


def _listed(messages: list[str]) -> list[str]:
    hidden = len(messages) - SHOWN_ROUTES
    return messages if hidden <= 0 else [*messages[:SHOWN_ROUTES], f"and {hidden} more routes likewise"]


def score(instance: CVRPInstance, solution: NDArray[np.integer]) -> float:
    """Total length of a feasible solution, recomputed in float64 from the raw instance. O(N) time and memory.

    Parameters
    ----------
    instance
        The instance.
    solution
        ``(L,)`` node sequence; check with `violations` first.
    """
    sequence = np.asarray(solution)
    edges = _edges(instance, sequence, instance.convention)
    # GEO gives a node a distance of 1 to itself, and a matrix may have any diagonal: an empty route is free.
    idle = (sequence[:-1] == 0) & (sequence[1:] == 0)
    return float(edges[~idle].sum()) if idle.any() else float(edges.sum())


def routes(solution: NDArray[np.integer]) -> list[NDArray[np.integer]]:
    """Split a node sequence into its routes, without the depot and without empty ones.

    Parameters
    ----------
    solution
        ``(L,)`` node sequence.

    Returns
    -------
    list of arrays
        The customers of each route in order of visit; views of `solution`.
    """
    sequence = np.asarray(solution)
    stops = np.flatnonzero(sequence == 0)
    bounds = [-1, *stops.tolist(), len(sequence)]
    return [sequence[a + 1 : b] for a, b in pairwise(bounds) if b > a + 1]


def _edges(instance: CVRPInstance, sequence: NDArray[np.integer], convention: str) -> NDArray[np.float64]:
    """Lengths of the ``L - 1`` edges of a node sequence; matrix instances have only the matrix's."""
    if instance.convention == "explicit":
        assert instance.matrix is not None
        return instance.matrix[sequence[:-1], sequence[1:]]
    assert instance.depot is not None
    assert instance.customers is not None
    points = np.concatenate([instance.depot[None], instance.customers])[sequence]
    rule = euclidean if convention == "euclidean" else edge_rule(convention)
    return rule(points[:-1], points[1:])


def _with_depot(demand: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(1, dtype=demand.dtype), demand])
