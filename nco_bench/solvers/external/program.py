"""Any program as a solver: ``nco-bench run solver.toml`` or ``nco-bench run external:program=./solver``.

The program reads one JSON object per line on its input, one per instance, and answers each with one line on its output::

    {"problem": "tsp", "name": "...", "n": 100, "convention": "euclidean", "coords": [[x, y], ...],
     "seed": 1234, "time_limit": null, "params": {}}
    {"solution": [0, 17, 4, ...]}

For the CVRP there are ``depot``, ``customers``, ``demand`` and ``capacity`` in place of ``coords``; matrix instances have
``matrix``. ``{"error": "why"}`` gives an instance up. It may serve all instances or end after each; at the end of its
input it should end. Its stderr is read for messages only. It returns solutions, never costs: the referee scores them.

A TOML file names a program::

    name = "my-solver"
    argv = ["./my-solver", "--fast"]   # never given to a shell; runs in the folder of this file
    problems = ["tsp", "cvrp"]         # the rest may be left out
    version = "1"
    paper = "Me (2026)"
    deterministic = true
    timeout = 3600                     # seconds per instance where the run has no --time-limit
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nco_bench.cards import Card, cards
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.isolation.program import ExternalProcess, NoAnswerError
from nco_bench.problems import Instance
from nco_bench.solvers.protocol import Failure, Outcome, Progress, Solved, SolverOptions
from nco_bench.toml_file import read_toml

NAME = "external"
TARGET = "nco_bench.solvers.external.program:ExternalSolver"
PATIENCE = 3600.0
GRACE = (1.1, 2.0)
"""A program that looks at the clock itself may take this factor of the time limit, and so many seconds more."""

FIELDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "argv": list,
    "problems": list,
    "version": str,
    "paper": str,
    "deterministic": bool,
    "timeout": (int, float),
}
NOUNS = {str: "a text", list: "a list of texts", bool: "true or false", (int, float): "a number of seconds"}
"""What a field's type is called in messages."""


@dataclass(frozen=True)
class Program:
    """A program that solves.

    Attributes
    ----------
    argv, folder
        The program with its arguments, and where it runs.
    timeout
        Seconds per instance where the run has no time limit.
    """

    argv: tuple[str, ...]
    folder: Path
    timeout: float = PATIENCE


_programs: dict[str, Program] = {}
"""Programs of TOML files by name; the file that was loaded last wins a name."""


def load_program(path: Path) -> Card:
    """Read a TOML file that names a program; the solver's version holds the hash of the file and of the program.

    Raises
    ------
    BadInputError
        If the file is missing, no TOML, lacks a field or has another type in it, or names no program that is there;
        see `read_toml`.
    UnknownNameError
        For a field that means nothing.
    """
    values = read_toml(path)
    for key, value in values.items():
        if key not in FIELDS:
            raise UnknownNameError(f"field of {path}", key, FIELDS)
        if not isinstance(value, FIELDS[key]) or (key == "timeout" and isinstance(value, bool)):
            raise BadInputError(
                f"{path}: {key} = {value!r} has the wrong type; expected {NOUNS[FIELDS[key]]}."
            )
    argv, problems = values.get("argv", []), values.get("problems", ["tsp", "cvrp"])
    if not argv or not all(isinstance(part, str) and part for part in [*argv, *problems]):
        raise BadInputError(f'{path}: expected argv = ["PROGRAM", "ARGUMENT", ...], and names in problems.')
    if values.get("timeout", PATIENCE) <= 0:
        raise BadInputError(f"{path}: timeout = {values['timeout']}: expected seconds above 0.")
    name = values.get("name", path.stem)
    if name == NAME or not name or set(name) & set(":=\n/") or name in cards():
        raise BadInputError(f"{path}: the name {name!r} is taken or holds one of : = /; choose another.")
    folder = path.resolve().parent
    program = Program(
        (_executable(argv[0], folder, path), *argv[1:]), folder, values.get("timeout", PATIENCE)
    )
    _programs[name] = program
    return Card(
        name,
        TARGET,
        tuple(problems),
        NAME,
        values.get("paper", ""),
        version=f"{values.get('version', '1')}-{_digest(program, path.read_bytes())}",
        licence="its own",
        deterministic=values.get("deterministic", True),
    )


def program_info(given: dict[str, str]) -> Card:
    """Describe ``external:program=PATH``.

    Raises
    ------
    BadInputError
        If it names no program that is there.
    """
    version = _digest(_named_program(given), b"")
    return Card(NAME, TARGET, (), NAME, "", version=f"1-{version}", licence="its own")


