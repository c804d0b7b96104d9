"""Solvers by name, with options: those with cards, a user's files, programs. It imports what is asked for only."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nco_bench.arguments import several
from nco_bench.cards import ENTRY_POINTS, Card, card, cards
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.settings import pairs
from nco_bench.solvers.protocol import Solver, SolverOptions

C = TypeVar("C", bound=type)
NEEDED = ("unsupported", "prepare", "solve")
"""Methods without which a class is no solver."""


@dataclass(frozen=True)
class SolverChoice:
    """A solver with the options it was asked for; `label` is what tables print, `text` how it was asked for."""

    info: Card
    options: SolverOptions
    label: str
    text: str = ""


_registered: dict[str, Card] = {}
"""Solvers of user files by name; the file that was loaded last wins a name."""

_of_file: dict[str, dict[str, Card]] = {}
"""Module name of a user file to the solvers that it registers."""

_files: dict[str, list[str]] = {}
"""Module name of a user file that was imported here to what its version is the hash of: its path, then its own modules'."""


def register(
    name: str,
    *,
    problems: str | Iterable[str],
    paper: str = "",
    version: str = "1",
    decodings: str | Iterable[str] = (),
) -> Callable[[C], C]:
    """Register a class of a user's file as a solver; one problem or decoding needs no tuple, whose comma is easily lost.

    The version of a solver that is defined in a notebook or a script holds the hash of its class, so that an edited one is
    not answered with the records of the old one.

    Raises
    ------
    BadInputError
        If the name is no plain text or is taken by a built-in solver, or what is decorated is no class at the top of a file
        with the methods of a solver.
    """
    if not isinstance(name, str) or not name.isprintable() or not name.strip() or ":" in name:
        raise BadInputError(f"register({name!r}): a solver's name is printable text without colons.")
    if name in cards():
        raise BadInputError(f"The solver name {name!r} is taken by a built-in solver; choose another.")

    def decorate(cls: C) -> C:
        if not isinstance(cls, type):
            raise BadInputError(f"register({name!r}) decorates a {type(cls).__name__}, no class.")
        if "<locals>" in cls.__qualname__:
            raise BadInputError(
                f"The solver {name!r} is a class within a function; define it at the top of its file."
            )
        missing = [method for method in NEEDED if not callable(getattr(cls, method, None))]
        if missing:
            raise BadInputError(
                f"The solver {name!r}: the class {cls.__name__} has no method {missing[0]}()."
            )
        # A file's solver gets the file's hash when it is loaded; that of a notebook or script has no file to load.
        mine = f"{version}-{_source_sha256(cls)[:8]}" if cls.__module__ == "__main__" else version
        info = Card(
            name, f"{cls.__module__}:{cls.__qualname__}", several("problems", problems), "external", paper,
            decodings=several("decodings", decodings), version=mine,
        )  # fmt: skip
        _registered[name] = info
        return cls

    return decorate


def _source_sha256(cls: type) -> str:
    """Hash a class's source, or its code where that is not at hand: an edited solver is another solver."""
    import inspect
    import marshal

    try:
        source = inspect.getsource(cls).encode()
    except (OSError, TypeError):
        methods = sorted((key, value) for key, value in vars(cls).items() if inspect.isfunction(value))
        source = b"".join(key.encode() + marshal.dumps(value.__code__) for key, value in methods)
    return hashlib.sha256(source).hexdigest()


def all_solvers() -> dict[str, Card]:
    """Return the solvers with cards, single classes of installed packages, and those of files loaded so far."""
    from importlib import metadata  # slow to import, and child processes import this file

    table = dict(cards())
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if ":" in point.value:
            package = f"package {point.dist.name if point.dist else ''}"
            table.setdefault(point.name, Card(point.name, point.value, (), "external", package))
    table.update(_registered)
    return table


def find(name: str) -> Card:
    """Return what is known of a solver; raises `UnknownNameError`. A registered file may replace a built-in one."""
    if name in _registered:
        return _registered[name]
    try:
        return card(name)
    except UnknownNameError:
        table = all_solvers()
        if name in table:
            return table[name]
        raise UnknownNameError("solver", name, table, hint="See 'nco-bench list solvers'.") from None


def choose(text: str, defaults: SolverOptions) -> SolverChoice:
    """Parse a solver name with options, such as ``lkh3:runs=10`` or ``am:weights=official-tsp100``.

    Parameters
    ----------
    text
        Registry name, path to a ``.py`` file (``FILE.py`` or ``FILE.py:NAME``) or to a ``.toml`` file that names a program,
        or ``external`` with ``program=PATH``; followed by ``:KEY=VALUE``.
    defaults
        Options given for all solvers of the command; those in the name win.

    Raises
    ------
    UnknownNameError
        For an unknown solver.
    BadInputError
        For options that are not ``KEY=VALUE``, or given twice.
    """
    name, *rest = text.split(":")
    place = f"solver {text!r}"
    if name.endswith(".py"):
        wanted = rest.pop(0) if rest and "=" not in rest[0] else None
        info = load_file(Path(name), wanted, in_process=defaults.in_process)
    elif name.endswith(".toml") or name == "external":
        from nco_bench.solvers.external.program import load_program, program_info

        info = (
            load_program(Path(name))
            if name != "external"
            else program_info({**defaults.params, **pairs(place, rest)})
        )
    else:
        info = find(name)
    given = pairs(place, rest)
    special: dict[str, Any] = {key: given.pop(key) for key in ("decoding", "weights") if key in given}
    options = replace(defaults, solver=info.name, params={**defaults.params, **given}, **special)
    label = ":".join([info.name, *(f"{k}={v}" for k, v in {**given, **special}.items() if k != "decoding")])
    return SolverChoice(info, options, label, text)


