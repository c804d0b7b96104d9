"""Pictures of the HTML report, of tours and packings: per dataset the best and the worst of the method in the focus."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError, NcoBenchError, ResultsError
from nco_bench.reports.frame.compare import instance_values
from nco_bench.reports.frame.result_frame import OK, ResultFrame
from nco_bench.reports.frame.rows import DatasetColumn
from nco_bench.reports.frame.summary import CellSummary

MAX_DATASETS = 6
DRAWN = ("tsp", "cvrp", "bpp3d")
"""Problems whose solutions have a picture."""
VECTOR_UP_TO = {"tsp": 1000, "cvrp": 1000, "bpp3d": 100}
"""Nodes or boxes, of three faces each, up to which a picture is SVG; larger ones are PNG, which stays small."""
DPI = 110


@dataclass(frozen=True)
class Picture:
    """An image and what it shows."""

    uri: str
    caption: str


def best_and_worst(
    frame: ResultFrame, columns: Sequence[DatasetColumn], places: Places, colours: Mapping[str, str]
) -> tuple[list[Picture], list[str]]:
    """Draw the instances with the smallest and the largest gap; without references, packings by their load rate.

    The method in the focus is the neural one with the smallest mean gap, else the one with the largest: what
    an exact solver does best and worst tells nothing. Load rates compare between instances, lengths do not.

    Parameters
    ----------
    frame, columns
        Records, and their cells by dataset.
    places
        Where datasets are.
    colours
        Of tours, by solver.

    Returns
    -------
    pictures, remarks
        What could not be drawn is said in the remarks, it never stops the report.
    """
    pictures: list[Picture] = []
    remarks: list[str] = []
    drawable = [(column, summary) for column in columns if (summary := focus(column)) is not None]
    for column, summary in drawable[:MAX_DATASETS]:
        try:
            pictures += _pictures(frame, summary, places, colours.get(summary.group.cell.solver, ""))
        except (NcoBenchError, OSError) as error:
            remarks.append(f"No pictures of {column.key}: {error}")
    if len(drawable) > MAX_DATASETS:
        remarks.append(f"Pictures of the first {MAX_DATASETS} of {len(drawable)} datasets.")
    return pictures, remarks


def focus(column: DatasetColumn) -> CellSummary | None:
    """Choose the method whose solutions are drawn; None where nothing can be ordered or drawn."""
    known = [s for s in column.cells.values() if _badness(s) is not None]
    neural = [s for s in known if s.group.cell.kind == "neural"]
    if neural:
        return min(neural, key=lambda s: _badness(s) or 0.0)
    return max(known, key=lambda s: _badness(s) or 0.0, default=None)


def _badness(summary: CellSummary) -> float | None:
    """The mean gap, or for packings without references minus the load rate."""
    if summary.group.cell.problem not in DRAWN:
        return None
    if summary.mean_gap_percent is None and summary.group.cell.problem == "bpp3d":
        return None if summary.mean_cost is None else -summary.mean_cost
    return summary.mean_gap_percent


def _pictures(frame: ResultFrame, summary: CellSummary, places: Places, colour: str) -> list[Picture]:
    values = instance_values(frame, summary)
    by_gap = summary.mean_gap_percent is not None
    badness = values.gap_percent if by_gap else -values.cost
    known = np.flatnonzero(~np.isnan(badness))
    order = known[np.argsort(badness[known], kind="stable")]
    chosen = {"best": order[0], "worst": order[-1]} if len(order) > 1 else {"only": order[0]}
    whole = summary.group.whole
    dataset = load_dataset(whole.name, places)
    if dataset.sha256 != whole.sha256:
        raise BadInputError("the dataset of this name is not the one that was solved; its hash differs.")
    pictures = []
    for word, i in chosen.items():
        instance = int(values.instance[i])
        solution, reference = _solution(frame, summary, instance)
        image = _draw(dataset, instance, solution, summary.method, reference, colour)
        cost = f"cost {values.cost[i]:.6g}, " if by_gap else ""
        told = f"{cost}gap {values.gap_percent[i]:.3f} %" if by_gap else f"load rate {values.cost[i]:.3f} %"
        pictures.append(
            Picture(image, f"{summary.method} on {frame.names[int(values.name[i])]}: {told} ({word})")
        )
    return pictures


def _solution(
    frame: ResultFrame, summary: CellSummary, instance: int
) -> tuple[NDArray[np.int32], Reference | None]:
    """Return a stored solution of a cell, and what its gap is to."""
    code = next(i for i, group in enumerate(frame.groups) if group is summary.group)
    records = frame.records
    found = records[
        (records["group"] == code)
        & (records["instance"] == instance)
        & (records["status"] == OK)
        & (records["solution_length"] >= 0)
    ]
    if found.empty:
        raise ResultsError("no solutions are stored.")
    row = found.iloc[0]
    run, length = frame.runs[int(row["run"])], int(row["solution_length"])
    solution = run.integers(int(row["solution_offset"]), length, f"instance {instance}")
    source = int(row["reference_from"])
    known = Reference(float(row["reference"]), frame.references[source].solver) if source >= 0 else None
    return solution, known


def _draw(
    dataset: Dataset,
    instance: int,
    solution: NDArray[np.int32],
    author: str,
    reference: Reference | None,
    colour: str,
) -> str:
    from nco_bench.reports.figures.packings import draw_packing
    from nco_bench.reports.figures.routes import draw

    position = instance - dataset.first_index
    if not 0 <= position < len(dataset):
        raise BadInputError(f"the stored set has no instance {instance}.")
    drawn = dataset.instances[position]
    suffix, kind = (
        (".svg", "image/svg+xml") if drawn.n <= VECTOR_UP_TO[drawn.problem] else (".png", "image/png")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"solution{suffix}"
        if drawn.problem == "bpp3d":
            draw_packing(drawn, path, solution, author=author, dpi=DPI)
        else:
            draw(
                drawn, path, solution, author=author, reference=reference, colour=colour, size_inches=3.5, dpi=DPI
            )  # fmt: skip
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
