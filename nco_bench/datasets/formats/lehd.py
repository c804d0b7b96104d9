"""Text files of LEHD (Luo et al. 2023), also read by SIL, ICAM and DGL.

``lehd-cvrp``: ``depot,x,y,customer,x1,y1,...,capacity,C,demand,d1,...,cost,c,node_flag,n1,...,nV,f1,...,fV``, one
instance per line; flag 1 means reached from the depot; a leading depot demand of 0 is optional.

``lehd-lib``: library instances as Python lists, ``['a280', '2579', '288', '149', ...]`` (name, optimum,
coordinates) or ``['name', N, 'depot', x, y, 'customer', ..., 'demand', ..., 'capacity', C, 'cost', c, 'end']``.
The costs are the published ones, so the instances get the published conventions.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import (
    check_problem,
    cvrp_instance,
    plain_cvrp,
    solved,
    split_depots,
    whole,
    with_depots,
)
from nco_bench.datasets.formats.concorde_line import floats
from nco_bench.datasets.formats.cvrplib import convention_of
from nco_bench.datasets.formats.reading import iter_lines, stem, write_bytes
from nco_bench.datasets.formats.tsplib import number_text
from nco_bench.datasets.formats.values import whole_numbers
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import TSPInstance

CVRP_WORDS = ("depot", "customer", "capacity", "demand", "cost", "node_flag")
LIBRARY_WORDS = ("name", "depot", "customer", "demand", "capacity", "cost", "end")


def read_cvrp(path: Path) -> Dataset:
    """Read LEHD's CVRP lines with their solutions."""
    instances: list[Any] = []
    solutions: list[NDArray[np.int64] | None] = []
    costs: list[float | None] = []
    for number, line in iter_lines(path):
        where = f"{path}:{number}"
        parts = _parts(line.split(","), CVRP_WORDS, where)
        instance = _instance(f"{stem(path)}/{len(instances)}", parts, where, "euclidean")
        solution, cost = None, None
        if "node_flag" in parts:
            labels = whole_numbers(_numbers(parts["node_flag"], where), where)
            if labels.size != 2 * instance.n:
                raise BadInputError(
                    f"{where}: {labels.size} numbers after node_flag; expected {instance.n} nodes and as many flags."
                )
            solution = with_depots(labels[: instance.n], labels[instance.n :] == 1)
        if "cost" in parts:
            cost = float(_numbers(parts["cost"], where)[0]) if parts["cost"] else None
        instances.append(instance)
        solutions.append(solution)
        costs.append(cost)
    return whole(path, "lehd-cvrp", instances, solutions, costs)


def _parts(tokens: list[str], words: tuple[str, ...], where: str) -> dict[str, list[str]]:
    """Tokens after each word of `words`, which may come in any order."""
    parts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for token in map(str.strip, tokens):
        if token in words:
            if token in parts:
                raise BadInputError(f"{where}: {token!r} appears twice.")
            current = parts[token] = []
        elif current is not None:
            current.append(token)
        elif token:
            raise BadInputError(f"{where}: {token[:40]!r} before the first of {', '.join(words)}.")
    missing = [word for word in ("depot", "customer", "capacity", "demand") if word not in parts]
    if missing:
        raise BadInputError(f"{where}: {missing[0]!r} is missing; expected {','.join(words)}.")
    return parts


def _numbers(tokens: list[str], where: str) -> NDArray[np.float64]:
    return floats(" ".join(token for token in tokens if token), where)


def _instance(name: str, parts: dict[str, list[str]], where: str, convention: str) -> Any:
    customers = _numbers(parts["customer"], where)
    if customers.size % 2:
        raise BadInputError(f"{where}: {customers.size} customer coordinates; expected pairs.")
    demand = _numbers(parts["demand"], where)
    count = customers.size // 2
    if demand.size == count + 1 and demand[0] == 0:  # the depot's
        demand = demand[1:]
    depot, capacity = _numbers(parts["depot"], where), _numbers(parts["capacity"], where)
    return cvrp_instance(name, depot, customers.reshape(-1, 2), demand, capacity, where, convention)


