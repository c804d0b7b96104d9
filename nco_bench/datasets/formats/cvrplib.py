"""CVRPLIB files: .vrp instances and .sol solutions.

A .vrp file does not say how distances are rounded; the set does. CVRPLIB's values are for rounded edges
(floor(d + 0.5)) in the sets A, B, E, F, M, P, X, XL and XXL (AGS), and for unrounded ones in Golden, Li, Taillard
and CMT, which are known by the names of their instances. DISTANCE limits the unrounded length of a route.
The matrices of E-n13-k4 and E-n31-k7 are wrapped without regard to rows: they are one run of numbers.
"""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats import keyword_file
from nco_bench.datasets.formats.assemble import (
    FileWarning,
    check_demand,
    from_routes,
    routes_of,
    the_only_instance,
    the_only_solution,
    whole,
)
from nco_bench.datasets.formats.keyword_file import KeywordFile
from nco_bench.datasets.formats.reading import iter_lines, read_bytes, stem, write_bytes
from nco_bench.datasets.formats.tsplib import (
    MARKER,
    coordinate_rows,
    coordinate_section,
    distance_matrix,
    edge_weight_convention,
    number_text,
)
from nco_bench.datasets.formats.values import integers_if_whole
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance

UNROUNDED_NAMES = re.compile(r"(golden_|li_|cmt|tai)\d", re.IGNORECASE)
"""Names of the sets whose published values are for unrounded distances."""
OTHER_PROBLEMS = (
    "TIME_WINDOW_SECTION",
    "PICKUP_AND_DELIVERY_SECTION",
    "STANDTIME_SECTION",
    "BACKHAUL_SECTION",
)
"""Sections whose rules the CVRP does not have; solutions would be judged without them."""


def convention_of(name: str) -> str:
    """Return the distance convention under which CVRPLIB publishes values for an instance of this name."""
    return "euclidean" if UNROUNDED_NAMES.match(name) else "cvrplib-nint"


def read_instance(path: Path, name: str | None = None, convention: str | None = None) -> CVRPInstance:
    """Read a .vrp file.

    Parameters
    ----------
    path
        The file, plain or .gz.
    name
        Name of the instance; by default the file's.
    convention
        Distance rule to use in place of the set's (for a file of coordinates).

    Raises
    ------
    BadInputError
        Naming file and line; a demand above the capacity names the customer.
    """
    file = keyword_file.parse(read_bytes(path), str(path))
    _check_type(file)
    _tell_of_fleet(file)
    name = name or stem(path)
    n = file.dimension()
    if n < 2:
        raise BadInputError(
            f"{file.where('DIMENSION')}: a depot and a customer are needed, DIMENSION says {n}."
        )
    rule = edge_weight_convention(file)
    if rule == "tsplib-nint":
        rule = _rounding(file, name)
    capacity = _capacity(file)
    node_demand, line_of, first = _demand_rows(file)
    order = _depot_first(file, n, first)
    coords = None
    if rule != "explicit" or "NODE_COORD_SECTION" in file.sections:
        coords = coordinate_section(file, "NODE_COORD_SECTION")[order]
    return CVRPInstance(
        name=name,
        depot=None if coords is None else coords[0],
        customers=None if coords is None else coords[1:],
        demand=_customer_demand(file, node_demand[order], line_of[order], capacity),
        capacity=capacity,
        convention=convention or rule,
        matrix=distance_matrix(file, n)[np.ix_(order, order)] if rule == "explicit" else None,
        max_route_length=_route_limit(file),
    )


def _rounding(file: KeywordFile, name: str) -> str:
    """Convention of EUC_2D: our own comment, else the set, known by NAME or the name of the file."""
    comment = file.text("COMMENT")
    for rule in ("euclidean", "cvrplib-nint"):
        if comment == f"{MARKER}{rule}":
            return rule
    names = (name, file.text("NAME"))
    return "euclidean" if "euclidean" in map(convention_of, names) else "cvrplib-nint"


def read(path: Path) -> Dataset:
    """Read a .vrp file as a dataset of one instance; see `read_instance`."""
    return whole(path, "cvrplib", [read_instance(path)])


