"""RL4CO .npz: TSP ``locs (B, N, 2)``; CVRP ``depot (B, 2)``, ``locs``, ``demand (B, N)``, ``capacity (B,)``, float32.

Demands are stored undivided; RL4CO divides them by the capacity when it loads. No solutions. Writing rounds to
float32, because RL4CO's networks expect it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import (
    FileWarning,
    check_problem,
    cvrp_instance,
    plain_cvrp,
    same_size,
    tsp_coords,
    whole,
)
from nco_bench.datasets.formats.reading import read_npz, shown, stem, write_npz
from nco_bench.datasets.formats.values import points
from nco_bench.errors import BadInputError, counted
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance


def read(path: Path) -> Dataset:
    """Read an RL4CO .npz of TSP or CVRP instances."""
    arrays = read_npz(path)
    locs = batch(arrays, "locs", 3, path)
    names = [f"{stem(path)}/{i}" for i in range(len(locs))]
    instances: list[Instance]
    if "demand" not in arrays:
        if "depot" in arrays:
            raise BadInputError(
                f"{path}: 'depot' without 'demand'; expected TSP (locs) or CVRP (locs, depot, demand)."
            )
        instances = [
            TSPInstance(name, points(row, f"{path}: {name}")) for name, row in zip(names, locs, strict=True)
        ]
        return whole(path, "rl4co", instances)
    count = len(locs)
    depot = batch(arrays, "depot", 2, path, count)
    demand = batch(arrays, "demand", 2, path, count)
    capacity = batch(arrays, "capacity", 1, path, count) if "capacity" in arrays else np.ones(count)
    instances = [
        cvrp_instance(names[i], depot[i], locs[i], demand[i], capacity[i : i + 1], f"{path}: {names[i]}")
        for i in range(count)
    ]
    return whole(path, "rl4co", instances)


def batch(
    arrays: dict[str, NDArray[Any]], key: str, ndim: int, path: Path, count: int | None = None
) -> NDArray[Any]:
    """Return an array of numbers with a batch axis; size-1 axes in excess are dropped; raises `BadInputError`."""
    if key not in arrays:
        raise BadInputError(
            f"{path}: the array {key!r} is missing; it holds {', '.join(map(shown, sorted(arrays))) or 'nothing'}."
        )
    array = arrays[key]
    while array.ndim > ndim and 1 in array.shape[1:]:
        array = np.squeeze(array, axis=1 + array.shape[1:].index(1))
    if array.ndim != ndim or array.dtype.kind not in "iuf":
        raise BadInputError(
            f"{path}: {key!r} is {array.dtype} of shape {array.shape}; expected numbers with {ndim} axes."
        )
    if not len(array):
        raise BadInputError(
            f"{path}: {key!r} is empty, of shape {array.shape}; expected at least one instance."
        )
    if count is not None and len(array) != count:
        raise BadInputError(
            f"{path}: {key!r} has {counted(len(array), 'row')} for {counted(count, 'instance')}."
        )
    return array


def write(dataset: Dataset, path: Path) -> None:
    """Write an RL4CO .npz; all instances need one size, and coordinates are rounded to float32."""
    check_problem(dataset, ["tsp", "cvrp"], "rl4co")
    if dataset.problem == "tsp":
        coords = tsp_coords(dataset, "rl4co")
        same_size(coords, dataset, "rl4co")
        exact = {"locs": np.stack(coords)}
    else:
        instances = plain_cvrp(dataset, "rl4co")
        same_size(instances, dataset, "rl4co")
        exact = {
            "depot": np.stack([i.depot for i in instances if i.depot is not None]),
            "locs": np.stack([i.customers for i in instances if i.customers is not None]),
            "demand": np.stack([i.demand for i in instances]).astype(np.float64),
            "capacity": np.array([float(i.capacity) for i in instances]),
        }
    single = {key: array.astype(np.float32) for key, array in exact.items()}
    if any(not np.array_equal(single[key], exact[key]) for key in exact):
        warnings.warn(f"{path}: rounded to float32, as RL4CO expects.", FileWarning, stacklevel=2)
    write_npz(path, single)
