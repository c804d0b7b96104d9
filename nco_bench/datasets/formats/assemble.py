"""From what a file holds to a dataset, and back: solutions judged, costs recomputed, what is lost said."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.formats.reading import plain_name, stem
from nco_bench.datasets.formats.values import numbers, one_number, points
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance, problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.progress import tracked

Solution = NDArray[np.integer]
STATED_TOLERANCE = 1e-4
"""A stated cost may differ from the recomputed one by this share; files round to 4 to 6 digits."""


class FileWarning(UserWarning):
    """Something in a file that a reader should know of, and that does not stop the work."""


def whole(
    path: Path,
    fmt: str,
    instances: Sequence[Instance],
    solutions: Sequence[Solution | None] | None = None,
    stated: Sequence[float | None] | None = None,
) -> Dataset:
    """Make a dataset of all that a file holds.

    Solutions become references: infeasible ones are left out, costs are recomputed, and both are reported as a
    `FileWarning` and in ``origin.params["notes"]``. A stated cost without a solution is kept as ``stated in file``.

    Parameters
    ----------
    path
        The file; its name becomes the dataset's.
    fmt
        Name of the format.
    instances, solutions, stated
        One entry per instance; solutions and stated costs may be missing.
    """
    if not instances:
        raise BadInputError(f"{path}: the file holds no instance.")
    kind = instances[0].problem
    count = len(instances)
    references: list[Reference | None] = []
    notes: list[str] = []
    rows = list(zip(instances, solutions or [None] * count, stated or [None] * count, strict=True))
    for index, (instance, solution, cost) in enumerate(tracked(rows, "instance")):
        reference, note = _reference(kind, fmt, instance, solution, cost)
        references.append(reference)
        if note:
            notes.append(f"instance {index} ({instance.name}): {note}")
    if notes:
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        warnings.warn(f"{path}: {notes[0]}{more}", FileWarning, stacklevel=3)
    params: dict[str, Any] = {"format": fmt, "file": plain_name(path)}
    if notes:
        params["notes"] = notes[:20]
    return Dataset(stem(path), kind, tuple(instances), tuple(references), Origin("file", params=params))


def _reference(
    kind: str, fmt: str, instance: Instance, solution: Solution | None, stated: float | None
) -> tuple[Reference | None, str]:
    if stated is not None and not (np.isfinite(stated) and stated >= 0):
        stated = None
    if solution is None:
        return (None, "") if stated is None else (Reference(float(stated), "stated in file"), "")
    referee = problem(kind)
    faults = referee.violations(instance, solution)
    if faults:
        return None, f"the solution in the file is infeasible and left out: {faults[0]}"
    cost = referee.score(instance, solution)
    note = ""
    if stated is not None and abs(stated - cost) > STATED_TOLERANCE * max(abs(cost), 1e-12):
        note = f"the file states cost {stated:.10g}, its solution costs {cost:.10g} ({instance.convention})"
    return Reference(cost, f"file ({fmt})", solution), note


def drop_closing_node(tour: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Drop the repeated first node at the end of a closed tour, recognised by its value."""
    if tour.size == n + 1 and tour[0] == tour[-1]:
        return tour[:-1]
    return tour


