"""What all classical solvers have in common: parameters, availability, a child process, a time limit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nco_bench.cards import Card, card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.isolation.child import ChildProcess
from nco_bench.problems import Instance
from nco_bench.solvers.availability import Backend, find_backend
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, read_params

BATCH_NODES = 50_000
BATCH_INSTANCES = 128


class ChildSolver:
    """A solver whose work is one function, called per instance in a child process.

    A solver's file states what differs: the class attributes, and the function.

    Attributes
    ----------
    NAME
        Registry name.
    SOLVE
        ``module:function``, called as ``function(instance, seed, time_limit, params)`` in the child.
    PARAMS
        Name to (type, default), see `read_params`.
    CONVENTIONS
        Distance conventions it can work under, by problem; None where it takes them all.
    MAX_N
        Largest size it is known to survive, by problem.
    FRESH
        Whether each instance needs a fresh process, because the native code keeps state.
    QUICK
        Whether it takes milliseconds, so that batches pay and a hang is recognised without a time limit.
    GRACE
        How much longer than the time limit it may take before it is killed: (factor, seconds). Programs that look
        at the clock themselves get some; the others get none.
    """

    NAME: ClassVar[str]
    SOLVE: ClassVar[str]
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {}
    MAX_N: ClassVar[dict[str, int]] = {}
    FRESH: ClassVar[bool] = False
    QUICK: ClassVar[bool] = False
    GRACE: ClassVar[tuple[float, float]] = (1.0, 0.0)

    def __init__(self, options: SolverOptions) -> None:
        self.params = read_params(self.NAME, options.params, **self.PARAMS)
        self._child: ChildProcess | None = None
        self._program: Backend | None = None

    @property
    def info(self) -> Card:
        """The solver's line in the table."""
        return card(self.NAME)

    def backend(self, problem: str) -> Backend | None:
        """Return the program or package that solves this problem here, None if there is none."""
        return find_backend(self.info, problem)

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return why this solver cannot run on the dataset, or None."""
        if dataset.problem not in self.info.problems:
            return f"{self.NAME} solves {' and '.join(self.info.problems)}, not {dataset.problem}"
        backend = self.backend(dataset.problem)
        if backend is None:
            return f"{self.NAME} is not installed for {dataset.problem}: {self.info.install}"
        return self.check(dataset, backend)

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Return what in the dataset does not suit the solver; a solver with more to say overrides this."""
        most = self.MAX_N.get(dataset.problem)
        if most is not None and backend.kind != "executable" and dataset.sizes[1] > most:
            return f"{self.NAME} with {backend} takes at most {most} nodes, {dataset.name} has {dataset.sizes[1]}"
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Start the child process and warm it up; not timed."""
        self.launch(dataset)
        self.ready()

    def launch(self, dataset: Dataset) -> None:
        """Start the child process without waiting for it; see `Begins.launch`."""
        reason = self.unsupported(dataset)
        if reason:
            raise BadInputError(reason)
        self.close()
        backend = self.backend(dataset.problem)
        self._program = backend if backend is not None and backend.kind == "executable" else None
        params = {**self.params, "backend": backend, "problem": dataset.problem}
        self._child = ChildProcess(self.SOLVE, params, fresh=self.FRESH)
        self._child.launch()

    def ready(self) -> None:
        """Wait until the child process has warmed up."""
        assert self._child is not None, "call prepare or launch first"
        self._child.start()

    def batch_size(self, dataset: Dataset) -> int:
        """Instances per call: one where an instance takes long, so that its record is written at once."""
        return max(1, min(BATCH_INSTANCES, BATCH_NODES // dataset.sizes[1])) if self.QUICK else 1

    def kill_after(self, time_limit: float | None, n: int) -> float | None:
        """Seconds after which an instance of size `n` counts as hung; None if only the user can tell."""
        if time_limit is not None:
            return time_limit * self.GRACE[0] + self.GRACE[1]
        return 60.0 + 2e-7 * n * n if self.QUICK else None

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> Sequence[Outcome]:
        """Return one outcome per instance; see `Solver.solve`."""
        return self.begin(batch, seed=seed, time_limit=time_limit, progress=progress)()[0]

    def begin(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> Callable[[], tuple[Sequence[Outcome], float]]:
        """Send a batch to the child process and return what waits for it; see `Begins.begin`."""
        assert self._child is not None, "call prepare first"
        largest = max(instance.n for instance in batch)
        return self._child.begin(
            batch,
            seed=seed,
            time_limit=time_limit,
            kill_after=self.kill_after(time_limit, largest),
            progress=progress,
        )

    def notes(self) -> list[str]:
        """Say which executable solved, by its hash; records hold the versions of packages anyway."""
        if self._program is None:
            return []
        digest = hashlib.sha256(Path(self._program.path).read_bytes()).hexdigest()
        return [f"solved by an executable {self._program.name}, sha256 {digest[:16]}"]

    def dismiss(self) -> None:
        """Kill the child process without waiting for its end; see `Begins.dismiss`."""
        if self._child is not None:
            self._child.dismiss()

    def close(self) -> None:
        """Kill the child process."""
        if self._child is not None:
            self._child.close()
            self._child = None
