"""Solving one batch under the clock, whatever the solver does: run out of memory, crash, return too little.

The first instance is solved alone before: that is a solver's warm-up, and its time at batch size 1.
"""

from __future__ import annotations

import os
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import NcoBenchError, SolverFailedError, counted
from nco_bench.problems import Instance
from nco_bench.progress import tracked
from nco_bench.runs.clock import timed
from nco_bench.runs.records import Cell
from nco_bench.runs.request import RunRequest, seed_of
from nco_bench.solvers.protocol import Begins, Failure, Outcome, Progress, Solved, Solver

ALONE_REPEATS, ALONE_SECONDS = 3, 5.0
"""How often the first instance is solved alone after its warm-up, and for how long at most."""


@dataclass(frozen=True)
class SolvedBatch:
    """Outcomes in the order of the batch, seconds per instance, and the wall time of the successful calls."""

    outcomes: list[Outcome]
    seconds: list[float]
    elapsed: float


def begin_batch(
    solver: Solver,
    batch: Sequence[Instance],
    *,
    seed: int,
    time_limit: float | None,
    device: str,
    progress: Progress,
) -> Callable[[], SolvedBatch]:
    """Hand a batch to the solver; call the result to wait for it, with what `solve_batch` returns.

    Only a solver in another process, on a processor of its own, may begin before; any other does all its work when it is
    waited for, so that nothing of ours runs beside it. A batch that goes wrong is left to `solve_batch`. Results are to be
    called in order, and at most one more batch is handed over before, see `Begins`.
    """

    def again() -> SolvedBatch:
        return solve_batch(solver, batch, seed=seed, time_limit=time_limit, device=device, progress=progress)

    if not isinstance(solver, Begins) or processors() < 2:
        return again
    try:
        wait = solver.begin(batch, seed=seed, time_limit=time_limit, progress=progress)
    except Exception:
        return again

    def finish() -> SolvedBatch:
        try:
            outcomes, elapsed = wait()
        except Exception:
            return again()
        if len(outcomes) != len(batch):
            return again()
        return SolvedBatch(list(outcomes), _split(outcomes, elapsed), elapsed)

    return finish


def processors() -> int:
    """Return how many processors this process may use."""
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available is not None else os.cpu_count() or 1


def solve_batch(
    solver: Solver,
    batch: Sequence[Instance],
    *,
    seed: int,
    time_limit: float | None,
    device: str,
    progress: Progress,
) -> SolvedBatch:
    """Solve a batch; out of memory halves it, any other error is tracked down to its instance.

    At batch size 1 an out-of-memory becomes an ``oom`` outcome and an exception a ``failed`` one, so that one bad
    instance never ends a run. User mistakes (`NcoBenchError` other than `SolverFailedError`) pass through.
    """
    try:
        returned, elapsed = timed(
            lambda: solver.solve(batch, seed=seed, time_limit=time_limit, progress=progress), device
        )
    except SolverFailedError as error:
        status, message, where = "failed", str(error), ""
    except NcoBenchError:
        raise
    except Exception as error:
        status = "oom" if is_out_of_memory(error) else "failed"
        message, where = _one_line(error), traceback.format_exc()
    else:
        outcomes = list(returned) if returned is not None else []
        if len(outcomes) == len(batch):
            return SolvedBatch(outcomes, _split(outcomes, elapsed), elapsed)
        status, where = "failed", ""
        message = f"returned {counted(len(outcomes), 'solution')} for {counted(len(batch), 'instance')}"
    if len(batch) == 1:
        return SolvedBatch([Failure(status, message, where)], [0.0], 0.0)
    middle = len(batch) // 2
    parts = [
        _solve_part(solver, batch, slice(0, middle), seed, time_limit, device, progress),
        _solve_part(solver, batch, slice(middle, len(batch)), seed, time_limit, device, progress),
    ]
    return SolvedBatch(
        [o for p in parts for o in p.outcomes],
        [s for p in parts for s in p.seconds],
        sum(p.elapsed for p in parts),
    )


def _solve_part(
    solver: Solver,
    batch: Sequence[Instance],
    part: slice,
    seed: int,
    time_limit: float | None,
    device: str,
    progress: Progress,
) -> SolvedBatch:
    def advance(done: int) -> None:
        progress(part.start + done)

    return solve_batch(
        solver, batch[part], seed=seed + part.start, time_limit=time_limit, device=device, progress=advance
    )


def _split(outcomes: Sequence[Outcome], elapsed: float) -> list[float]:
    """Share the batch's wall time among instances: by the solver's own clock where it has one, else evenly."""
    own = [o.seconds if isinstance(o, Solved) else None for o in outcomes]
    known = [s for s in own if s is not None]
    if len(known) == len(own) and sum(known) > 0:
        factor = elapsed / sum(known)
        return [s * factor for s in known]
    return [elapsed / len(outcomes)] * len(outcomes)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell an out-of-memory on host or device from other errors, without importing torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "not enough memory" in text)


def _one_line(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1] if error.__traceback__ else None
    place = f" at {where.filename.rsplit('/', 1)[-1]}:{where.lineno}" if where else ""
    return " ".join(f"{type(error).__name__}: {error}{place}".split())


@dataclass(frozen=True)
class Alone:
    """What the first instance took alone.

    Attributes
    ----------
    seconds
        Median; None where it was not measured or not solved.
    answer
        Its solution, where finding it took longer than the budget and the same call would be the first batch of the run:
        half an hour of RRC is not to be spent twice. Only from instance 0 on.
    """

    seconds: float | None = None
    answer: SolvedBatch | None = None


def measured_alone(solver: Solver, dataset: Dataset, request: RunRequest, cell: Cell) -> Alone:
    """Warm up and measure one instance alone; not where the batch size is 1 and the records say it."""
    if cell.batch_size == 1 and cell.kind != "neural":
        return Alone()
    seconds, first = _timed(solver, dataset, request, cell.device)
    return Alone(seconds, first if dataset.first_index == 0 else None)


def time_alone(solver: Solver, dataset: Dataset, request: RunRequest, device: str) -> float | None:
    """Warm up, and return the median seconds of the first instance alone; None where it cannot be solved."""
    return _timed(solver, dataset, request, device)[0]


def _timed(
    solver: Solver, dataset: Dataset, request: RunRequest, device: str
) -> tuple[float | None, SolvedBatch | None]:
    """Solve the first instance some times; return the median time, and the answer where once was enough.

    A first solution that takes longer than the budget is itself the measurement: warm-up no longer matters then.
    The time that a failure took says nothing.
    """
    times: list[float] = []
    deadline = time.monotonic() + ALONE_SECONDS
    instance = dataset.instances[0]
    answer = None
    for tried in tracked(range(1 + ALONE_REPEATS), "warm-up"):
        batch = solve_batch(
            solver, [instance], seed=seed_of(request.seed, dataset.first_index, 0), device=device,
            time_limit=request.time_limit, progress=lambda _: None,
        )  # fmt: skip
        solved = not isinstance(batch.outcomes[0], Failure)
        if solved:
            times.append(batch.elapsed)
        if time.monotonic() > deadline:
            answer = batch if tried == 0 and solved else None
            break
    warm = times[1:] or times
    return (statistics.median(warm) if warm else None), answer