def with_depots(nodes: NDArray[np.int64], via_depot: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Turn customers with flags into a node sequence with 0 for each depot visit.

    Parameters
    ----------
    nodes
        ``(N,)`` customers 1..N in order of visit.
    via_depot
        ``(N,)`` True where the customer is reached from the depot.
    """
    starts = np.flatnonzero(via_depot)
    closed = np.append(np.insert(nodes, starts, 0), 0)
    return closed if closed[0] == 0 else np.concatenate(([0], closed))


def split_depots(solution: Solution) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Turn a node sequence with 0 for each depot visit into customers and flags; inverse of `with_depots`."""
    sequence = np.asarray(solution, dtype=np.int64)
    at_customer = sequence != 0
    from_depot = np.zeros(len(sequence), dtype=bool)
    from_depot[1:] = ~at_customer[:-1]
    if sequence.size and at_customer[0]:
        from_depot[0] = True
    return sequence[at_customer], from_depot[at_customer]


def routes_of(solution: Solution) -> list[list[int]]:
    """Customers of each route, empty routes left out."""
    pieces = np.split(np.asarray(solution), np.flatnonzero(np.asarray(solution) == 0))
    return [route for piece in pieces if (route := [int(v) for v in piece if v != 0])]


def from_routes(routes: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Node sequence ``0, a, b, 0, c, 0`` of a list of routes."""
    sequence = [0]
    for route in routes:
        sequence.extend(route)
        sequence.append(0)
    return np.asarray(sequence, dtype=np.int64)


def check_problem(dataset: Dataset, problems: Sequence[str], fmt: str) -> None:
    """Refuse to write a problem that the format cannot hold."""
    if dataset.problem not in problems:
        raise BadInputError(
            f"{dataset.name}: format {fmt!r} holds {' or '.join(problems)}, not {dataset.problem}; "
            "choose another with --to (see docs/formats.md)."
        )


def the_only_instance(dataset: Dataset, kind: str, fmt: str) -> Any:
    """Return the single instance of a dataset; refuse several."""
    check_problem(dataset, [kind], fmt)
    if len(dataset) != 1:
        raise BadInputError(
            f"{dataset.name}: format {fmt!r} holds one instance, the dataset has {len(dataset)}; "
            "choose one with --instance K."
        )
    return dataset.instances[0]


def the_only_solution(dataset: Dataset) -> tuple[Reference, Solution]:
    """Return reference and solution of a dataset of one instance; refuse where there is none."""
    return solved(dataset)[0]


def solved(dataset: Dataset) -> list[tuple[Reference, Solution]]:
    """Return reference and solution of every instance; refuse where one has none."""
    out = []
    for index, reference in enumerate(dataset.references):
        if reference is None or reference.solution is None:
            raise BadInputError(
                f"{dataset.name}: instance {index} has no reference solution to write; "
                "compute one with 'nco-bench reference'."
            )
        out.append((reference, reference.solution))
    return out


def _say_what_is_lost(dataset: Dataset, fmt: str) -> None:
    """Warn, once, of the first instance whose convention the format does not hold."""
    rounded = (one for one in dataset.instances if one.convention not in ("euclidean", "explicit"))
    instance = next(rounded, None)
    if instance is not None:
        warnings.warn(
            f"{instance.name}: format {fmt!r} has no distance convention; {instance.convention!r} is lost and the "
            "file will be read as unrounded Euclidean.",
            FileWarning,
            stacklevel=4,
        )


def tsp_coords(dataset: Dataset, fmt: str) -> list[NDArray[np.float64]]:
    """Coordinates of every instance, for a format that holds nothing else; refuse matrices and fixed edges."""
    check_problem(dataset, ["tsp"], fmt)
    out = []
    _say_what_is_lost(dataset, fmt)
    for instance in dataset.instances:
        assert isinstance(instance, TSPInstance)
        if instance.coords is None or instance.convention == "explicit" or instance.fixed_edges:
            raise BadInputError(
                f"{instance.name}: format {fmt!r} holds coordinates only, no distance matrix and no fixed edges; "
                "write .tsp instead."
            )
        out.append(instance.coords)
    return out


def plain_cvrp(dataset: Dataset, fmt: str) -> list[CVRPInstance]:
    """CVRP instances for a format that holds coordinates, demands and capacity; refuse what does not fit."""
    check_problem(dataset, ["cvrp"], fmt)
    out = []
    _say_what_is_lost(dataset, fmt)
    for instance in dataset.instances:
        assert isinstance(instance, CVRPInstance)
        if instance.depot is None or instance.customers is None or instance.convention == "explicit":
            raise BadInputError(
                f"{instance.name}: format {fmt!r} holds coordinates only; write .vrp instead."
            )
        if instance.max_route_length is not None:
            raise BadInputError(
                f"{instance.name}: format {fmt!r} has no route length limit; write .vrp instead."
            )
        out.append(instance)
    return out


def same_size(instances: Sequence[Any], dataset: Dataset, fmt: str) -> None:
    """Refuse instances of several sizes for a format of one array."""
    sizes = {len(instance) if isinstance(instance, np.ndarray) else instance.n for instance in instances}
    if len(sizes) > 1:
        raise BadInputError(
            f"{dataset.name}: format {fmt!r} needs instances of one size, these have {min(sizes)} to {max(sizes)}."
        )


def cvrp_instance(
    name: str,
    depot: Any,
    customers: Any,
    demand: Any,
    capacity: Any,
    where: str,
    convention: str = "euclidean",
) -> CVRPInstance:
    """Build a CVRP instance from what a file holds.

    Raises
    ------
    BadInputError
        For anything that does not fit: sizes, a negative demand, a demand above the capacity (naming the customer).
    """
    here = np.asarray(numbers(depot, f"{where}: depot"), dtype=np.float64)
    if here.size != 2:
        raise BadInputError(f"{where}: the depot needs 2 coordinates, got {here.size}.")
    places = points(customers, f"{where}: customers")
    load = numbers(demand, f"{where}: demands")
    limit = one_number(capacity, f"{where}: capacity")
    check_demand(load, limit, len(places), where)
    return CVRPInstance(
        name=name,
        depot=here,
        customers=places,
        demand=load,
        capacity=limit,
        convention=convention,
        matrix=None,
    )


def check_demand(demand: NDArray[Any], capacity: float, n: int, where: str) -> None:
    """Refuse a capacity <= 0, a wrong number of demands, a negative demand or one above the capacity."""
    if not capacity > 0:
        raise BadInputError(f"{where}: the capacity is {capacity:g}; expected a number > 0.")
    if len(demand) != n:
        raise BadInputError(f"{where}: {len(demand)} demands for {n} customers.")
    if n == 0:
        raise BadInputError(f"{where}: no customer.")
    if (demand < 0).any():
        customer = int(np.flatnonzero(demand < 0)[0])
        raise BadInputError(
            f"{where}: the demand of customer {customer + 1} is {demand[customer]:g}; expected >= 0."
        )
    if (demand > capacity).any():
        customer = int(np.flatnonzero(demand > capacity)[0])
        raise BadInputError(
            f"{where}: customer {customer + 1} demands {demand[customer]:g}, more than the capacity {capacity:g}; "
            "no vehicle can serve it."
        )