def create(choice: SolverChoice, *, alone: bool = False) -> Solver:
    """Make the solver; cheap, everything slow is in its ``prepare``.

    A user's file and what an installed package brings live in a process of their own, unless the options say otherwise;
    there, and for classes that were registered in this process, `Guarded` checks what they return. `alone` says that this
    is that process.
    """
    info, options = choice.info, choice.options
    if not is_strange(info):
        solver: Solver = _import_class(info)(options)
        return solver
    from nco_bench.solvers.external.guarded import Guarded
    from nco_bench.solvers.external.stranger import StrangerSolver

    if not options.in_process and _can_move(info):
        return StrangerSolver(info, options)
    module = info.target.partition(":")[0]
    where = _files[module][0] if module in _files else module
    return Guarded(lambda: _import_class(info)(options), where, alone=alone)


def is_strange(info: Card) -> bool:
    """Whether code that is not ours runs when this solver does: a file's, a package's, a notebook's."""
    outside = [name for name in (info.target, info.network) if name and not name.startswith("nco_bench.")]
    return bool(outside)


def _can_move(info: Card) -> bool:
    """Whether another process can make it too: a file can be read there; a class of a notebook can not."""
    return info.target.rpartition(":")[0].endswith(".py") or info.name not in _registered


def _import_class(info: Card) -> type:
    module, _, name = info.target.partition(":")
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, type):
        raise BadInputError(f"{info.name}: {module} has no class {name}.")
    return found


def load_file(path: Path, name: str | None = None, *, in_process: bool = False) -> Card:
    """Read a user's file and return the solver that it registers; its version holds the hash of what it is made of.

    That is the file and the modules that it imports from below its own folder. It is imported in a process of its own, or
    in this one where that was asked for.

    Raises
    ------
    BadInputError
        If the file is missing, fails to import, registers nothing, or several solvers and none is named.
    """
    if not path.is_file():
        raise BadInputError(f"{path}: no such solver file.")
    path = path.resolve()
    if in_process:
        mine = import_file(path)
    else:
        from nco_bench.solvers.external.stranger import described

        mine = {card.name: card for card in described(path)}
    _registered.update(mine)
    if not mine:
        raise BadInputError(
            f"{path}: registers no solver; decorate a class with @nco_bench.solvers.register(...)."
        )
    if name is None and len(mine) > 1:
        raise BadInputError(f"{path}: registers {', '.join(sorted(mine))}; name one as {path}:NAME.")
    if name is not None and name not in mine:
        raise UnknownNameError(f"solver of {path}", name, mine)
    return mine[name or next(iter(mine))]


def import_file(path: Path) -> dict[str, Card]:
    """Import a user's file into this process, once, and return the cards of its solvers by name.

    Raises
    ------
    BadInputError
        If it fails to import.
    """
    from nco_bench.solvers.own_modules import digest_of, own_modules

    module = _module_name(path)
    if module not in _of_file:
        known, loaded = dict(_registered), frozenset(sys.modules)
        _execute(path)
        # The hash is part of the version: an edited solver must not be answered with the records of the old one.
        modules = own_modules(path, loaded)
        digest = digest_of(path, modules)
        _of_file[module] = {
            n: replace(info, version=f"{info.version}-{digest}")
            for n, info in _registered.items()
            if known.get(n) is not info
        }
        _files[module] = [str(path), *map(str, modules)]
    return _of_file[module]


def made_of(path: Path) -> list[str]:
    """Return the files that the version of an imported file's solvers is the hash of."""
    return _files[_module_name(path)]


def _module_name(path: Path) -> str:
    return f"nco_bench_user_{path.resolve().as_posix().replace('/', '_').removesuffix('.py')}"


def _execute(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(spec.name, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, BadInputError):
            raise BadInputError(f"{path}: {error}") from None
        from nco_bench.solvers.external.guarded import describe

        raise BadInputError(f"{path}: cannot be imported ({describe(error)}).") from error


def resolved_options(options: SolverOptions) -> Mapping[str, Any]:
    """Return the options that can move a solution, for configuration hashes and records."""
    return {
        "decoding": options.decoding,
        "weights": options.weights,
        "logit_scale": options.logit_scale,
        "coordinate_scale": options.coordinate_scale,
        "params": dict(sorted(options.params.items())),
    }