def _check_type(file: KeywordFile) -> None:
    kind = file.text("TYPE", "CVRP").upper().split("(")[0].strip()
    if kind not in ("CVRP", "DCVRP"):
        raise BadInputError(f"{file.where('TYPE')}: TYPE is {kind[:40]!r}; expected CVRP here.")
    for key in OTHER_PROBLEMS:
        if key in file.sections:
            raise BadInputError(
                f"{file.where(key)}: {key} belongs to another problem than the CVRP; remove it to solve that without."
            )


def _tell_of_fleet(file: KeywordFile) -> None:
    """Warn of VEHICLES, which no file of CVRPLIB has; in those that LKH-3 and PyVRP read it limits the routes."""
    fleet = file.text("VEHICLES")
    if not fleet or (fleet.isdecimal() and float(fleet) >= file.dimension() - 1):
        return  # a route for every customer
    warnings.warn(
        f"{file.where('VEHICLES')}: VEHICLES is {fleet[:40]!r}, but the number of routes has no limit here: "
        "solutions and references may have more.",
        FileWarning,
        stacklevel=3,
    )


def _route_limit(file: KeywordFile) -> float | None:
    service = file.number("SERVICE_TIME")
    if service or "SERVICE_TIME_SECTION" in file.sections:
        place = file.where("SERVICE_TIME" if service else "SERVICE_TIME_SECTION")
        raise BadInputError(f"{place}: service times are not supported; remove them if they are all zero.")
    limit = file.number("DISTANCE")
    if limit is not None and limit <= 0:
        raise BadInputError(
            f"{file.where('DISTANCE')}: the route length limit is {limit:g}; expected a number > 0."
        )
    return limit


def _depot_first(file: KeywordFile, n: int, first: int) -> NDArray[np.int64]:
    """Node positions with the depot moved to the front, the others in file order; nodes count from `first`."""
    if "DEPOT_SECTION" not in file.sections:
        return np.arange(n)
    section = file.sections["DEPOT_SECTION"]
    values, lines = keyword_file.stream(file.source, section)
    ends = np.flatnonzero(values == -1)
    depots = values[: ends[0]] if ends.size else values
    if depots.size != 1:
        raise BadInputError(f"{file.source}:{section.line}: {depots.size} depots; expected one node and -1.")
    if depots[0] == first == 0:
        return np.arange(n)
    # Some files count from 0 or give the depot's coordinates; only a node 1..n is unambiguous.
    if depots[0] != int(depots[0]) or not 1 <= depots[0] <= n:
        raise BadInputError(
            f"{file.source}:{int(lines[0])}: the depot is node {depots[0]:g}; expected one of 1..{n}."
        )
    depot = int(depots[0]) - 1
    return np.concatenate(([depot], np.delete(np.arange(n), depot)))


def _capacity(file: KeywordFile) -> float | int:
    limit = file.number("CAPACITY")
    if limit is None:
        raise BadInputError(
            f"{file.source}: CAPACITY is missing; add a line 'CAPACITY : <load of a vehicle>'."
        )
    if limit <= 0:
        raise BadInputError(f"{file.where('CAPACITY')}: the capacity is {limit:g}; expected a number > 0.")
    return int(limit) if limit == int(limit) else limit


def _demand_rows(file: KeywordFile) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """Demand and line of each node, in node order, and the number of the first node, 0 or 1."""
    rows, lines = keyword_file.table(file.source, file.section("DEMAND_SECTION"), 2)
    positions = keyword_file.node_positions(file, file.section("DEMAND_SECTION"), rows[:, 0], lines)
    demand, line_of = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
    demand[positions], line_of[positions] = rows[:, 1], lines
    return demand, line_of, int(rows[:, 0].min())


