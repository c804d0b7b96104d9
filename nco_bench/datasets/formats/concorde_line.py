"""One TSP instance per line: ``x1 y1 ... xn yn output t1 ... tn t1``, nodes from 1 (DIFUSCO, LEHD, SIL, ML4CO-Kit) or 0.

The closing node is recognised by its value, not by its position: files differ in trailing spaces, on which
readers that drop "the last token" stumble. Lines without ``output`` are instances without a solution.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats.assemble import drop_closing_node, solved, tsp_coords, whole
from nco_bench.datasets.formats.reading import iter_lines, stem, write_bytes
from nco_bench.datasets.formats.values import whole_numbers
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import TSPInstance


def read(path: Path) -> Dataset:
    """Read a file of lines ``coordinates output tour``."""
    instances: list[TSPInstance] = []
    tours: list[NDArray[np.int64] | None] = []
    for number, line in iter_lines(path):
        where = f"{path}:{number}"
        head, word, tail = line.partition("output")
        values = floats(head, where)
        if values.size % 2 or values.size < 4:
            raise BadInputError(
                f"{where}: {values.size} coordinates before 'output'; expected pairs, at least two."
            )
        instances.append(TSPInstance(f"{stem(path)}/{len(instances)}", values.reshape(-1, 2)))
        tour: NDArray[np.int64] | None = None
        if word:
            nodes = whole_numbers(floats(tail, where), where)
            tour = drop_closing_node(nodes, len(values) // 2)
            tour = tour if tour.min(initial=1) == 0 else tour - 1  # numbers that begin at 0
        tours.append(tour)
    return whole(path, "concorde-line", instances, tours)


def floats(text: str, where: str, separator: str = " ") -> NDArray[np.float64]:
    """Parse numbers in bulk; raises `BadInputError` naming the first word that is no finite number."""
    words = text.split() if separator == " " else [word.strip() for word in text.split(separator)]
    try:
        values = np.array(words, dtype=np.float64) if words else np.empty(0)
    except ValueError:
        values = np.array([np.nan])
    if np.isfinite(values).all():
        return values
    shown = next((word for word in words if not _is_number(word)), "?")
    raise BadInputError(f"{where}: {shown[:40]!r} is not a finite number; correct this line.")


def _is_number(word: str) -> bool:
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False


def write(dataset: Dataset, path: Path) -> None:
    """Write coordinates and reference tours; every instance needs a reference solution."""
    coords = tsp_coords(dataset, "concorde-line")
    out = io.StringIO()
    for points, (_, tour) in zip(coords, solved(dataset), strict=True):
        nodes = [*tour.tolist(), tour.tolist()[0]]
        out.write(" ".join(map(repr, points.reshape(-1).tolist())))
        out.write(" output " + " ".join(str(node + 1) for node in nodes) + "\n")
    write_bytes(path, out.getvalue().encode())
