"""The child's side of `stranger`: a user's file or an installed package, and the solver that it registers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nco_bench.datasets.dataset import Dataset
from nco_bench.isolation.transport import unpack_instances
from nco_bench.solvers import registry
from nco_bench.solvers.protocol import Outcome, Progress

Described = dict[str, list[Any]]


class Room:
    """What lives in the child: the file (or the installed package) and, once it is made, the solver.

    Parameters
    ----------
    file
        The user's file; empty for a solver of an installed package.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._solver: Any = None
        self._dataset: Any = None

    def describe(self) -> Described:
        """Import the file and tell what solvers it registers, and of which files it is made."""
        cards = registry.import_file(Path(self._file)).values()
        fields = ("name", "problems", "paper", "version", "decodings")
        return {
            "solvers": [{key: getattr(one, key) for key in fields} for one in cards],
            "files": registry.made_of(Path(self._file)),
        }

    def create(self, name: str, options: Any) -> None:
        """Make the solver; its options say that it is in its own process."""
        info = registry.import_file(Path(self._file))[name] if self._file else registry.find(name)
        choice = registry.SolverChoice(info, options, name)
        self._solver = registry.create(choice, alone=True)

    def look(self, dataset: Dataset) -> None:
        """Take the dataset that later calls are about."""
        self._dataset = dataset

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the solver."""
        return getattr(self._solver, method)(*arguments)

    def ask_of_dataset(self, method: str, *arguments: Any) -> Any:
        """Call a method of the solver with the dataset."""
        return getattr(self._solver, method)(self._dataset, *arguments)

    def solve(self, block: Any, seed: int, time_limit: float | None, progress: Progress) -> Sequence[Outcome]:
        """Solve instances that `pack_instances` packed."""
        return self._solver.solve(
            unpack_instances(block), seed=seed, time_limit=time_limit, progress=progress
        )