def write_cvrp(dataset: Dataset, path: Path) -> None:
    """Write LEHD's CVRP lines; every instance needs a reference solution."""
    out = io.StringIO()
    for instance, (reference, solution) in zip(
        plain_cvrp(dataset, "lehd-cvrp"), solved(dataset), strict=True
    ):
        nodes, flags = split_depots(solution)
        assert instance.depot is not None
        assert instance.customers is not None
        fields: list[Any] = ["depot", *map(repr, instance.depot.tolist()), "customer"]
        fields += [repr(x) for x in instance.customers.reshape(-1).tolist()]
        fields += [
            "capacity",
            number_text(instance.capacity),
            "demand",
            *map(number_text, instance.demand.tolist()),
        ]
        fields += [
            "cost",
            repr(float(reference.cost)),
            "node_flag",
            *nodes.tolist(),
            *flags.astype(int).tolist(),
        ]
        out.write(",".join(map(str, fields)) + "\n")
    write_bytes(path, out.getvalue().encode())


def read_library(path: Path) -> Dataset:
    """Read LEHD's TSPLIB or CVRPLIB lines; the stated optima become references without a solution."""
    instances: list[Any] = []
    costs: list[float | None] = []
    for number, line in iter_lines(path):
        where = f"{path}:{number}"
        if not (line.startswith("[") and line.endswith("]")):
            raise BadInputError(f"{where}: expected a list in square brackets, as LEHD's library files have.")
        tokens = [token.strip().strip("'\"") for token in line[1:-1].split(",")]
        if tokens[0] == "name":
            parts = _parts(tokens, LIBRARY_WORDS, where)
            name = parts["name"][0] if parts.get("name") else f"{stem(path)}/{len(instances)}"
            instances.append(_instance(name, parts, where, convention_of(name)))
            cost = _numbers(parts.get("cost", []), where)
        else:
            values = floats(" ".join(tokens[1:]), where)
            if values.size < 5 or values.size % 2 == 0:
                raise BadInputError(f"{where}: expected name, optimum and pairs of coordinates.")
            instances.append(TSPInstance(tokens[0], values[1:].reshape(-1, 2).copy(), "tsplib-nint"))
            cost = values[:1]
        costs.append(float(cost[0]) if cost.size else None)
        if instances[-1].problem != instances[0].problem:
            raise BadInputError(f"{where}: TSP and CVRP lines in one file; split it.")
    return whole(path, "lehd-lib", instances, stated=costs)


def write_library(dataset: Dataset, path: Path) -> None:
    """Write library lines; every instance needs a reference cost and its library's rounding convention."""
    check_problem(dataset, ["tsp", "cvrp"], "lehd-lib")
    out = io.StringIO()
    for instance, reference in zip(dataset.instances, dataset.references, strict=True):
        if reference is None:
            raise BadInputError(
                f"{instance.name}: no reference cost to write; compute one with 'nco-bench reference'."
            )
        expected = "tsplib-nint" if isinstance(instance, TSPInstance) else convention_of(instance.name)
        if instance.convention != expected:
            raise BadInputError(
                f"{instance.name}: format 'lehd-lib' means {expected!r} here, the instance has {instance.convention!r}."
            )
        if isinstance(instance, TSPInstance):
            assert instance.coords is not None
            numbers = [reference.cost, *instance.coords.reshape(-1).tolist()]
            out.write(repr([instance.name, *map(number_text, numbers)]) + "\n")
        else:
            out.write(_library_line(instance, reference.cost))
    write_bytes(path, out.getvalue().encode())


def _library_line(instance: Any, cost: float) -> str:
    if instance.depot is None or instance.convention == "explicit" or instance.max_route_length is not None:
        raise BadInputError(
            f"{instance.name}: format 'lehd-lib' has no distance matrix and no route length limit; write .vrp instead."
        )
    plain = [float(x) for x in (*instance.depot, *instance.customers.reshape(-1))]
    fields: list[Any] = ["name", instance.name, "depot", *plain[:2], "customer", *plain[2:]]
    fields += [
        "demand",
        0,
        *instance.demand.tolist(),
        "capacity",
        float(instance.capacity),
        "cost",
        float(cost),
        "end",
    ]
    return repr(fields) + "\n"
