"""Fixed learning test sets: ``NAME.npz`` with solutions.

TSP: ``coords (B, N, 2)``, ``tour (B, N)`` 0-based, ``cost (B,)``. CVRP: ``coords`` of the customers, ``depot (B, 2)``,
``demand (B, N)``, ``capacity (B,)``, ``routes (B, L)`` as 0, customers, 0, ..., zero padded, ``cost``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets import catalog
from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import cvrp_instance, whole
from nco_bench.datasets.formats.reading import read_npz, stem
from nco_bench.datasets.formats.rl4co import batch
from nco_bench.datasets.formats.values import points
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance


def read(path: Path, convention: str | None = None) -> Dataset:
    """Read a test set; the stated costs are checked against recomputed ones.

    Parameters
    ----------
    path
        The .npz file.
    convention
        Distance rule of its costs; by default the catalogue's for a set of this name, else ``euclidean``.
    """
    if convention is None:
        known = {entry.name: entry.convention for entry in catalog.testsets()}
        convention = known.get(stem(path), "euclidean")
    arrays = read_npz(path)
    coords = batch(arrays, "coords", 3, path)
    count = len(coords)
    costs = batch(arrays, "cost", 1, path, count).tolist() if "cost" in arrays else None
    names = instance_names(arrays, stem(path), count)
    instances: list[Instance]
    solutions: list[NDArray[np.int64]] | None
    if "demand" in arrays:
        depot = batch(arrays, "depot", 2, path, count)
        demand = batch(arrays, "demand", 2, path, count)
        capacity = batch(arrays, "capacity", 1, path, count)
        instances = [
            cvrp_instance(
                names[i],
                depot[i],
                coords[i],
                demand[i],
                capacity[i : i + 1],
                f"{path}: instance {i}",
                convention,
            )
            for i in range(count)
        ]
        solutions = (
            [trim(row) for row in _integers(arrays, "routes", path, count)] if "routes" in arrays else None
        )
    else:
        instances = [
            TSPInstance(names[i], points(coords[i], f"{path}: {names[i]}"), convention) for i in range(count)
        ]
        solutions = list(_integers(arrays, "tour", path, count)) if "tour" in arrays else None
    return whole(path, "testset", instances, solutions, costs)


def instance_names(arrays: dict[str, NDArray[Any]], default: str, count: int) -> list[str]:
    """``SET/name`` where the file holds names, else ``SET/index``."""
    names = arrays.get("name")
    if names is not None and names.shape == (count,) and names.dtype.kind in "SU":
        texts = [str(name) for name in names.astype("U")]
        if len(set(texts)) == count:
            return [f"{default}/{text}" for text in texts]
    return [f"{default}/{i}" for i in range(count)]


def _integers(arrays: dict[str, NDArray[Any]], key: str, path: Path, count: int) -> NDArray[np.int64]:
    array = batch(arrays, key, 2, path, count)
    if array.dtype.kind not in "iu":
        raise BadInputError(f"{path}: {key!r} is {array.dtype}; expected whole numbers.")
    return array.astype(np.int64)


def trim(sequence: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop the padding: keep one 0 at the end."""
    used = np.flatnonzero(sequence)
    return sequence[:2] if not used.size else np.append(sequence[: used[-1] + 1], 0)
