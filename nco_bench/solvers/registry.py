"""The lazy table of solvers: listing them imports neither torch nor any native package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SolverInfo:
    """
    What is known about a solver without importing it.

    Attributes
    ----------
    name
        Registry name; also its label in tables.
    target
        ``module:Class``.
    problems
        Problems it solves.
    kind
        ``exact``, ``heuristic``, ``metaheuristic``, ``neural`` or ``external``.
    paper
        Title, authors and year of the source.
    decodings
        Decodings it understands, the default first; empty for classical solvers.
    version
        Bumped whenever its solutions change; part of every record's key.
    packages
        Importable modules it needs; any alternative within a tuple is enough.
    licence
        Licence of the program or package behind it.
    params
        Its parameters with their meaning and default, for ``nco-bench show``.
    """

    name: str
    target: str
    problems: tuple[str, ...]
    kind: str
    paper: str
    venue: str = ""
    graph: str = ""
    parameters: int | None = None
    decodings: tuple[str, ...] = ()
    version: str = "1"
    packages: tuple[tuple[str, ...], ...] = ()
    licence: str = "MIT"
    install: str = ""
    params: tuple[tuple[str, str], ...] = ()
