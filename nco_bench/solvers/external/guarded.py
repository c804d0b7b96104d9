"""A stranger's solver behind a wall of checks: whatever it raises or returns becomes one line, naming file and method."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, NcoBenchError, SolverFailedError, counted, shown
from nco_bench.problems import Instance
from nco_bench.solvers.protocol import Failure, Outcome, Progress, Solved

STATUSES = ("failed", "timeout", "oom")
MAKING = ("__init__", "prepare")
"""Methods that do a solver's own work, and whose failures are its own."""


def without_answers(dataset: Dataset) -> Dataset:
    """Return the dataset as a stranger gets it: no cost and no tour that somebody found, and no labels."""
    instances = as_asked(dataset.instances)
    return dataclasses.replace(dataset, instances=instances, references=(None,) * len(dataset))


def as_asked(instances: Sequence[Instance]) -> Sequence[Instance]:
    """Return instances without the answers that those of tasks carry."""
    if not hasattr(instances[0], "asked"):
        return instances
    return [one.asked() for one in instances]  # type: ignore[attr-defined]


def text_of(value: Any) -> str:
    """Return any object as one line that can be stored and shown, whatever its ``__str__`` does."""
    try:
        text = str(value)
    except BaseException:  # a stranger's __str__ may raise anything
        text = f"a {type(value).__name__} that cannot be shown"
    return shown(text)