def _named_program(params: dict[str, str]) -> Program:
    if not params.get("program"):
        raise BadInputError(
            "external: name a program: external:program=./solver, or a file solver.toml in its place."
        )
    folder = Path.cwd()
    return Program((_executable(params["program"], folder, Path(NAME)),), folder)


def _executable(program: str, folder: Path, place: Path) -> str:
    """Find a program: a path from the folder, or a name on PATH."""
    local = (folder / program).resolve()
    found = shutil.which(str(local)) if "/" in program or local.is_file() else shutil.which(program)
    if found is None:
        cause = "cannot be executed (chmod +x?)" if local.is_file() else "no such program"
        raise BadInputError(f"{place}: {program}: {cause}.")
    return found


def _digest(program: Program, more: bytes) -> str:
    """Hash what decides the solutions: the file that names the program, and every argument that is a file."""
    digest = hashlib.sha256(more)
    for part in program.argv:
        path = program.folder / part
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


class ExternalSolver:
    """A program behind the solver protocol."""

    def __init__(self, options: SolverOptions) -> None:
        self.params = dict(options.params)
        known = _programs.get(options.solver)
        self.program = _named_program(self.params) if known is None else known
        if known is None:
            del self.params["program"]
        self._process: ExternalProcess | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return None: what a program does not know it says itself, instance by instance."""
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Start the program."""
        self.close()
        self._process = ExternalProcess(self.program.argv, self.program.folder)
        try:
            self._process.start()
        except NoAnswerError as error:
            raise BadInputError(f"{error}.") from error

    def batch_size(self, dataset: Dataset) -> int:
        """Return 1, so that every record is written at once."""
        return 1

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Ask for each instance; what is no answer becomes a failure of that instance alone."""
        outcomes = []
        for offset, instance in enumerate(batch):
            outcomes.append(self._ask(instance, seed + offset, time_limit))
            progress(offset + 1)
        return outcomes

    def _ask(self, instance: Instance, seed: int, time_limit: float | None) -> Outcome:
        assert self._process is not None, "call prepare first"
        patience = self.program.timeout if time_limit is None else time_limit * GRACE[0] + GRACE[1]
        question = question_of(instance, seed, time_limit, self.params)
        start = time.perf_counter()
        try:
            line = self._process.ask(question, patience)
            seconds = time.perf_counter() - start
            return Solved(solution_in(line), seconds=seconds)
        except NoAnswerError as error:
            return Failure(error.status, str(error))

    def close(self) -> None:
        """Kill the program."""
        if self._process is not None:
            self._process.close()
            self._process = None


def question_of(instance: Instance, seed: int, time_limit: float | None, params: dict[str, str]) -> bytes:
    """Write an instance as one line of JSON, floats in full precision."""
    arrays: dict[str, Any] = {
        key: np.ascontiguousarray(value) if value.ndim else value.item()
        for key, value in instance.arrays().items()
    }
    facts = {"problem": instance.problem, "name": instance.name, "n": instance.n}
    asked = {"seed": seed, "time_limit": time_limit, "params": params}
    return orjson.dumps(
        {**facts, "convention": instance.convention, **arrays, **asked}, option=orjson.OPT_SERIALIZE_NUMPY
    )


def solution_in(line: bytes) -> np.ndarray:
    """Read an answer; whether it is a solution of the instance is for the referee to say.

    Raises
    ------
    NoAnswerError
        For anything but a JSON object with a ``solution`` of whole numbers, or with an ``error``.
    """
    shown = line[:80].decode(errors="replace")
    try:
        answer = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise NoAnswerError("failed", f"answered with a line that is no JSON: {shown!r}") from None
    if not isinstance(answer, dict) or not ({"solution", "error"} & answer.keys()):
        raise NoAnswerError("failed", f"answered without a solution: {shown!r}")
    if "solution" not in answer:
        raise NoAnswerError("failed", f"gave up: {str(answer['error'])[:300]}")
    try:
        solution = np.asarray(answer["solution"])
    except ValueError:
        solution = np.empty(0)
    # An empty list has no numbers that could be whole.
    if solution.dtype.kind not in "iu" and solution.size:
        raise NoAnswerError("failed", f"answered with a solution that is no list of whole numbers: {shown!r}")
    return solution.astype(np.int64)
