"""What a run would do, without doing it: what is to be solved, what is stored, how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, counted
from nco_bench.runs.finding import find_runs
from nco_bench.runs.ready import usable
from nco_bench.runs.records import Cell
from nco_bench.runs.request import (
    CellPlan,
    RunRequest,
    describe,
    ended_early,
    load_datasets,
    plan_cells,
    worker_devices,
)
from nco_bench.runs.solving import time_alone
from nco_bench.runs.store import DONE
from nco_bench.runs.store import done as stored_before
from nco_bench.solvers.protocol import Begins, Solver


@dataclass(frozen=True)
class PlannedCell:
    """One solver and decoding on one dataset with one seed.

    Attributes
    ----------
    solver, decoding, dataset, seed, device
        As the records would say it; `solver` with its options.
    solves
        Instances times repeats that are asked for.
    stored
        Of these, how many are stored and would not be computed again.
    to_solve
        The others.
    seconds_per_instance
        Expected, or None where nobody knows.
    basis
        What that comes from, in words.
    seconds
        Expected wall time of what is to be solved, all jobs at work; without loading weights and instances.
    """

    solver: str
    decoding: str
    dataset: str
    seed: int
    device: str
    solves: int
    stored: int
    to_solve: int
    seconds_per_instance: float | None
    basis: str
    seconds: float | None

    def in_short(self) -> dict[str, str | int]:
        """Return what a terminal shows of it."""
        each = "" if self.seconds_per_instance is None else f"{self.seconds_per_instance:.3g} s"
        return {
            "solver": f"{self.solver} {self.decoding}".strip(),
            "dataset": self.dataset,
            "seed": self.seed,
            "to solve": self.to_solve,
            "stored": self.stored,
            "each": each,
            "time": duration(self.seconds),
            "from": self.basis or "all is stored",
        }


def duration(seconds: float | None) -> str:
    """Return a time in words that are short: ``0.4 s``, ``3 min``, ``2.5 h``."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True, repr=False)
