"""Reading shards of labels: TSP and CVRP instances with solutions, or solved path problems, checked and put in order.

A shard is an ordinary dataset of TSP or CVRP instances with reference solutions, or a plain npz with ``coords``
``(B, N, 2)`` and ``tours`` ``(B, N)``, or with ``paths`` ``(B, L, 2)``, solved path problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.formats.reading import read_npz
from nco_bench.errors import BadInputError, counted

if TYPE_CHECKING:
    from torch import Tensor

    from nco_bench.datasets.dataset import Dataset
    from nco_bench.datasets.places import Places


@dataclass(frozen=True)
class ShardFacts:
    """What is known of a shard: instances, nodes each, distribution, seed, who made the labels, a dataset's content hash."""

    instances: int
    size: int
    distribution: str = "unknown"
    seed: str = ""
    label_solver: str = "unknown"
    label_params: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Shard:
    """Labelled TSP or CVRP instances, or solved path problems, of one size.

    Attributes
    ----------
    ordered
        ``(B, N, 2)`` float32 coordinates in the order of the label tour or path; CVRP: ``(B, V + 1, 5)``, see
        `pack_routes`.
    facts
        Where they come from.
    tours
        False for paths with fixed ends, True for whole instances.
    problem
        ``tsp`` or ``cvrp``.
    """

    ordered: NDArray[np.float32]
    facts: ShardFacts
    tours: bool = True
    problem: str = "tsp"


def find_shards(sources: Sequence[str | Path]) -> list[str]:
    """Return the shards behind what ``--data`` names: files, folders of npz files, or dataset names.

    Raises
    ------
    BadInputError
        For a folder without npz files.
    """
    shards: list[str] = []
    for source in sources:
        folder = Path(source)
        if not folder.is_dir():
            shards.append(str(source))
            continue
        inside = sorted(str(path) for path in folder.glob("*.npz"))
        if not inside:
            raise BadInputError(f"{folder}: no .npz files of labelled instances in this folder.")
        shards += inside
    return shards


def read_shard(source: str | Path, places: Places | None = None) -> Shard:
    """Read one shard and check it.

    Raises
    ------
    BadInputError
        When the file is damaged, of another problem, lacks tours, or a tour is no permutation.
    UnknownNameError
        When it is neither a file nor the name of a dataset.
    """
    path = Path(source)
    if path.suffix == ".npz" and not path.with_suffix(".json").exists():
        arrays = _read_arrays(path)
        if "paths" in arrays:
            return _paths(arrays["paths"], path)
        coords, tours = arrays["coords"], arrays["tours"]
        facts = ShardFacts(len(coords), coords.shape[1] if coords.ndim == 3 else 0)
        return Shard(in_tour_order(coords, tours, str(path)), facts)
    from nco_bench.datasets.load import Places, load_dataset

    dataset = load_dataset(str(source), places or Places.from_environment())
    if dataset.problem == "cvrp":
        return Shard(_packed_dataset(dataset, str(source)), _dataset_facts(dataset), problem="cvrp")
    coords, tours = _dataset_arrays(dataset, str(source))
    return Shard(in_tour_order(coords, tours, str(source)), _dataset_facts(dataset))


def in_tour_order(
    coords: NDArray[np.floating], tours: NDArray[np.integer], place: str
) -> NDArray[np.float32]:
    """Return coordinates in the order of their tours.

    Parameters
    ----------
    coords
        ``(B, N, 2)``.
    tours
        ``(B, N)``, a permutation of 0..N-1 per row.
    place
        Named in errors.
    """
    if coords.ndim != 3 or coords.shape[2] != 2 or tours.shape != coords.shape[:2]:
        raise BadInputError(
            f"{place}: labels do not fit: coords {coords.shape}, tours {tours.shape}; expected (B, N, 2) and (B, N)."
        )
    if coords.shape[0] < 1 or coords.shape[1] < 3:
        raise BadInputError(
            f"{place}: {counted(coords.shape[0], 'instance')} of {counted(coords.shape[1], 'node')}; nothing to learn."
        )
    bad = np.flatnonzero(~np.isfinite(coords).all(axis=(1, 2)))
    if len(bad):
        raise BadInputError(f"{place}: instance {bad[0]} has a NaN or infinite coordinate.")
    wrong = np.flatnonzero((np.sort(tours, axis=1) != np.arange(tours.shape[1])).any(axis=1))
    if len(wrong):
        raise BadInputError(
            f"{place}: the label of instance {wrong[0]} is no permutation of 0..{tours.shape[1] - 1}; "
            "make the labels again with 'nco-bench generate tsp --reference'."
        )
    ordered = np.take_along_axis(coords, tours.astype(np.int64)[:, :, None], axis=1)
    return ordered.astype(np.float32)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    arrays = read_npz(path, ("coords", "tours", "paths"), "; make the labels anew")
    if "paths" not in arrays and not {"coords", "tours"} <= set(arrays):
        raise BadInputError(
            f"{path}: no arrays coords and tours, and no dataset manifest beside it; not a file of labels."
        )
    return arrays


