"""The protocol that every solver follows, and the options that a user can give to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nco_bench.errors import UnknownNameError
from nco_bench.isolation.outcomes import Failure, Outcome, Progress, Solved
from nco_bench.settings import parse

if TYPE_CHECKING:  # listings read this module, and load no NumPy
    from nco_bench.datasets.dataset import Dataset
    from nco_bench.problems import Instance

__all__ = [
    "Begins", "Failure", "Outcome", "Progress", "Solved", "Solver", "SolverOptions", "read_params",
]  # fmt: skip


class Solver(Protocol):
    """A solver: ``Class(options)`` must be cheap; everything slow belongs into `prepare`.

    A solver returns solutions, never costs: costs are recomputed from the raw instance. The seed of instance j of a
    batch is ``seed + j``, so that solutions do not depend on how a dataset is cut into batches.
    """

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return why this solver cannot run on the dataset, or None."""

    def prepare(self, dataset: Dataset) -> None:
        """Load weights, start child processes, compile and warm up; not timed."""

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> Sequence[Outcome]:
        """Return one outcome per instance; timed. `time_limit` is in seconds per instance."""

    def batch_size(self, dataset: Dataset) -> int:
        """Instances per call that suit this solver on this dataset (``--batch-size auto``)."""

    def close(self) -> None:
        """Free what `prepare` took."""


@runtime_checkable
class Begins(Protocol):
    """A solver that works outside of this process, so that this one can do something else meanwhile."""

    def launch(self, dataset: Dataset) -> None:
        """Do what `Solver.prepare` does, but return while it is still going on outside; `ready` waits for it."""

    def ready(self) -> None:
        """Wait for the end of `launch`; raises what `Solver.prepare` would."""

    def begin(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> Callable[[], tuple[Sequence[Outcome], float]]:
        """Start on a batch, or as soon as the one before is done, and return at once; else as `Solver.solve`.

        One batch may wait for another, no more. The results are called in the order of the batches: they wait for the
        outcomes and return them with the seconds that they took, not counting the time in which the batch waited.
        """

    def dismiss(self) -> None:
        """End what works outside, without waiting for the end: all batches are solved. `Solver.close` follows."""


@dataclass(frozen=True)
class SolverOptions:
    """What a user can set on a solver from the command line.

    Attributes
    ----------
    solver
        Registry name under which the solver was asked for; one class may serve several names.
    decoding
        Decoding name such as ``greedy`` or ``beam:16``; None means the solver's default.
    weights, logit_scale, coordinate_scale
        For neural solvers; None means the model's default.
    device
        ``cpu``, ``cuda`` or ``cuda:i`` (``auto`` is resolved before).
    params
        Further ``KEY=VALUE`` settings of this solver, as strings.
    in_process
        Whether a solver of a user's file or of an installed package lives in this process, not in one of its own.
    """

    solver: str = ""
    decoding: str | None = None
    weights: str | None = None
    logit_scale: str | None = None
    coordinate_scale: str | None = None
    device: str = "cpu"
    params: Mapping[str, str] = field(default_factory=dict)
    in_process: bool = False


def read_params(solver: str, given: Mapping[str, str], **known: tuple[type, Any]) -> dict[str, Any]:
    """Parse a solver's parameters.

    Parameters
    ----------
    solver
        Name, for messages.
    given
        ``KEY=VALUE`` settings as strings.
    known
        Name to (type, default); bool, int, float and str are understood.

    Raises
    ------
    UnknownNameError
        For a key that the solver does not have.
    BadInputError
        For a value that is not of the type.
    """
    values = {key: default for key, (_, default) in known.items()}
    for key, text in given.items():
        if key not in known:
            raise UnknownNameError(
                f"parameter of {solver}", key, known, hint=f"See 'nco-bench show {solver}'."
            )
        values[key] = parse(f"{solver}: parameter {key}", text, known[key][0])
    return values
