"""Kool et al. (2019) .pkl: TSP a list of ``[[x, y], ...]``; CVRP a list of ``(depot, customers, demands, capacity)``.

The files of ELG and AMDKD have the same form. CVRP tuples of seven entries end in the size of a grid, by which
coordinates are divided, as their loaders do. No solutions.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import check_problem, cvrp_instance, plain_cvrp, tsp_coords, whole
from nco_bench.datasets.formats.reading import stem, write_bytes
from nco_bench.datasets.formats.safe_pickle import read_pickle
from nco_bench.datasets.formats.values import one_number, points
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance


def read(path: Path) -> Dataset:
    """Read a Kool .pkl; pickles go through the restricted unpickler."""
    rows = read_pickle(path)
    if not isinstance(rows, (list, tuple)) or not rows:
        raise BadInputError(f"{path}: expected a list of instances, found {type(rows).__name__}.")
    is_cvrp = isinstance(rows[0], (list, tuple)) and len(rows[0]) in (4, 7) and not _is_pair(rows[0][1])
    build = _cvrp if is_cvrp else _tsp
    instances = [build(row, f"{stem(path)}/{i}", f"{path}: instance {i}") for i, row in enumerate(rows)]
    return whole(path, "kool", instances)


def _is_pair(value: Any) -> bool:
    """True for ``[x, y]``: then the row is a list of points, not a tuple of depot, customers, ..."""
    return hasattr(value, "__len__") and len(value) == 2 and not hasattr(value[0], "__len__")


def _tsp(row: Any, name: str, where: str) -> TSPInstance:
    return TSPInstance(name, points(row, where))


def _cvrp(row: Any, name: str, where: str) -> CVRPInstance:
    if not isinstance(row, (list, tuple)) or len(row) not in (4, 7):
        raise BadInputError(f"{where}: expected (depot, customers, demands, capacity).")
    depot, customers, demand, capacity = row[:4]
    if isinstance(depot, (list, tuple)) and len(depot) == 1:
        depot = depot[0]  # [[x, y]], as MVMoE and Omni-VRP write it
    instance = cvrp_instance(name, depot, customers, demand, capacity, where)
    if len(row) == 4:
        return instance
    grid = one_number(row[6], f"{where}: grid size")
    if not grid > 0:
        raise BadInputError(f"{where}: the grid size is {grid}; expected a number > 0.")
    assert instance.depot is not None
    assert instance.customers is not None
    return CVRPInstance(
        name, instance.depot / grid, instance.customers / grid, instance.demand, instance.capacity
    )


def write(dataset: Dataset, path: Path) -> None:
    """Write a Kool .pkl; references are not part of the format."""
    check_problem(dataset, ["tsp", "cvrp"], "kool")
    rows: list[Any]
    if dataset.problem == "tsp":
        rows = [coords.tolist() for coords in tsp_coords(dataset, "kool")]
    else:
        rows = []
        for i in plain_cvrp(dataset, "kool"):
            assert i.depot is not None
            assert i.customers is not None
            rows.append((i.depot.tolist(), i.customers.tolist(), i.demand.tolist(), float(i.capacity)))
    write_bytes(path, pickle.dumps(rows, protocol=4))
