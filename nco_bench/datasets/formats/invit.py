"""INViT .txt (Fang et al. 2024), one instance per line.

TSP: ``x,y x,y ...``. CVRP: ``dx,dy .|. x,y x,y ... .|. d d ... .|. capacity``. Solutions stand in other files, one
line ``node,node,... length seconds`` per instance; `nco_bench.datasets.formats.read_solution` reads those of one.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import check_problem, cvrp_instance, plain_cvrp, tsp_coords, whole
from nco_bench.datasets.formats.concorde_line import floats
from nco_bench.datasets.formats.reading import iter_lines, stem, write_bytes
from nco_bench.datasets.formats.tsplib import number_text
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance
from nco_bench.problems.tsp import TSPInstance

BAR = ".|."


def read(path: Path) -> Dataset:
    """Read INViT lines, TSP or CVRP."""
    instances: list[Instance] = []
    for number, line in iter_lines(path):
        where, name = f"{path}:{number}", f"{stem(path)}/{len(instances)}"
        fields = [field.strip() for field in line.split(BAR)]
        if len(fields) == 1:
            instances.append(TSPInstance(name, _pairs(line, where)))
        elif len(fields) == 4:
            depot, customers = _pairs(fields[0], where), _pairs(fields[1], where)
            demand, capacity = floats(fields[2], where), floats(fields[3], where)
            instances.append(cvrp_instance(name, depot[0], customers, demand, capacity, where))
        else:
            raise BadInputError(
                f"{where}: {len(fields)} fields between '{BAR}'; expected 1 (TSP) or 4 (CVRP)."
            )
        if instances[-1].problem != instances[0].problem:
            raise BadInputError(f"{where}: TSP and CVRP lines in one file; split it.")
    return whole(path, "invit", instances)


def _pairs(text: str, where: str) -> NDArray[np.float64]:
    words = text.split()
    if not words or any(word.count(",") != 1 or "" in word.split(",") for word in words):
        raise BadInputError(f"{where}: expected nodes as 'x,y x,y ...'.")
    return floats(" ".join(words).replace(",", " "), where).reshape(-1, 2)


def write(dataset: Dataset, path: Path) -> None:
    """Write INViT lines; references are not part of the format."""
    check_problem(dataset, ["tsp", "cvrp"], "invit")
    out = io.StringIO()
    if dataset.problem == "tsp":
        for coords in tsp_coords(dataset, "invit"):
            out.write(_text(coords) + "\n")
    else:
        for i in plain_cvrp(dataset, "invit"):
            assert i.depot is not None
            assert i.customers is not None
            demand = " ".join(map(number_text, i.demand.tolist()))
            fields = [_text(i.depot[None]), _text(i.customers), demand, number_text(i.capacity)]
            out.write(f" {BAR} ".join(fields) + "\n")
    write_bytes(path, out.getvalue().encode())


def _text(coords: NDArray[np.float64]) -> str:
    return " ".join(f"{x!r},{y!r}" for x, y in coords.tolist())