class Plan:
    """All cells of a run, and a line for each that cannot run."""

    cells: tuple[PlannedCell, ...]
    skipped: tuple[str, ...]

    @property
    def to_solve(self) -> int:
        """Instances that would be solved."""
        return sum(cell.to_solve for cell in self.cells)

    @property
    def stored(self) -> int:
        """Instances that are stored."""
        return sum(cell.stored for cell in self.cells)

    @property
    def seconds(self) -> float | None:
        """Expected wall time in all; None where that of a cell is not known."""
        known = [cell.seconds for cell in self.cells if cell.seconds is not None]
        return sum(known) if len(known) == len(self.cells) else None

    def sentence(self) -> str:
        """Return the sum of it in words."""
        return f"{self.to_solve:,} to solve, {self.stored:,} stored; expected time {duration(self.seconds)}"

    def __repr__(self) -> str:
        lines = [
            ", ".join(f"{key}: {value}" for key, value in cell.in_short().items()) for cell in self.cells
        ]
        return "\n".join([*lines, *self._skipped(), self.sentence()])

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it."""
        rows = [cell.in_short() for cell in self.cells]
        head = "".join(f"<th>{escape(key)}</th>" for key in rows[0])
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(str(v))}</td>' for v in row.values())}</tr>" for row in rows
        )
        below = "".join(f"<div>{escape(line)}</div>" for line in (*self._skipped(), self.sentence()))
        return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"

    def _skipped(self) -> list[str]:
        return [f"would skip {line}" for line in self.skipped]


def plan(requests: Sequence[RunRequest], tell: Callable[[str], None]) -> Plan:
    """Say what a run would do; nothing is written.

    The time is that of stored records of the same configuration, on the same set or else on sets of the same size. Where
    there are none, the first instance is solved, alone, and its solution forgotten.

    Parameters
    ----------
    requests
        That differ in nothing but their seed.
    tell
        Called with a line where a dataset ends before the limit, or an instance is to be solved for the estimate.

    Raises
    ------
    BadInputError
        When no solver can run on any of the datasets.
    """
    first = requests[0]
    datasets = load_datasets(first)
    ready, skipped = usable(plan_cells(first, datasets))
    if not ready:
        raise BadInputError("; ".join(dict.fromkeys(skipped)) + ".")
    for line in ended_early(first, datasets):
        tell(line)
    cells = [cell for one, solver in ready for cell in _plan_cell(requests, one, solver, tell)]
    return Plan(tuple(cells), tuple(skipped))


def _plan_cell(
    requests: Sequence[RunRequest], one: CellPlan, solver: Solver, tell: Callable[[str], None]
) -> list[PlannedCell]:
    dataset = one.dataset
    if isinstance(solver, Begins):
        solver.launch(dataset)
        solver.ready()
    else:
        solver.prepare(dataset)
    try:
        cell = describe(requests[0], one, solver, 0)
        stored = [_stored(request, cell, dataset) for request in requests]
        solves = requests[0].repeats * len(dataset)
        seconds, basis = None, ""
        if any(count < solves for count in stored):
            seconds, basis = expect(requests[0], cell, dataset, solver, tell)
        return [
            _planned(request, cell, solves, count, seconds, basis)
            for request, count in zip(requests, stored, strict=True)
        ]
    finally:
        getattr(solver, "close", lambda: None)()


def _planned(
    request: RunRequest, cell: Cell, solves: int, stored: int, seconds: float | None, basis: str
) -> PlannedCell:
    left = solves - stored
    at_once = max(1, min(len(worker_devices(request)), cell.instances))
    needed = 0.0 if not left else None if seconds is None else seconds * left / at_once
    return PlannedCell(
        solver=cell.label,
        decoding=cell.decoding,
        dataset=cell.dataset,
        seed=request.seed,
        device=cell.device,
        solves=solves,
        stored=stored,
        to_solve=left,
        seconds_per_instance=seconds if left else None,
        basis=basis if left else "",
        seconds=needed,
    )


def _stored(request: RunRequest, cell: Cell, dataset: Dataset) -> int:
    if request.fresh:
        return 0
    found = stored_before(request.results, cell.config_sha256, request.seed, dataset)
    return sum(repeat < request.repeats for repeat, _ in found)


def expect(
    request: RunRequest, cell: Cell, dataset: Dataset, solver: Solver, tell: Callable[[str], None]
) -> tuple[float | None, str]:
    """Return the seconds to expect per instance, and why."""
    known = known_seconds(request.results, cell, dataset)
    if known is not None:
        return known
    tell(
        f"{f'{cell.label} {cell.decoding}'.strip()} on {cell.dataset}: solving one instance for the estimate"
    )
    seconds = time_alone(solver, dataset, request, cell.device)
    if seconds is None:
        return None, "the first instance could not be solved"
    faster = f"; batches of {cell.batch_size} may be faster" if cell.batch_size > 1 else ""
    return seconds, f"one instance solved alone{faster}"


def known_seconds(results: Path, cell: Cell, dataset: Dataset) -> tuple[float, str] | None:
    """Mean seconds of stored records of the same configuration: of the set, or else of other sets of the same size."""
    of_set: list[float] = []
    of_size: list[float] = []
    smallest, largest = dataset.sizes
    for run in find_runs(results):
        cells = {c.cell: c.is_of(dataset) for c in run.cells() if c.config_sha256 == cell.config_sha256}
        for line in run.raw_records() if cells else ():
            if line["cell"] not in cells or line["status"] not in DONE:
                continue
            if cells[line["cell"]]:
                of_set.append(line["seconds"])
            elif smallest == largest == line["n"]:
                of_size.append(line["seconds"])
    if of_set:
        return fmean(of_set), counted(len(of_set), "stored record")
    if of_size:
        return fmean(of_size), f"{counted(len(of_size), 'stored record')} of other sets of n = {largest:,}"
    return None
