"""One instance alone: the warm-up of a solver, and its time at batch size 1."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from nco_bench.datasets.dataset import Dataset
from nco_bench.progress import tracked
from nco_bench.runs.records import Cell
from nco_bench.runs.request import RunRequest
from nco_bench.runs.solving import SolvedBatch, solve_batch
from nco_bench.solvers.protocol import Failure, Solver

REPEATS = 3
BUDGET_SECONDS = 5.0


@dataclass(frozen=True)
class Alone:
    """What the first instance took alone.

    Attributes
    ----------
    seconds
        Median; None where it was not measured or not solved.
    answer
        Its solution, where finding it took longer than the budget and the same call would be the first batch of the run:
        half an hour of RRC is not to be spent twice. Only with batches of one, and from instance 0 on.
    """

    seconds: float | None = None
    answer: SolvedBatch | None = None


def measured_alone(solver: Solver, dataset: Dataset, request: RunRequest, cell: Cell) -> Alone:
    """Warm up and measure one instance alone; not where the batch size is 1 and the records say it."""
    if cell.batch_size == 1 and cell.kind != "neural":
        return Alone()
    seconds, first = _timed(solver, dataset, request, cell.device)
    same = cell.batch_size == 1 and dataset.first_index == 0
    return Alone(seconds, first if same else None)


def time_alone(solver: Solver, dataset: Dataset, request: RunRequest, device: str) -> float | None:
    """Warm up, and return the median seconds of the first instance alone; None where it cannot be solved."""
    return _timed(solver, dataset, request, device)[0]


def _timed(
    solver: Solver, dataset: Dataset, request: RunRequest, device: str
) -> tuple[float | None, SolvedBatch | None]:
    """Solve the first instance up to 1 + `REPEATS` times; return the median time, and the answer where once was enough.

    A first solution that takes longer than the budget is itself the measurement: warm-up no longer matters then.
    The time that a failure took says nothing.
    """
    times: list[float] = []
    deadline = time.monotonic() + BUDGET_SECONDS
    instance = dataset.instances[0]
    answer = None
    for tried in tracked(range(1 + REPEATS), "warm-up"):
        batch = solve_batch(
            solver, [instance], seed=request.seed, time_limit=request.time_limit, device=device,
            progress=lambda _: None,
        )  # fmt: skip
        solved = not isinstance(batch.outcomes[0], Failure)
        if solved:
            times.append(batch.elapsed)
        if time.monotonic() > deadline:
            answer = batch if tried == 0 and solved else None
            break
    warm = times[1:] or times
    return (statistics.median(warm) if warm else None), answer