def _customer_demand(
    file: KeywordFile, demand: NDArray[np.float64], line_of: NDArray[np.int64], capacity: float
) -> NDArray[Any]:
    """Demands of the customers from those of all nodes, depot first; integers where the file has integers."""
    if demand[0] != 0:
        raise BadInputError(f"{file.source}:{line_of[0]}: the depot has demand {demand[0]:g}; expected 0.")
    bad = np.flatnonzero((demand < 0) | (demand > capacity))
    where = f"{file.source}:{line_of[bad[0] if bad.size else 0]}"
    check_demand(demand[1:], capacity, len(demand) - 1, where)
    return integers_if_whole(demand[1:])


def read_solution(path: Path) -> tuple[NDArray[np.int64], float | None]:
    """Read a .sol file.

    Returns
    -------
    tuple
        The node sequence with 0 for each depot visit, and the stated cost, None where there is none.

    Raises
    ------
    BadInputError
        Naming the line that is neither a route nor a cost.
    """
    routes: list[list[int]] = []
    cost: float | None = None
    for number, line in iter_lines(path):
        if line.lower().startswith("route"):
            body = line.partition(":")[2].split()
            if not all(word.isascii() and word.isdigit() and 0 < len(word) < 10 for word in body):
                raise BadInputError(f"{path}:{number}: a route is 'Route #1: 3 1 2', customers as numbers.")
            routes.append([int(word) for word in body])
        elif match := re.match(r"cost[\s:]+(\S+)", line, re.IGNORECASE):
            try:
                cost = float(match[1])
            except ValueError:
                raise BadInputError(
                    f"{path}:{number}: the cost is {match[1][:40]!r}; expected a number."
                ) from None
        elif not routes and cost is None:
            raise BadInputError(f"{path}:{number}: expected 'Route #1: ...', found {line[:40]!r}.")
    if not routes:
        raise BadInputError(f"{path}: no line 'Route #1: ...' in the file.")
    return from_routes(routes), cost


def write(dataset: Dataset, path: Path) -> None:
    """Write the only instance of a dataset as .vrp."""
    instance: CVRPInstance = the_only_instance(dataset, "cvrp", "cvrplib")
    if instance.convention in ("euclidean", "cvrplib-nint"):
        kind = "EUC_2D"
    elif instance.convention == "explicit":
        kind = "EXPLICIT"
    else:
        raise BadInputError(f"{instance.name}: .vrp has no name for the convention {instance.convention!r}.")
    out = io.StringIO()
    out.write(f"NAME : {instance.name}\nTYPE : CVRP\n")
    if kind == "EUC_2D":
        out.write(f"COMMENT : {MARKER}{instance.convention}\n")
    out.write(f"DIMENSION : {instance.n + 1}\nEDGE_WEIGHT_TYPE : {kind}\n")
    if kind == "EXPLICIT":
        out.write("EDGE_WEIGHT_FORMAT : FULL_MATRIX\n")
    out.write(f"CAPACITY : {number_text(instance.capacity)}\n")
    if instance.max_route_length is not None:
        out.write(f"DISTANCE : {number_text(instance.max_route_length)}\n")
    if kind == "EXPLICIT" and instance.matrix is not None:
        out.write("EDGE_WEIGHT_SECTION\n")
        out.writelines(" ".join(map(number_text, row)) + "\n" for row in instance.matrix.tolist())
    if instance.depot is not None and instance.customers is not None:
        out.write("NODE_COORD_SECTION\n")
        out.writelines(coordinate_rows(np.vstack([instance.depot, instance.customers])))
    out.write("DEMAND_SECTION\n1 0\n")
    out.writelines(f"{i} {number_text(d)}\n" for i, d in enumerate(instance.demand.tolist(), start=2))
    out.write("DEPOT_SECTION\n1\n-1\nEOF\n")
    write_bytes(path, out.getvalue().encode())


def write_solution(dataset: Dataset, path: Path) -> None:
    """Write the reference solution of the only instance of a dataset as .sol."""
    the_only_instance(dataset, "cvrp", "sol")
    reference, solution = the_only_solution(dataset)
    lines = [
        f"Route #{i}: {' '.join(map(str, route))}\n" for i, route in enumerate(routes_of(solution), start=1)
    ]
    write_bytes(path, ("".join(lines) + f"Cost {number_text(reference.cost)}\n").encode())
