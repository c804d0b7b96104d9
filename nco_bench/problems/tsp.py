"""The symmetric travelling salesman problem: instances, feasibility and cost.

Instance: N >= 2 nodes, given by coordinates and a distance convention, or by an explicit matrix.
Solution: a permutation of 0..N-1, any start, either direction.
Cost: length of the closed tour under the instance's convention, float64. Lower is better. Fixed edges must be in the
tour and are not counted: TSPLIB's only instance with one, linhp318, is a Hamiltonian path problem that the edge
closes, and its published optimum 41345 is the length of the path (with the edge, 3869, it would be 45214).

Version history: 1 (first).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.distances import EdgeRule, coordinate_fault, cycle_length, edge_rule, matrix_fault

NAME = "tsp"
VERSION = "1"
OBJECTIVE = "min"


@dataclass(frozen=True, eq=False)
class TSPInstance:
    """One TSP instance.

    Attributes
    ----------
    name
        Unique within its dataset.
    coords
        ``(N, 2)`` float64 raw coordinates; for a matrix instance its display data or None.
    convention
        Name of the distance rule, see `nco_bench.problems.distances`; ``explicit`` reads `matrix`.
    matrix
        ``(N, N)`` float64 distances, not negative and the same both ways, for the convention ``explicit`` only.
    fixed_edges
        Pairs of nodes that a tour must join (TSPLIB's FIXED_EDGES_SECTION, linhp318).
    """

    name: str
    coords: NDArray[np.float64] | None
    convention: str = "euclidean"
    matrix: NDArray[np.float64] | None = None
    fixed_edges: tuple[tuple[int, int], ...] = ()
    problem: str = field(default=NAME, init=False)

    def __post_init__(self) -> None:
        # The referee computes in float64, whatever precision the coordinates came in.
        if self.coords is not None:
            object.__setattr__(self, "coords", np.asarray(self.coords, dtype=np.float64))
        if self.matrix is not None:
            object.__setattr__(self, "matrix", np.asarray(self.matrix, dtype=np.float64))
        if self.convention == "explicit":
            self._check_matrix()
        else:
            edge_rule(self.convention)
            if self.coords is None:
                raise BadInputError(f"{self.name}: convention {self.convention!r} needs coordinates.")
        if self.coords is not None:
            self._check_coordinates(self.coords)
        if self.n < 2:
            raise BadInputError(f"{self.name}: a TSP instance needs at least 2 nodes, this one has {self.n}.")

    def _check_matrix(self) -> None:
        if self.matrix is None:
            raise BadInputError(f"{self.name}: convention 'explicit' needs a distance matrix.")
        if self.matrix.ndim != 2 or self.matrix.shape[0] != self.matrix.shape[1]:
            raise BadInputError(
                f"{self.name}: the distance matrix has shape {self.matrix.shape}; expected (N, N)."
            )
        fault = matrix_fault(self.matrix)
        if fault is not None:
            raise BadInputError(f"{self.name}: {fault}; expected numbers >= 0.")
        if not np.array_equal(self.matrix, self.matrix.T):
            a, b = np.argwhere(self.matrix != self.matrix.T)[0]
            raise BadInputError(
                f"{self.name}: the distance from node {a} to node {b} is {self.matrix[a, b]:g}, and "
                f"{self.matrix[b, a]:g} the other way; expected a symmetric matrix."
            )

    def _check_coordinates(self, coords: NDArray[np.float64]) -> None:
        if coords.ndim != 2 or coords.shape[1] != 2:
            raise BadInputError(f"{self.name}: the coordinates have shape {coords.shape}; expected (N, 2).")
        if self.matrix is not None and len(coords) != len(self.matrix):
            raise BadInputError(
                f"{self.name}: {len(coords)} coordinates for a matrix of {len(self.matrix)} nodes."
            )
        fault = coordinate_fault(coords)
        if fault is not None:
            raise BadInputError(f"{self.name}: the coordinates of node {fault[0]} {fault[1]}.")

    @property
    def n(self) -> int:
        """Number of nodes."""
        if self.matrix is not None:
            return len(self.matrix)
        return 0 if self.coords is None else len(self.coords)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the instance, for hashing and storage."""
        out: dict[str, NDArray[Any]] = {}
        if self.coords is not None:
            out["coords"] = self.coords
        if self.matrix is not None:
            out["matrix"] = self.matrix
        if self.fixed_edges:
            out["fixed_edges"] = np.asarray(self.fixed_edges, dtype=np.int64)
        return out


def from_arrays(name: str, convention: str, arrays: Mapping[str, NDArray[Any]]) -> TSPInstance:
    """Build an instance from its arrays; undoes `TSPInstance.arrays`."""
    fixed = tuple((int(a), int(b)) for a, b in arrays.get("fixed_edges", ()))
    return TSPInstance(name, arrays.get("coords"), convention, arrays.get("matrix"), fixed)


def violations(instance: TSPInstance, solution: NDArray[np.integer]) -> tuple[str, ...]:
    """Say what is wrong with a tour; empty for a feasible one.

    Parameters
    ----------
    instance
        The instance.
    solution
        Candidate tour; any array is accepted and judged.
    """
    tour = np.asarray(solution)
    n = instance.n
    if tour.ndim != 1 or not np.issubdtype(tour.dtype, np.integer):
        return (f"a tour is a flat array of integers, got {tour.dtype} with shape {tour.shape}",)
    if len(tour) != n:
        return (f"{len(tour)} visits for {n} nodes",)
    if tour.min() < 0 or tour.max() >= n:
        return (f"node {int(tour[(tour < 0) | (tour >= n)][0])} is outside 0..{n - 1}",)
    tour = tour.astype(np.int64, copy=False)
    visits = np.bincount(tour, minlength=n)
    if visits.max() != 1:  # n visits of n nodes: one twice is one missing
        twice, missing = int(visits.argmax()), int(visits.argmin())
        return (f"node {twice} is visited {int(visits[twice])} times, node {missing} never",)
    return _missing_fixed_edges(instance, tour)


def _missing_fixed_edges(instance: TSPInstance, tour: NDArray[np.integer]) -> tuple[str, ...]:
    if not instance.fixed_edges:
        return ()
    position = np.empty(instance.n, dtype=np.int64)
    position[tour] = np.arange(instance.n)
    apart = [
        (a, b)
        for a, b in instance.fixed_edges
        if (position[a] - position[b]) % instance.n not in (1, instance.n - 1)
    ]
    return tuple(f"the fixed edge {a}-{b} is not in the tour" for a, b in apart)


def score(instance: TSPInstance, solution: NDArray[np.integer]) -> float:
    """Length of a feasible tour, recomputed in float64 from the raw instance.

    Parameters
    ----------
    instance
        The instance.
    solution
        ``(N,)`` permutation of the nodes; check with `violations` first.
    """
    if instance.convention == "explicit":
        assert instance.matrix is not None
        length = float(instance.matrix[solution, np.roll(solution, -1)].sum())
    else:
        assert instance.coords is not None
        length = cycle_length(instance.coords, solution, instance.convention)
    return length - sum(_edge_length(instance, a, b) for a, b in instance.fixed_edges)


def _edge_length(instance: TSPInstance, a: int, b: int) -> float:
    if instance.matrix is not None:
        return float(instance.matrix[a, b])
    assert instance.coords is not None
    return float(edge_rule(instance.convention)(instance.coords[[a]], instance.coords[[b]])[0])


BATCH_NODES = 1_000_000
"""Largest number of nodes that `score_batch` takes, to bound its memory."""
NODES_AT_ONCE = 3200
"""Nodes whose lengths are taken together: larger intermediate arrays get fresh memory every time, which takes longer."""


def score_batch(instances: Sequence[TSPInstance], tours: Sequence[Any]) -> NDArray[np.float64] | None:
    """Score a batch of tours at once: the costs that `score` gives, at a tenth of the time per instance.

    Parameters
    ----------
    instances
        Instances.
    tours
        One candidate each; anything is accepted.

    Returns
    -------
    NDArray or None
        ``(B,)`` costs; None where the batch must be judged one by one: other sizes or conventions among the instances,
        a matrix, a fixed edge, or a tour that is not feasible.
    """
    n, convention = instances[0].n, instances[0].convention
    plain = convention != "explicit" and len(instances) * n <= BATCH_NODES
    if not plain or any(i.n != n or i.convention != convention or i.fixed_edges for i in instances):
        return None
    if any(not isinstance(t, np.ndarray) or t.shape != (n,) or t.dtype.kind not in "iu" for t in tours):
        return None
    table = np.array(tours, dtype=np.int64)  # all of one shape; uint64 beside int64 would become float64
    if (np.sort(table, axis=1) != np.arange(n)).any():
        return None
    size = max(1, NODES_AT_ONCE // n)
    parts = [slice(i, i + size) for i in range(0, len(instances), size)]
    return np.concatenate([_lengths(instances[part], table[part], edge_rule(convention)) for part in parts])


def _lengths(
    instances: Sequence[TSPInstance], table: NDArray[np.integer], rule: EdgeRule
) -> NDArray[np.float64]:
    """Return the lengths of feasible tours ``(B, N)`` of instances of one size, with coordinates."""
    n = table.shape[1]
    coords = np.array([i.coords for i in instances if i.coords is not None])
    # All x in one block and all y in another: rules work on them at several times the speed.
    planes = coords.transpose(2, 0, 1).reshape(2, -1)
    places = table + n * np.arange(len(table))[:, None]
    visited = np.stack([plane.take(places) for plane in planes])
    ends = np.roll(visited, -1, axis=2)
    return rule(visited.transpose(1, 2, 0), ends.transpose(1, 2, 0)).sum(axis=1)
