"""Solving one batch under the clock, whatever the solver does: run out of memory, crash, return too little."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nco_bench.errors import NcoBenchError, SolverFailedError
from nco_bench.problems import Instance
from nco_bench.runs.clock import timed
from nco_bench.solvers.protocol import Begins, Failure, Outcome, Progress, Solved, Solver


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
        message = f"returned {len(outcomes)} solutions for {len(batch)} instances"
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
