"""Solvers of a user's file or of an installed package, in a process of their own.

`StrangerSolver` follows the solver's protocol here and calls the real one there (`room`, through `isolation.foreign`). A
crash, an exit or a hang costs the instance in hand; the process is then started anew.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nco_bench.cards import Card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, NcoBenchError, SolverFailedError
from nco_bench.isolation.foreign import ChildDiedError, ForeignProcess
from nco_bench.isolation.transport import pack_instances
from nco_bench.problems import Instance
from nco_bench.solvers.external.guarded import MAKING, as_asked, without_answers
from nco_bench.solvers.own_modules import State, state_of
from nco_bench.solvers.protocol import Failure, Outcome, Progress, SolverOptions

MAKER = "nco_bench.solvers.external.room:Room"
UNTIMED_SECONDS = {"import": 300.0, "prepare": 3600.0}
"""How long importing a file and preparing may take, of the child's own time; other methods as long as an import."""
PATIENCE = "NCO_BENCH_PATIENCE"
"""Environment variable with seconds in place of these."""
CLOSE_SECONDS = 5.0
GRACE = (1.1, 2.0)
"""How much longer than its time limit a batch may take before it is killed: factor and seconds."""


def patience(method: str = "import") -> float:
    """Return how many seconds of its own time a method that is not timed may take."""
    given = os.environ.get(PATIENCE)
    if given is None:
        return UNTIMED_SECONDS.get(method, UNTIMED_SECONDS["import"])
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise BadInputError(f"{PATIENCE}={given}: expected seconds above 0, such as 600.")
    return seconds


_loaded: dict[str, ForeignProcess] = {}
"""Processes that have imported a file to describe it, by file, until the first solver of it takes one over."""


_described: dict[str, tuple[State, list[Card]]] = {}
"""Cards of the solvers of files, with what shows that a file that they are made of was edited since."""


def described(file: Path) -> list[Card]:
    """Import a user's file in a process of its own and return the cards of the solvers that it registers.

    A file that was described before is imported again only if it, or a module of its own, was edited since.

    Raises
    ------
    BadInputError
        If the file cannot be imported, or takes longer than `patience`.
    """
    state, cards = _described.get(str(file), ((), []))
    if state and state == state_of(path for path, *_ in state):
        return cards
    process = ForeignProcess(MAKER, str(file))
    try:
        found = process.call("describe", seconds=patience())
        cards = [_card(file, one) for one in found["solvers"]]
        state = state_of(map(str, found["files"]))
    except (SolverFailedError, MemoryError, TypeError, KeyError) as error:
        process.close()
        raise BadInputError(f"{file}: cannot be imported: {error}{_longer(error)}.") from None
    except BaseException:
        process.close()
        raise
    _loaded[str(file)] = process
    _described[str(file)] = state, cards
    return cards


def _longer(error: Exception) -> str:
    """Say how a method gets more time, where it was killed for want of it."""
    late = isinstance(error, ChildDiedError) and error.status == "timeout"
    return f"; {PATIENCE}=SECONDS gives it longer" if late else ""


def _card(file: Path, known: dict[str, Any]) -> Card:
    name, paper, version = (str(known[key]) for key in ("name", "paper", "version"))
    problems, decodings = (tuple(map(str, known[key])) for key in ("problems", "decodings"))
    return Card(name, f"{file}:{name}", problems, "external", paper, decodings=decodings, version=version)


