"""What became of an instance that was solved somewhere, and how far a batch is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # listings read this module, and load no NumPy
    import numpy as np
    from numpy.typing import NDArray

Progress = Callable[[int], None]
"""Called with the number of instances of the batch that are done so far."""


@dataclass(frozen=True)
class Failure:
    """What a solver returns in place of a solution for an instance that it could not solve.

    Attributes
    ----------
    status
        ``failed`` (crash, nonsense), ``timeout`` (nothing found in time) or ``oom``.
    message
        One line for the record: the cause, with the end of the program's stderr where there is one.
    traceback
        Where it happened, for ``--debug``; empty where nobody knows.
    """

    status: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class Solved:
    """A solution with facts about how it was found; a solver may return a bare array instead.

    Attributes
    ----------
    solution
        Integer array, see the problem's module.
    optimal
        True if the solver proved optimality.
    seconds
        Time of this instance alone, where the solver solves a batch one by one and clocks itself; the runner
        uses it to split the batch time and never lets the sum exceed the time it measured.
    trace
        Anytime solvers: (seconds, cost as the solver sees it) pairs; kept for plots, never for tables.
    """

    solution: NDArray[np.integer]
    optimal: bool = False
    seconds: float | None = None
    trace: tuple[tuple[float, float], ...] = ()


Outcome: TypeAlias = "NDArray[np.integer] | Solved | Failure"
