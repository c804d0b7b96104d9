"""What is installed of the native solvers, from where, under which licence, and how to get what is missing.

Nothing here imports a native package: packages are found by their metadata and files.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from nco_bench.cards import Card
from nco_bench.errors import BadInputError

KIT_CONCORDE = "ml4co_kit/solver/routing/lib/concorde/pyconcorde"
"""Where ml4co-kit keeps its compiled pyconcorde; put on the path of a child without importing ml4co-kit."""


LKH_INSIDE = {("elkai", "2.0.1"): "LKH 3.0.8", ("LKHpy", "0.0.9"): "LKH 3.0.12"}
"""Which LKH the packages wrap; they do not say so themselves."""


@dataclass(frozen=True)
class Backend:
    """A program or package that a solver can use.

    Attributes
    ----------
    kind
        ``executable``, ``package`` or ``built-in``.
    name, version
        Package (distribution) or program; version empty where it is not known.
    path
        The executable, or a folder that must be on ``sys.path``; empty for an ordinary package.
    """

    kind: str
    name: str
    version: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.kind == "executable":
            return f"executable {self.path}"
        return f"{self.kind} {self.name} {self.version}".strip()


@dataclass(frozen=True)
class Availability:
    """What `doctor` prints about one solver.

    Attributes
    ----------
    solver
        Registry name.
    backends
        What was found, by problem (``tsp``, ``cvrp``).
    missing
        What is not there and for which problem; empty if nothing is missing.
    licence, install
        Licence of the program behind it, and the command that installs it.
    """

    solver: str
    backends: dict[str, Backend]
    missing: str
    licence: str
    install: str

    @property
    def available(self) -> bool:
        """Whether the solver can solve at least one of its problems."""
        return bool(self.backends)

    @property
    def where(self) -> str:
        """Where it comes from, in one line."""
        seen = dict.fromkeys(str(b) for b in self.backends.values())
        if len(seen) < 2:
            return next(iter(seen), "")
        return ", ".join(f"{problem}: {backend}" for problem, backend in self.backends.items())


def find_package(module: str, distribution: str) -> Backend | None:
    """Return the installed package, or None; looks, but does not import."""
    try:
        if find_spec(module) is None:
            return None
    except (ImportError, ValueError):
        return None
    return Backend("package", distribution, _version(distribution))


def find_executable(program: str, variable: str) -> Backend | None:
    """Return the program named by the environment variable, or else found on PATH.

    Raises
    ------
    BadInputError
        If the variable names something that cannot be executed.
    """
    named = os.environ.get(variable)
    if named:
        path = shutil.which(named)
        if path is None:
            raise BadInputError(
                f"{variable}={named}: no such program; correct the path or unset the variable."
            )
        return Backend("executable", program, path=str(Path(path).resolve()))
    path = shutil.which(program)
    return Backend("executable", program, path=str(Path(path).resolve())) if path else None


def find_lkh(problem: str) -> Backend | None:
    """Return LKH: an executable first, else elkai for the TSP and LKHpy for the CVRP."""
    program = find_executable("LKH", "NCO_BENCH_LKH")
    if program:
        return program
    found = find_package("elkai", "elkai") if problem == "tsp" else find_package("LKHpy", "LKHpy")
    if found is None:
        return None
    inside = LKH_INSIDE.get((found.name, found.version))
    return replace(found, version=f"{found.version} ({inside})") if inside else found


def find_concorde(_: str = "tsp") -> Backend | None:
    """Return Concorde: an executable, an importable pyconcorde, or the one inside ml4co-kit.

    PyPI's package ``concorde`` is a static site generator, so an importable ``concorde`` counts only if it
    holds pyconcorde's extension module.
    """
    program = find_executable("concorde", "NCO_BENCH_CONCORDE")
    if program:
        return program
    for folder in _package_folders("concorde"):
        if list(folder.glob("_concorde*.so")):
            return Backend("package", "pyconcorde", _version("pyconcorde"), str(folder.parent))
    for folder in _package_folders("ml4co_kit"):
        inside = folder.parent / KIT_CONCORDE
        if _fits_this_python(inside / "concorde"):
            return Backend("package", "ml4co-kit", _version("ml4co-kit"), str(inside))
    return None


def _package_folders(module: str) -> list[Path]:
    spec = find_spec(module)
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []


def _fits_this_python(folder: Path) -> bool:
    return any((folder / f"_concorde{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)


def _version(distribution: str) -> str:
    try:
        return _read_version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _read_version(distribution: str) -> str:
    """Read it once per process: metadata are a mail header, whose parsing takes a millisecond. A failure is not kept."""
    return metadata.version(distribution)


def find_backend(info: Card, problem: str) -> Backend | None:
    """Return what the solver would use for the problem, or None if it is not installed.

    Raises
    ------
    BadInputError
        If ``NCO_BENCH_LKH`` or ``NCO_BENCH_CONCORDE`` names something that cannot be executed.
    """
    if info.name == "lkh3":
        return find_lkh(problem)
    if info.name == "concorde":
        return find_concorde(problem)
    found = [_any_package(alternatives) for alternatives in info.packages]
    if not found:
        return Backend("built-in", "nco-bench")
    return None if None in found else found[0]


def _any_package(modules: tuple[str, ...]) -> Backend | None:
    for module in modules:
        found = find_package(module, DISTRIBUTIONS.get(module, module))
        if found:
            return found
    return None


DISTRIBUTIONS = {
    "random_insertion": "random-insertion",
    "fast_tsp": "fast-tsp",
}
"""Module to distribution, where the names differ."""


def availability(info: Card) -> Availability:
    """Look for all that a solver needs; never raises, what is wrong becomes part of `missing`."""
    backends: dict[str, Backend] = {}
    missing = []
    for problem in info.problems or ("any",):
        try:
            found = find_backend(info, problem)
        except BadInputError as error:
            missing.append(str(error))
            continue
        if found:
            backends[problem] = found
        else:
            missing.append(problem)
    text = ""
    if missing:
        what = missing[0] if " " in missing[0] else f"not installed for {' and '.join(missing)}"
        text = f"{what}: {info.install}" if info.install else what
    return Availability(info.name, backends, text, info.licence, info.install)