class StrangerSolver:
    """A solver that lives in another process.

    Parameters
    ----------
    info
        Its card; the target of a file's solver is ``FILE.py:NAME``.
    options
        As its class takes them.
    """

    def __init__(self, info: Card, options: SolverOptions) -> None:
        file = info.target.rpartition(":")[0]
        self._where = file if file.endswith(".py") else f"package of {info.name}"
        self._name, self._options = info.name, findable(dataclasses.replace(options, in_process=True))
        self._process = (
            _loaded.pop(file)
            if file in _loaded
            else ForeignProcess(MAKER, file if file.endswith(".py") else "")
        )
        self._made = self._prepared = False
        self._dataset: Dataset | None = None

    def _call(self, method: str, *arguments: Any, **how: Any) -> Any:
        """Call the other process, which is brought to where the last one was if it is a new one."""
        if not (self._made and self._process.runs):
            self._process.call("create", self._name, self._options, seconds=patience("prepare"))
            self._made = True
            if self._dataset is not None:
                self._process.call("look", without_answers(self._dataset), seconds=patience())
                if self._prepared:
                    self._process.call("ask_of_dataset", "prepare", seconds=patience("prepare"))
        return self._process.call(method, *arguments, **how)

    def _ask(self, method: str, *arguments: Any, dataset: Dataset | None = None) -> Any:
        """Call what is no solving: when the process dies of it, the user has to mend the solver.

        Only that it cannot be made or prepared is a failure of it alone, beside which others run.
        """
        try:
            if dataset is None:
                return self._call("ask", method, *arguments, seconds=patience(method))
            if dataset is not self._dataset:
                self._dataset, self._prepared = None, False
                self._call("look", without_answers(dataset), seconds=patience())
                self._dataset = dataset
            return self._call("ask_of_dataset", method, *arguments, seconds=patience(method))
        except SolverFailedError as error:
            step = method if self._made else "__init__"
            told = f"{step}(): {error}{_longer(error)}."
            if step not in MAKING:
                raise BadInputError(f"{self._where}: {told}") from None
            if not isinstance(error, ChildDiedError):
                raise  # it says where
            raise SolverFailedError(f"{os.path.basename(self._where)}: {told}") from None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return why it cannot run on the dataset, or None."""
        found = self._ask("unsupported", dataset=dataset)
        return None if found is None else str(found)

    def prepare(self, dataset: Dataset) -> None:
        """Let it prepare; again whenever its process had to be started anew."""
        self._ask("prepare", dataset=dataset)
        self._prepared = True

    def batch_size(self, dataset: Dataset) -> int:
        """Return its batch size."""
        return int(self._ask("batch_size", dataset=dataset))

    def budget(self, dataset: Dataset, time_limit: float | None) -> str:
        """Return what it says of the time that it will take."""
        return str(self._ask("budget", time_limit, dataset=dataset))

    def notes(self) -> list[str]:
        """Return its notes for the records."""
        return list(map(str, self._ask("notes")))

    def weights_facts(self) -> dict[str, Any] | None:
        """Return what it says of its weights."""
        found = self._ask("weights_facts")
        return dict(found) if found is not None else None

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> Sequence[Outcome]:
        """Return one outcome per instance; a batch that cannot be had as a whole raises, and is cut in two by the runner."""
        factor, more = GRACE
        seconds = None if time_limit is None else factor * time_limit * len(batch) + more
        try:
            found = self._call(
                "solve", pack_instances(as_asked(batch)), seed, time_limit, seconds=seconds, progress=progress
            )
        except ChildDiedError as error:
            if len(batch) > 1:
                raise
            return [Failure(error.status, str(error))]
        except BadInputError as error:  # of a process that was started anew
            raise SolverFailedError(str(error)) from None
        return found if isinstance(found, list) else []

    def close(self) -> None:
        """Let it free what it took, for five seconds at most, and end its process."""
        try:
            if self._made and self._process.runs:
                self._process.call("ask", "close", seconds=CLOSE_SECONDS)
        except (NcoBenchError, MemoryError) as error:
            print(f"{self._where}: close(): {error}", file=sys.stderr)
        finally:
            self._made = self._prepared = False
            self._process.close()


def findable(options: SolverOptions) -> SolverOptions:
    """Make relative paths of files absolute: the other process works in a folder of its own."""
    weights, params = options.weights, {key: _absolute(value) for key, value in options.params.items()}
    return dataclasses.replace(
        options, weights=None if weights is None else _absolute(weights), params=params
    )


def _absolute(value: str) -> str:
    path = Path(value)
    return (
        str(path.resolve())
        if value and len(value) < 4096 and os.path.exists(value) and path.suffix
        else value
    )