def _paths(paths: NDArray[Any], path: Path) -> Shard:
    if paths.ndim != 3 or paths.shape[1] < 4 or paths.shape[2] != 2 or not np.isfinite(paths).all():
        raise BadInputError(f"{path}: paths {paths.shape} are no finite (B, L, 2) with 4 or more rows.")
    facts = ShardFacts(len(paths), paths.shape[1], "paths after wrong turns", label_solver="fast-tsp")
    return Shard(paths.astype(np.float32), facts, tours=False)


def pack_routes(
    coords: NDArray[np.floating],
    demand: NDArray[np.integer],
    capacity: int,
    solution: NDArray[np.integer],
) -> NDArray[np.float32]:
    """Put one CVRP instance and its solution into one table, in the order of the solution.

    Parameters
    ----------
    coords, demand, capacity
        ``(V + 1, 2)``, ``(V + 1,)``, row 0 the depot.
    solution
        Customers with 0 for each visit of the depot.

    Returns
    -------
    NDArray
        ``(V + 1, 5)`` float32: x, y, demand, whether the customer starts a route, capacity. Row 0 is the depot.
        Whole numbers below 2^24 are exact.
    """
    previous = np.concatenate([[0], solution[:-1]])
    customers = np.flatnonzero(solution)
    order = np.concatenate([[0], solution[customers]])
    via = np.concatenate([[0], previous[customers] == 0])
    full = np.full(len(order), capacity)
    return np.column_stack([coords[order], demand[order], via, full]).astype(np.float32)


def unpack_routes(packed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Take ``(B, V + 1, 5)`` apart: coords ``(B, V + 1, 2)``, demand ``(B, V + 1)``, capacity ``(B,)``, via ``(B, V)``."""
    return packed[..., :2].contiguous(), packed[..., 2].long(), packed[:, 0, 4].long(), packed[:, 1:, 3] > 0


def _packed_dataset(dataset: Dataset, place: str) -> NDArray[np.float32]:
    from nco_bench.problems import cvrp

    _one_size(dataset, place)
    rows = []
    for index, instance in enumerate(dataset.instances):
        reference = dataset.references[index]
        assert isinstance(instance, cvrp.CVRPInstance)
        if reference is None or reference.solution is None:
            raise BadInputError(
                f"{place}: instance {index} has no reference routes to learn from; add --reference to `generate`."
            )
        if instance.depot is None or instance.customers is None:
            raise BadInputError(f"{place}: instances without coordinates cannot be learned from.")
        solution = np.asarray(reference.solution, dtype=np.int64)
        wrong = cvrp.violations(instance, solution)
        if wrong:
            raise BadInputError(f"{place}: the label of instance {index} is no solution: {wrong[0]}.")
        if instance.demand.dtype.kind != "i":
            raise BadInputError(f"{place}: instance {index} has real demands; models learn from whole ones.")
        coords = np.concatenate([instance.depot[None], instance.customers])
        demand = np.concatenate([[0], instance.demand])
        rows.append(pack_routes(coords, demand, int(instance.capacity), solution))
    return np.stack(rows)


def _one_size(dataset: Dataset, place: str) -> None:
    smallest, largest = dataset.sizes
    if smallest != largest:
        raise BadInputError(
            f"{place}: instances of {smallest} to {largest} nodes in one shard; expected one size."
        )


def _dataset_arrays(dataset: Dataset, place: str) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    if dataset.problem != "tsp":
        raise BadInputError(f"{place}: holds {dataset.problem} instances, models learn from tsp and cvrp.")
    _one_size(dataset, place)
    tours = []
    for index, reference in enumerate(dataset.references):
        if reference is None or reference.solution is None:
            raise BadInputError(
                f"{place}: instance {index} has no reference tour to learn from; add --reference to `generate`."
            )
        tours.append(np.asarray(reference.solution))
    coords = [instance.arrays().get("coords") for instance in dataset.instances]
    if any(c is None for c in coords):
        raise BadInputError(f"{place}: instances without coordinates cannot be learned from.")
    return np.stack([c for c in coords if c is not None]), np.stack(tours)


def _dataset_facts(dataset: Dataset) -> ShardFacts:
    origin, first = dataset.origin, dataset.references[0]
    solvers = sorted({reference.solver for reference in dataset.references if reference is not None})
    return ShardFacts(
        instances=len(dataset),
        size=dataset.sizes[0],
        distribution=origin.distribution or "unknown",
        seed="" if origin.seed is None else str(origin.seed),
        label_solver="+".join(solvers),
        label_params="" if first is None else first.params,
        sha256=dataset.sha256,
    )
