"""Coordinates and tours of a few instances per dataset, from which the page draws a solution beside the best known one.

Only routes are drawn, up to `MAX_NODES` nodes. Coordinates are rounded to 1/65,535 of the square, which no screen shows;
costs are never computed from them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError, NcoBenchError, ResultsError
from nco_bench.reports.figures.routes import display_coordinates
from nco_bench.reports.frame.result_frame import OK, ResultFrame
from nco_bench.reports.frame.rows import DatasetColumn
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.reports.site.rows import rounded
from nco_bench.runs.records import Record

DRAWN = ("tsp", "cvrp")
MAX_NODES = 1000
GRID = 65_535


@dataclass(frozen=True)
class Drawn:
    """What the page draws of one dataset.

    Attributes
    ----------
    instances
        Instance to its coordinates and the best known solution, as plain values.
    tours
        Group to instance to the solution of that row.
    remark
        Why there is none, or empty.
    """

    instances: dict[int, dict[str, Any]] = field(default_factory=dict)
    tours: dict[int, dict[int, str]] = field(default_factory=dict)
    remark: str = ""


def packed(values: NDArray[Any]) -> str:
    """Return whole numbers below 65,536 as base64 of little-endian 16-bit integers."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<u2").tobytes()).decode()


def drawn_routes(
    frame: ResultFrame,
    column: DatasetColumn,
    codes: Mapping[int, int],
    part: pd.DataFrame,
    places: Places,
    count: int,
) -> Drawn:
    """Collect what is drawn of a dataset: its first instances that have a solution.

    Parameters
    ----------
    frame, column
        The records, and one dataset of them.
    codes
        Identity of a group to its number in the frame.
    part
        The records of this dataset.
    places
        Where datasets are.
    count
        Instances at most.
    """
    cells = {codes[id(s.group)]: s for s in column.cells.values()}
    first = next(iter(cells.values()))
    if first.group.cell.problem not in DRAWN:
        return Drawn(remark="Only routes are drawn here.")
    usable = part[(part["status"] == OK) & (part["solution_length"] > 0) & (part["n"] <= MAX_NODES)]
    if usable.empty:
        large = bool((part["n"] > MAX_NODES).all())
        return Drawn(remark=f"Above {MAX_NODES:,} nodes." if large else "No solutions are stored.")
    chosen = np.unique(usable["instance"].to_numpy())[:count]
    usable = usable[usable["instance"].isin(chosen)].sort_values(["repeat", "instance"], kind="stable")
    usable = usable.drop_duplicates(["group", "instance"])
    try:
        dataset = _dataset(first, usable, int(chosen[-1]) + 1, places)
        return _collect(frame, cells, usable, dataset)
    except (NcoBenchError, OSError, IndexError) as error:
        return Drawn(remark=f"The instances are not at hand: {error}")


def _dataset(summary: CellSummary, usable: pd.DataFrame, count: int, places: Places) -> Dataset:
    """Load the instances, and make sure that they are those of the records."""
    whole = summary.group.whole
    hashes = {i: c for i, c in zip(usable["instance"].tolist(), usable["content"].tolist(), strict=True) if c}
    if whole.stream and len(hashes) == usable["instance"].nunique():
        dataset = load_dataset(f"{whole.stream}:count={count}", places)
        same = all(int(dataset.instance_hashes[i], 16) == content for i, content in hashes.items())
    else:
        dataset = load_dataset(whole.name, places)
        same = dataset.sha256 == whole.sha256
    if not same:
        raise BadInputError(f"what {whole.name} stands for here is not what was solved.")
    return dataset


def _collect(
    frame: ResultFrame, cells: Mapping[int, CellSummary], usable: pd.DataFrame, dataset: Dataset
) -> Drawn:
    found = Drawn()
    sign = -1.0 if next(iter(cells.values())).group.cell.objective == "max" else 1.0
    for instance, rows in usable.groupby("instance", sort=True):
        number = int(str(instance))
        position = number - dataset.first_index
        given = dataset.instances[position]
        best = rows.iloc[int(np.argmin(sign * rows["cost"].to_numpy()))]
        for _, row in rows.iterrows():
            tour = _solution(frame, row)
            found.tours.setdefault(int(row["group"]), {})[number] = packed(tour)
        reference = dataset.references[position]
        if reference is not None and reference.solution is not None and reference.cost <= best["cost"]:
            told = [packed(reference.solution), rounded(reference.cost, 8), reference.solver]
        else:
            author = cells[int(best["group"])].method
            told = [packed(_solution(frame, best)), rounded(float(best["cost"]), 8), author]
        found.instances[number] = {"xy": _grid(display_coordinates(given)), "best": told}
    return found


def _solution(frame: ResultFrame, row: pd.Series[Any]) -> NDArray[np.int32]:
    place = (int(row["solution_offset"]), int(row["solution_length"]))
    name = frame.names[int(row["name"])]
    record = Record(
        "", 0, int(row["instance"]), name, int(row["n"]), 0, 0, "ok", None, None, 0.0, False, place, None, ""
    )
    solution = frame.runs[int(row["run"])].solution(record)
    if solution.min(initial=0) < 0 or solution.max(initial=0) > GRID:
        raise ResultsError(f"{name}: the stored solution names nodes that do not exist.")
    return solution


def _grid(coords: NDArray[np.float64]) -> str:
    """Return ``(n, 2)`` coordinates in the unit square, their longer side filling it, packed x, y, x, y ..."""
    low = coords.min(axis=0)
    span = float((coords.max(axis=0) - low).max()) or 1.0
    return packed(np.rint((coords - low) / span * GRID).ravel())