def describe(error: BaseException) -> str:
    """Return an exception as one line: type, text, and the last place in its file."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen ")]
    said = isinstance(error, SyntaxError) and error.filename  # its text holds file and line
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames and not said else ""
    return f"{type(error).__name__}: {text_of(error)}{place}"


class Guarded:
    """The protocol of a solver, whatever the wrapped object does.

    Parameters
    ----------
    make
        Makes the stranger's solver.
    where
        File or package, for messages.
    alone
        Whether this process is the solver's own, where a KeyboardInterrupt is its doing.
    """

    def __init__(self, make: Callable[[], Any], where: str, *, alone: bool = False) -> None:
        self._where, self._alone = where, alone
        self._shown: tuple[Dataset, Dataset] | None = None
        self._solver = self._guard("__init__", make)

    def _guard(self, method: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (NcoBenchError, MemoryError):
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not self._alone:
                raise
            if method in MAKING:  # for a record, which is to say nothing of this machine's folders
                where = os.path.basename(self._where)
                raise SolverFailedError(f"{where}: {method}() raised {describe(error)}.") from error
            raise BadInputError(f"{self._where}: {method}() raised {describe(error)}.") from error

    def _seen(self, dataset: Dataset) -> Dataset:
        """Return a dataset as the solver may see it; in a process of its own it comes so."""
        if self._alone:
            return dataset
        if self._shown is None or self._shown[0] is not dataset:
            self._shown = dataset, without_answers(dataset)
        return self._shown[1]

    def _ask(self, method: str, default: Any, *arguments: Any) -> Any:
        """Call an optional method; `default` where the solver has none."""
        found = self._guard(method, lambda: getattr(self._solver, method, None))
        return default if found is None else self._guard(method, lambda: found(*arguments))

    def _wrong(self, method: str, found: Any, expected: str) -> BadInputError:
        return BadInputError(
            f"{self._where}: {method}() returned {text_of(found)[:80]!r}, expected {expected}."
        )

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return why the solver cannot run on the dataset, or None."""
        found = self._ask("unsupported", None, self._seen(dataset))
        if found is not None and not isinstance(found, str):
            raise self._wrong("unsupported", found, "the reason as text, or None")
        return None if found is None else text_of(found)

    def prepare(self, dataset: Dataset) -> None:
        """Let it prepare."""
        self._ask("prepare", None, self._seen(dataset))

    def batch_size(self, dataset: Dataset) -> int:
        """Return its batch size; 1 where it has none."""
        found = self._ask("batch_size", 1, self._seen(dataset))
        try:
            size = 0 if isinstance(found, bool) else operator.index(found)
        except TypeError:
            size = 0
        if size < 1:
            raise self._wrong("batch_size", found, "a whole number of 1 or more")
        return size

    def budget(self, dataset: Dataset, time_limit: float | None) -> str:
        """Return what it says of the time that it will take."""
        return text_of(self._ask("budget", "", self._seen(dataset), time_limit))

    def notes(self) -> list[str]:
        """Return its notes for the records."""
        found = self._ask("notes", [])
        if not isinstance(found, list | tuple):
            raise self._wrong("notes", found, "a list of texts")
        return [text_of(note) for note in found]

    def weights_facts(self) -> dict[str, Any] | None:
        """Return what it says of its weights: texts, numbers, and lists and tables of such, with a ``sha256``."""
        found = self._ask("weights_facts", None)
        if found is None:
            return None
        if not (isinstance(found, dict) and isinstance(found.get("sha256"), str)):
            raise self._wrong("weights_facts", found, "None, or a dict with a 'sha256'")
        plain = {text_of(key): value for key, value in found.items()}
        return {k: v if _is_plain(v) else text_of(v) for k, v in plain.items()}

    def close(self) -> None:
        """Let it free what it took."""
        self._ask("close", None)

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Return one checked outcome per instance.

        Raises
        ------
        SolverFailedError
            When `solve` raises, or returns something else, for more than one instance; one alone becomes a `Failure`.
        """
        try:
            given = list(batch) if self._alone else list(as_asked(batch))
            returned = self._solver.solve(given, seed=seed, time_limit=time_limit, progress=progress)
            outcomes = None if returned is None else list(returned)
        except (SolverFailedError, MemoryError):
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not self._alone:
                raise
            if "out of memory" in text_of(error).lower():
                raise MemoryError(describe(error)) from None
            if len(batch) > 1:
                raise SolverFailedError(describe(error)) from None
            return [Failure("failed", describe(error), traceback.format_exc())]
        if outcomes is None or len(outcomes) != len(batch):
            found = "None" if outcomes is None else f"{len(outcomes)} solutions"
            raise SolverFailedError(f"returned {found} for {counted(len(batch), 'instance')}")
        return [self._checked(outcome) for outcome in outcomes]

    def _checked(self, outcome: Any) -> Outcome:
        try:
            return checked(outcome)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not self._alone:
                raise
            return Failure("failed", f"solve() returned what cannot be read: {describe(error)}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    return (
        value is None
        or isinstance(value, str | bool | int)
        or (isinstance(value, float) and math.isfinite(value))
    )


def checked(outcome: Any) -> Outcome:
    """Return an outcome with all fields of the types that they should have; a `Failure` that says what is wrong else."""
    if type(outcome) is np.ndarray and outcome.dtype.kind in "iufb":
        return Solved(outcome)
    if isinstance(outcome, Failure):
        message = text_of(outcome.message)
        if outcome.status not in STATUSES:
            expected = f"{', '.join(STATUSES[:-1])} or {STATUSES[-1]}"
            given = text_of(outcome.status)[:40]
            return Failure(
                "failed", f"solve() returned a Failure of status {given!r}, expected {expected}: {message}"
            )
        return Failure(outcome.status, message, str(outcome.traceback)[:20_000])
    solved = outcome if isinstance(outcome, Solved) else Solved(outcome)
    array = np.asarray(solved.solution)
    if array.dtype.kind not in "iufb":
        return Failure(
            "failed", f"solve() returned {type(solved.solution).__name__}, not an array of numbers"
        )
    seconds = solved.seconds
    if not isinstance(seconds, float | int) or isinstance(seconds, bool) or not 0 <= seconds < math.inf:
        seconds = None
    try:
        trace = tuple((float(a), float(b)) for a, b in solved.trace)
    except (TypeError, ValueError):
        return Failure("failed", "solve() returned a Solved whose trace is no list of (seconds, cost)")
    return Solved(array, solved.optimal is True, None if seconds is None else float(seconds), trace)
