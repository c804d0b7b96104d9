"""Drawing a stored solution: find the record of a solver on an instance, read its solution, draw it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.cards import cards, find
from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.errors import BadInputError, ResultsError, UnknownNameError
from nco_bench.reports.figures import packings as packing_pictures
from nco_bench.reports.figures import routes as pictures
from nco_bench.reports.frame.summary import method_name
from nco_bench.runs.finding import find_runs

REFERENCE = "reference"


def draw_solution(
    dataset: Dataset, index: int, solver: str | None, decoding: str | None, results: Path, out: Path,
    *, size_inches: float = 6.0,
) -> Path:  # fmt: skip
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
    size_inches
        Width of a picture of routes; text keeps its size.

    Raises
    ------
    BadInputError
        For an index outside the dataset, or an instance that cannot be drawn.
    ResultsError
        When no such solution is stored.
    UnknownNameError
        When the dataset has records of other solvers only, or nothing answers to the name.
    """
    dataset.refuse_beyond(index)
    instance = dataset.instances[index]
    if solver is None:
        if dataset.problem == "bpp3d":
            return packing_pictures.draw_packing(instance, out)
        return pictures.draw(instance, out, size_inches=size_inches)
    reference = dataset.references[index]
    if solver == REFERENCE:
        if reference is None or reference.solution is None:
            raise BadInputError(f"{dataset.name}: no reference solution of {instance.name} is stored.")
        author = f"reference of {reference.solver}"
        if dataset.problem == "bpp3d":
            return packing_pictures.draw_packing(instance, out, reference.solution, author=author)
        return pictures.draw(instance, out, reference.solution, author=author, size_inches=size_inches)
    solution, author, known = _stored(dataset, index, solver, decoding, results)
    if dataset.problem == "bpp3d":
        return packing_pictures.draw_packing(instance, out, solution, author=author)
    best = min(filter(None, (reference, known)), key=lambda r: r.cost, default=None)
    return pictures.draw(instance, out, solution, author=author, reference=best, size_inches=size_inches)


def _refuse_unknown(solver: str, dataset: Dataset, results: Path) -> None:
    """Refuse a solver that nothing answers to, naming those whose solutions of the dataset are stored."""
    name = solver.partition(":")[0]
    if find(name) is not None or Path(name).suffix:  # a file is a solver, too
        return
    cells = [cell for run in find_runs(results) for cell in run.cells() if cell.is_of(dataset)]
    have = {name for cell in cells for name in (cell.solver, cell.label)}
    if not have:
        raise UnknownNameError("solver", solver, cards(), "See 'nco-bench list solvers'.")
    stored = f"Solutions of {dataset.name} are stored of: {', '.join(sorted(have))}."
    raise UnknownNameError("solver", solver, (), stored)


def _stored(
    dataset: Dataset, index: int, solver: str, decoding: str | None, results: Path
) -> tuple[NDArray[np.int32], str, Reference | None]:
    """Return the latest solution, what its row is called in tables, and the reference that the run knew."""
    hash_alone, runs = False, find_runs(results)
    found = {
        id(run): [c for c in run.cells() if c.is_of(dataset) and decoding in (None, c.decoding)]
        for run in runs
    }
    # A row of that very name comes before others of the solver, which have other settings.
    exact = any(cell.label == solver for cells in found.values() for cell in cells)
    for run in reversed(runs):
        cells = {c.cell: c for c in found[id(run)] if solver == (c.label if exact else c.solver)}
        for record in run.records() if cells else ():
            here = record.cell in cells and record.instance == index + dataset.first_index
            hash_alone |= here and record.solution is None and record.solution_sha256 is not None
            if here and record.solution and dataset.holds(record.instance, record.instance_sha256):
                cell = cells[record.cell]
                known = (
                    None
                    if record.reference is None
                    else Reference(record.reference, cell.reference_solver or "the record's reference")
                )
                return run.solution(record), method_name(cell), known
    asked = f" --decoding {decoding}" if decoding else ""
    _refuse_unknown(solver, dataset, results)
    if hash_alone:
        raise ResultsError(
            f"{results}: only the hash of {solver}'s solution for instance {index + 1} of {dataset.name} is kept "
            "('runs pack --solutions-up-to'); run it again with --fresh."
        )
    raise ResultsError(
        f"{results}: no stored solution of {solver}{asked} for instance {index + 1} of {dataset.name}; "
        f"make one with: nco-bench run {solver}{asked} --data {dataset.name}"
    )
