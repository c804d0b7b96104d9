"""Concorde (Applegate, Bixby, Chvatal, Cook, 2006): branch and cut, exact. Free for academic use only.

Backends, the first that is there: a ``concorde`` executable (``NCO_BENCH_CONCORDE`` or PATH); an importable
pyconcorde; the compiled pyconcorde (with QSopt) inside the package ml4co-kit, which is put on the path of the child
process only: ``pip install --no-deps ml4co-kit`` is enough, ml4co-kit itself is never imported.

A tour is marked optimal where Concorde finished its search. For library instances that proves the published
optimum; unrounded Euclidean instances are solved on integers (see `tsplib_text`), where the proof holds up to that
rounding. With a time limit pyconcorde stops between two nodes of its search and returns its best tour without
proof; it is killed where it does not, and an executable always is. With QSopt Concorde branches on edges only, as its
interface lacks what branching on cliques needs, so that TSP-1000 takes from minutes to hours of a core. The seed
fixes the search: same seed, same tour. Up to 7 nodes all tours are compared instead.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.isolation.main import death_signal, describe_exit
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.classical.tsplib_text import tsp_text
from nco_bench.solvers.protocol import Failure, Solved
from nco_bench.solvers.small import BRUTE_FORCE_NODES, easy_tour

PROBLEM = "problem.tsp"
SOLUTION = "problem.sol"


class Concorde(ChildSolver):
    """Concorde for the TSP."""

    NAME = "concorde"
    SOLVE = "nco_bench.solvers.classical.concorde:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {}
    FRESH = True
    GRACE = (1.0, 1.0)


def warm_up(params: dict[str, Any]) -> None:
    """Import pyconcorde before the clock starts."""
    backend: Backend = params["backend"]
    if backend.kind == "package":
        sys.path.insert(0, backend.path)
        import concorde._concorde  # noqa: F401


def solve(
    instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Solve one instance; runs in the child, in a folder of its own."""
    easy = easy_tour(instance, up_to=BRUTE_FORCE_NODES)
    if easy is not None:
        return easy
    Path(PROBLEM).write_text(tsp_text(instance))
    # Concorde takes a seed of 0 from the clock.
    seed = seed % (2**31 - 2) + 1
    if params["backend"].kind == "executable":
        return _by_program(params["backend"].path, seed)
    return _by_package(seed, time_limit)


def _by_package(seed: int, time_limit: float | None) -> Solved | Failure:
    from concorde._concorde import _CCtsp_solve_dat, _CCutil_gettsplib

    nodes, data = _CCutil_gettsplib(PROBLEM)
    if data is None:
        raise RuntimeError("Concorde cannot read the problem file")
    bound = -1.0 if time_limit is None else time_limit
    tour, _, success, found, hit_bound = _CCtsp_solve_dat(nodes, data, "p", bound, 1, seed)
    if not found or len(np.unique(tour)) != nodes:
        return Failure("timeout" if hit_bound else "failed", "Concorde ended without a tour")
    return Solved(np.asarray(tour), optimal=bool(success) and not hit_bound)


def _by_program(program: str, seed: int) -> Solved:
    Path(SOLUTION).unlink(missing_ok=True)
    command = [program, "-s", str(seed), "-x", "-o", SOLUTION, PROBLEM]
    code = subprocess.run(command, preexec_fn=death_signal, check=False).returncode
    if code or not Path(SOLUTION).is_file():
        raise RuntimeError(f"concorde {describe_exit(code)} and wrote no tour")
    numbers = [int(word) for word in Path(SOLUTION).read_text().split()]
    return Solved(np.array(numbers[1 : numbers[0] + 1]), optimal="Optimal Solution" in _printed())


def _printed() -> str:
    """Return what the program printed: the child's own output goes to this file."""
    return Path("log").read_text(errors="replace")
