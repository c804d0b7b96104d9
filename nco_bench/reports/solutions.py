"""Drawing a stored solution: find the record of a solver on an instance, read its solution, draw it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, ResultsError
from nco_bench.reports import packing_pictures, pictures
from nco_bench.runs.records import find_runs

REFERENCE = "reference"


def draw_solution(
    dataset: Dataset, index: int, solver: str | None, decoding: str | None, results: Path, out: Path
) -> Path:
    """Draw an instance, alone or with a solution.

    Parameters
    ----------
    dataset
        Holds the instance.
    index
        Position of the instance in the dataset, from 0.
    solver
        Label of the solver whose stored solution is drawn, ``reference``, or None for the instance alone.
    decoding
        Only records of this decoding, or None for any.
    results
        Folder of all runs.
    out
        File; its suffix says the format.

    Raises
    ------
    BadInputError
        For an index outside the dataset, or an instance that cannot be drawn.
    ResultsError
        When no such solution is stored.
    """
    if not 0 <= index < len(dataset):
        raise BadInputError(f"--instance {index + 1}: {dataset.name} holds instances 1..{len(dataset)}.")
    instance = dataset.instances[index]
    draw = packing_pictures.draw_packing if dataset.problem == "bpp3d" else pictures.draw
    if solver is None:
        return draw(instance, out)
    if solver == REFERENCE:
        reference = dataset.references[index]
        if reference is None or reference.solution is None:
            raise BadInputError(f"{dataset.name}: no reference solution of {instance.name} is stored.")
        return draw(instance, out, reference.solution)
    return draw(instance, out, _stored(dataset, index, solver, decoding, results))


def _stored(
    dataset: Dataset, index: int, solver: str, decoding: str | None, results: Path
) -> NDArray[np.int32]:
    for run in reversed(find_runs(results)):
        cells = {
            c.cell
            for c in run.cells()
            if c.is_of(dataset) and solver in (c.solver, c.label) and decoding in (None, c.decoding)
        }
        for record in run.records() if cells else ():
            here = record.cell in cells and record.instance == index + dataset.first_index
            if here and record.solution and dataset.holds(record.instance, record.instance_sha256):
                return run.solution(record)
    raise ResultsError(
        f"{results}: no stored solution of {solver} for instance {index + 1} of {dataset.name}; "
        f"make one with: nco-bench run {solver} --data {dataset.name}"
    )
