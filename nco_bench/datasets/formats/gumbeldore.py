"""Gumbeldore / SIGD .pickle (Pirnay and Grimm 2024): a list of dicts.

TSP: ``inst`` (N, 2), ``tour`` (0-based, whatever the data readme says), ``sol`` (length). CVRP: ``capacity``,
``nodes`` (N + 1, 2) depot first, ``demands`` (N + 1), ``tour_length``, ``tour_node_idcs`` (customers 1..N),
``tour_node_flags`` (1 = reached from the depot).
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import (
    check_problem,
    cvrp_instance,
    drop_closing_node,
    plain_cvrp,
    solved,
    split_depots,
    tsp_coords,
    whole,
    with_depots,
)
from nco_bench.datasets.formats.reading import stem, write_bytes
from nco_bench.datasets.formats.safe_pickle import read_pickle
from nco_bench.datasets.formats.values import numbers, one_number, points, whole_numbers
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance

Row = tuple[Instance, NDArray[np.int64] | None, float | None]


def read(path: Path) -> Dataset:
    """Read a Gumbeldore .pickle; pickles go through the restricted unpickler."""
    rows = read_pickle(path)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInputError(f"{path}: expected a list of dicts with 'inst' (TSP) or 'nodes' (CVRP).")
    build = _cvrp if "nodes" in rows[0] else _tsp
    read_rows = [build(row, f"{stem(path)}/{i}", f"{path}: instance {i}") for i, row in enumerate(rows)]
    instances, solutions, costs = zip(*read_rows, strict=True)
    return whole(path, "gumbeldore", instances, solutions, costs)


def _get(row: dict[Any, Any], key: str, where: str) -> Any:
    if key not in row:
        raise BadInputError(f"{where}: {key!r} is missing.")
    return row[key]


def _cost(row: dict[Any, Any], key: str, where: str) -> float | None:
    return None if row.get(key) is None else float(one_number(row[key], f"{where}: {key}"))


def _tsp(row: dict[Any, Any], name: str, where: str) -> Row:
    coords = points(_get(row, "inst", where), f"{where}: inst")
    tour = None
    if row.get("tour") is not None:
        tour = drop_closing_node(whole_numbers(row["tour"], f"{where}: tour"), len(coords))
    return TSPInstance(name, coords), tour, _cost(row, "sol", where)


def _cvrp(row: dict[Any, Any], name: str, where: str) -> Row:
    nodes = points(_get(row, "nodes", where), f"{where}: nodes")
    demands = numbers(_get(row, "demands", where), f"{where}: demands")
    if len(nodes) < 2 or len(demands) != len(nodes) or demands[0] != 0:
        raise BadInputError(
            f"{where}: {len(demands)} demands for {len(nodes)} nodes; expected as many, 0 for the depot."
        )
    instance = cvrp_instance(name, nodes[0], nodes[1:], demands[1:], _get(row, "capacity", where), where)
    solution = None
    if row.get("tour_node_idcs") is not None:
        customers = whole_numbers(row["tour_node_idcs"], f"{where}: tour_node_idcs")
        flags = whole_numbers(_get(row, "tour_node_flags", where), f"{where}: tour_node_flags")
        if len(flags) != len(customers):
            raise BadInputError(f"{where}: {len(flags)} flags for {len(customers)} nodes of the solution.")
        solution = with_depots(customers, flags == 1)
    return instance, solution, _cost(row, "tour_length", where)


def write(dataset: Dataset, path: Path) -> None:
    """Write a Gumbeldore .pickle; every instance needs a reference solution."""
    check_problem(dataset, ["tsp", "cvrp"], "gumbeldore")
    rows: list[dict[str, Any]] = []
    if dataset.problem == "tsp":
        for coords, (reference, tour) in zip(tsp_coords(dataset, "gumbeldore"), solved(dataset), strict=True):
            rows.append({"inst": coords, "tour": tour.tolist(), "sol": float(reference.cost)})
    else:
        for i, (reference, solution) in zip(plain_cvrp(dataset, "gumbeldore"), solved(dataset), strict=True):
            nodes, flags = split_depots(solution)
            assert i.depot is not None
            assert i.customers is not None
            rows.append(
                {
                    "capacity": i.capacity,
                    "nodes": np.vstack([i.depot, i.customers]),
                    "demands": np.concatenate([np.zeros(1, dtype=i.demand.dtype), i.demand]),
                    "tour_length": float(reference.cost),
                    "tour_node_idcs": nodes,
                    "tour_node_flags": flags.astype(np.int64),
                }
            )
    write_bytes(path, pickle.dumps(rows, protocol=4))
