"""BQ-NCO .npz (Drakulic et al. 2023).

TSP: ``coords (D, N + 1, 2)`` with the first node repeated at the end, ``tour_lens (D,)``, ``reorder``.
CVRP: ``coords (D, N + 2, 2)`` with the depot at both ends, ``demands (D, N + 2)``, ``capacities (D,)``,
``tour_lens``, ``reorder``. Test files (``reorder`` False) hold the length of a solution but not the solution; in
training files (``reorder`` True) the nodes stand in the order of the solution, with ``via_depots`` for CVRP.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import (
    check_problem,
    cvrp_instance,
    plain_cvrp,
    same_size,
    tsp_coords,
    whole,
    with_depots,
)
from nco_bench.datasets.formats.reading import read_npz, stem, write_npz
from nco_bench.datasets.formats.rl4co import batch
from nco_bench.datasets.formats.values import points
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance


def read(path: Path) -> Dataset:
    """Read a BQ .npz of TSP or CVRP instances, test or training form."""
    arrays = read_npz(path)
    coords = batch(arrays, "coords", 3, path)
    count, rows = coords.shape[:2]
    is_cvrp = "demands" in arrays
    if rows < 3 or not np.array_equal(coords[:, 0], coords[:, -1]):
        what = (
            "the depot must stand at both ends" if is_cvrp else "the first node must be repeated at the end"
        )
        raise BadInputError(f"{path}: 'coords' of shape {coords.shape}: {what}.")
    ordered = bool(np.any(arrays.get("reorder", np.array(False))))
    lengths = (
        [float(x) for x in batch(arrays, "tour_lens", 1, path, count)] if "tour_lens" in arrays else None
    )
    names = [f"{stem(path)}/{i}" for i in range(count)]
    solutions: list[NDArray[np.int64]] | None = None
    instances: list[Instance]
    if is_cvrp:
        instances = _cvrp_instances(arrays, coords, names, path)
        if ordered:
            via = batch(arrays, "via_depots", 2, path, count)
            customers = np.arange(1, rows - 1)
            solutions = [with_depots(customers, flags[1:-1] == 1) for flags in via]
    else:
        instances = [
            TSPInstance(names[i], points(coords[i, :-1], f"{path}: {names[i]}")) for i in range(count)
        ]
        if ordered:
            solutions = [np.arange(rows - 1) for _ in range(count)]
    return whole(path, "bq", instances, solutions, lengths)


def _cvrp_instances(
    arrays: dict[str, NDArray[Any]], coords: NDArray[Any], names: list[str], path: Path
) -> list[Instance]:
    count, rows = coords.shape[:2]
    demands = batch(arrays, "demands", 2, path, count)
    capacities = batch(arrays, "capacities", 1, path, count)
    if demands.shape[1] != rows or np.any(demands[:, [0, -1]] != 0):
        raise BadInputError(
            f"{path}: 'demands' of shape {demands.shape}: expected {rows} columns, 0 at both ends."
        )
    return [
        cvrp_instance(
            names[i],
            coords[i, 0],
            coords[i, 1:-1],
            demands[i, 1:-1],
            capacities[i : i + 1],
            f"{path}: {names[i]}",
        )
        for i in range(count)
    ]


def write(dataset: Dataset, path: Path) -> None:
    """Write a BQ test file; every instance needs a reference cost, and all one size."""
    check_problem(dataset, ["tsp", "cvrp"], "bq")
    lengths = []
    for index, reference in enumerate(dataset.references):
        if reference is None:
            raise BadInputError(
                f"{dataset.name}: instance {index} has no reference cost, which BQ files hold; "
                "compute one with 'nco-bench reference'."
            )
        lengths.append(float(reference.cost))
    arrays: dict[str, NDArray[Any]]
    if dataset.problem == "tsp":
        coords = tsp_coords(dataset, "bq")
        same_size(coords, dataset, "bq")
        arrays = {"coords": np.stack([np.vstack([c, c[:1]]) for c in coords])}
    else:
        instances = plain_cvrp(dataset, "bq")
        same_size(instances, dataset, "bq")
        arrays = {
            "coords": np.stack([np.vstack([i.depot, i.customers, i.depot]) for i in instances]),  # type: ignore[list-item]
            "demands": np.stack([np.pad(i.demand, 1) for i in instances]),
            "capacities": np.array([i.capacity for i in instances]),
        }
    write_npz(path, arrays | {"tour_lens": np.array(lengths), "reorder": np.array(False)})
