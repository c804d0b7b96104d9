"""LKH-3 (Helsgaun, 2017): the Lin-Kernighan-Helsgaun heuristic, for TSP and CVRP. Free for academic use only.

Backends, the first that is there: an ``LKH`` executable (``NCO_BENCH_LKH`` or PATH); for the TSP the package elkai
(LKH 3.0.8), for the CVRP the package LKHpy (LKH 3.0.12). elkai crashes on the CVRP, LKHpy where customers and vehicles
are more than 5,000.

Parameters keep LKH's names. Where one is 0 or ``auto`` it follows the size:

========================  ==============  =====================  ==================
TSP                       n <= 12,000     n <= 50,000            above
========================  ==============  =====================  ==================
candidates                alpha           quadrant               quadrant
subgradient ascent        period 100      none                   none
move type                 5               5                      3
max_trials                min(n, 1000)    100                    10
initial tour              LKH's walk      greedy                 greedy
========================  ==============  =====================  ==================

CVRP: 10,000 trials up to 100 customers, as Kool et al. (2019) give it on their sets of 20, 50 and 100; above, a million
divided by the customers, so that 1,000 take about the 6.2 s that TAM prints for LKH3. Alpha candidates up to 2,000
customers and nearest neighbours without ascent above, and a savings start above 500. By default LKH uses the fewest
vehicles that the total demand allows, and all of them. A free
fleet is often cheaper, so it gets a few more and may leave vehicles empty (MTSP_MIN_SIZE = 0); if its best solution still
overloads one, it is run again with more.

Several runs (``runs``) start from different tours and the best counts. Without a time limit the same seed gives the
same solution; LKH looks at its clock only between trials, so a time limit on a large instance may be passed.
"""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, counted
from nco_bench.isolation.main import death_signal, describe_exit
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.classical.tsplib_text import cvrp_text, largest_weight, tsp_text
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.small import easy_routes, easy_tour, integer_demand

CANDIDATES = ("auto", "alpha", "nearest-neighbor", "quadrant", "popmusic", "delaunay")
ASCENT_CANDIDATES = ("alpha", "popmusic")
ALPHA_NODES = 12_000
FIVE_OPT_NODES = 50_000
SPARE_VEHICLES = 3
KOOL_CUSTOMERS, KOOL_TRIALS, LEAST_TRIALS = 100, 10_000, 100
SAVINGS_CUSTOMERS = 500
QUICK_SECONDS = 2.0
"""A whole set of the TSP that takes less needs no estimate."""
LKH_LARGEST = 2**31 // 4
"""LKH multiplies distances by its PRECISION, and needs room above the result in an int."""
LKHPY_LARGEST = 5_000
"""Customers and vehicles with which LKHpy 0.0.9 still runs; one more, and it overruns its memory."""


class LKH3(ChildSolver):
    """LKH-3 for TSP and CVRP."""

    NAME = "lkh3"
    SOLVE = "nco_bench.solvers.classical.lkh3:solve"
    PARAMS: ClassVar[dict[str, tuple[type, Any]]] = {
        "runs": (int, 1),
        "max_trials": (int, 0),
        "candidates": (str, "auto"),
        "max_candidates": (int, 0),
        "initial_period": (int, 0),
        "move_type": (int, 0),
        "vehicles": (int, 0),
    }
    MAX_N: ClassVar[dict[str, int]] = {"tsp": 200_000, "cvrp": LKHPY_LARGEST - 1}  # and a vehicle
    GRACE = (1.1, 2.0)

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        if self.params["candidates"] not in CANDIDATES:
            raise BadInputError(
                f"{self.NAME}: candidates={self.params['candidates']!r}; expected {', '.join(CANDIDATES)}."
            )
        if self.params["runs"] < 1:
            raise BadInputError(f"{self.NAME}: runs={self.params['runs']}; expected at least 1.")

    def check(self, dataset: Dataset, backend: Backend) -> str | None:
        """Refuse what the backend does not survive, and limits on route lengths."""
        if any(getattr(i, "max_route_length", None) is not None for i in dataset):
            return f"{self.NAME} is not set up for limits on route lengths, which {dataset.name} has"
        if backend.kind == "package" and dataset.problem == "cvrp":
            most = max(i.n + _fleet(i, self.params) for i in dataset.instances if isinstance(i, CVRPInstance))
            if most > LKHPY_LARGEST:
                return (
                    f"{self.NAME} with {backend} takes at most {LKHPY_LARGEST:,} customers and vehicles together, and "
                    f"{dataset.name} has {most:,}; an LKH executable named in NCO_BENCH_LKH takes more"
                )
        return super().check(dataset, backend)

    def budget(self, dataset: Dataset, time_limit: float | None) -> str:
        """Say how much each instance gets, and how long that will take; nothing of what is limited, or a quick TSP."""
        if time_limit is not None:
            return ""
        n = dataset.sizes[1]
        if dataset.problem == "tsp":
            largest = next(i for i in dataset.instances if i.n == n and isinstance(i, TSPInstance))
            trials = int(tsp_settings(largest, self.params)["MAX_TRIALS"])
            seconds = self.params["runs"] * tsp_seconds(n, trials)
            if seconds * len(dataset) < QUICK_SECONDS:
                return ""
        else:
            trials = self.params["max_trials"] or cvrp_trials(n)
            seconds = self.params["runs"] * cvrp_seconds(n, trials)
        return (
            f"{self.params['runs']} x {trials:,} trials for {counted(len(dataset), 'instance')}, about "
            f"{seconds:.2g} s each; --param max_trials=N or --time-limit S gives another budget"
        )


def solve(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    """Run LKH on one instance; runs in the child."""
    if isinstance(instance, CVRPInstance):
        return _solve_cvrp(instance, seed, time_limit, params)
    easy = easy_tour(instance, up_to=5)
    if easy is not None:
        return easy
    settings = tsp_settings(instance, params) | _common(instance, seed, time_limit, params)
    return np.asarray(_run(settings, tsp_text(instance), params["backend"]))


def tsp_seconds(n: int, trials: int) -> float:
    """Estimate how long a TSP takes on one core: fitted to uniform ones of 50 to 2,000, good to a factor of two.

    The ascent, which larger ones do without, grows with n squared, and a trial with n.
    """
    ascent = 1.2e-6 * n**2 if n <= ALPHA_NODES else 0.0
    return ascent + 8e-6 * n * trials


def tsp_settings(instance: TSPInstance, params: dict[str, Any]) -> dict[str, Any]:
    """Return LKH's parameters for a TSP of this size, see the table above."""
    n, kind = instance.n, params["candidates"]
    if kind == "auto":
        planar = instance.convention not in ("explicit", "geo") and not instance.fixed_edges
        kind = "alpha" if n <= ALPHA_NODES or not planar else "quadrant"
    settings: dict[str, Any] = {
        "CANDIDATE_SET_TYPE": kind.upper(),
        "MAX_CANDIDATES": params["max_candidates"] or 5,
        "MOVE_TYPE": params["move_type"] or (5 if n <= FIVE_OPT_NODES else 3),
        "MAX_TRIALS": params["max_trials"]
        or (min(n, 1000) if n <= ALPHA_NODES else 100 if n <= FIVE_OPT_NODES else 10),
    }
    if kind not in ASCENT_CANDIDATES:
        settings["INITIAL_TOUR_ALGORITHM"] = "GREEDY"
    return _ascent(kind, params) | settings


def _ascent(kind: str, params: dict[str, Any]) -> dict[str, Any]:
    if kind in ASCENT_CANDIDATES or params["initial_period"]:
        return {"INITIAL_PERIOD": params["initial_period"] or 100}
    return {"SUBGRADIENT": "NO"}


def _common(
    instance: TSPInstance | CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> dict[str, Any]:
    precision = max(1, min(100, int(LKH_LARGEST / max(1.0, largest_weight(instance)))))
    settings: dict[str, Any] = {
        "RUNS": params["runs"],
        "SEED": seed,
        "TRACE_LEVEL": 0,
        "PRECISION": precision,
    }
    if time_limit is not None:
        settings["TIME_LIMIT"] = max(0.01, time_limit / params["runs"])
    return settings


def _solve_cvrp(
    instance: CVRPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[np.integer] | Solved | Failure:
    easy = easy_routes(instance)
    if easy is not None:
        return easy
    demand, capacity = integer_demand(instance)
    settings = cvrp_settings(instance, params) | _common(instance, seed, time_limit, params)
    fewest = _fleet(instance, params)
    fleets = [fewest, min(instance.n, 2 * fewest)]
    if params["backend"].kind == "package":
        fleets = [fleet for fleet in fleets if instance.n + fleet <= LKHPY_LARGEST]
    for fleet in fleets:
        text = cvrp_text(instance, demand, capacity, fleet)
        sequence = _node_sequence(_run(settings, text, params["backend"], "SPECIAL\n"), instance.n)
        if _fits(sequence, demand, capacity):
            return sequence
    return Failure("failed", f"LKH overloads a vehicle with {fleets[-1]} of them")


def _fleet(instance: CVRPInstance, params: dict[str, Any]) -> int:
    """Return the vehicles that LKH starts with: as asked for, else a few more than the total demand needs."""
    demand, capacity = integer_demand(instance)
    return min(
        instance.n, params["vehicles"] or math.ceil(int(demand.sum()) / max(1, capacity)) + SPARE_VEHICLES
    )


def cvrp_trials(n: int) -> int:
    """Return the trials that a CVRP of n customers gets by default."""
    return KOOL_TRIALS if n <= KOOL_CUSTOMERS else max(LEAST_TRIALS, KOOL_TRIALS * KOOL_CUSTOMERS // n)


def cvrp_seconds(n: int, trials: int) -> float:
    """Estimate how long a CVRP takes on one core: fitted to uniform ones of 20 to 10,000, good to a factor of two.

    The savings start grows with n squared, and a trial on a large one with n.
    """
    start = 3e-7 * n**2 if n > SAVINGS_CUSTOMERS else 0.0
    return start + trials * max(1.8e-3 * (min(n, 500) / 20) ** 0.5, 8e-6 * n)


def cvrp_settings(instance: CVRPInstance, params: dict[str, Any]) -> dict[str, Any]:
    """Return LKH's parameters for a CVRP of this size."""
    kind = params["candidates"]
    if kind == "auto":
        kind = "alpha" if instance.n <= 2000 or instance.convention == "explicit" else "nearest-neighbor"
    settings: dict[str, Any] = {
        "CANDIDATE_SET_TYPE": kind.upper(),
        "MAX_CANDIDATES": params["max_candidates"] or 5,
        "MAX_TRIALS": params["max_trials"] or cvrp_trials(instance.n),
        "MTSP_MIN_SIZE": 0,
    }
    if instance.n > SAVINGS_CUSTOMERS:
        settings["INITIAL_TOUR_ALGORITHM"] = "CVRP"
    if params["move_type"]:
        settings["MOVE_TYPE"] = params["move_type"]
    return _ascent(kind, params) | settings


def _node_sequence(nodes: NDArray[np.integer], n: int) -> NDArray[np.int64]:
    """Turn LKH's tour over depot, customers and depot copies into a node sequence; repeated zeros become one."""
    nodes = np.where(nodes > n, 0, nodes)
    at = int((nodes == 0).argmax())
    closed = np.concatenate([nodes[at:], nodes[:at], [0]])
    return closed[np.concatenate([[True], (closed[1:] != 0) | (closed[:-1] != 0)])].astype(np.int64)


def _fits(sequence: NDArray[np.int64], demand: NDArray[np.int64], capacity: int) -> bool:
    stops = np.flatnonzero(sequence == 0)
    loads = np.add.reduceat(np.concatenate([[0], demand])[sequence], stops[:-1])
    return bool((loads <= capacity).all())


def _run(settings: dict[str, Any], problem: str, backend: Backend, special: str = "") -> NDArray[np.integer]:
    """Run LKH with its parameters on a problem file; return 0-based nodes."""
    lines = special + "".join(f"{key} = {value}\n" for key, value in settings.items())
    if backend.kind == "package" and not special:
        import elkai._elkai

        return np.asarray(elkai._elkai.solve_problem(f"PROBLEM_FILE = :stdin:\n{lines}", problem)) - 1
    Path("problem.txt").write_text(problem)
    if backend.kind == "package":
        import LKHpy

        Path("settings.par").write_text(f"{lines}PROBLEM_FILE = problem.txt\n")
        return np.asarray(LKHpy.par_file("settings.par"))
    Path("settings.par").write_text(f"{lines}PROBLEM_FILE = problem.txt\nTOUR_FILE = best.tour\n")
    Path("best.tour").unlink(missing_ok=True)
    code = subprocess.run([backend.path, "settings.par"], preexec_fn=death_signal, check=False).returncode
    if code or not Path("best.tour").is_file():
        raise RuntimeError(f"LKH {describe_exit(code)} and wrote no tour")
    return _read_tour(Path("best.tour").read_text())


def _read_tour(text: str) -> NDArray[np.int64]:
    nodes = text.split("TOUR_SECTION", 1)[1].split("-1", 1)[0].split()
    return np.array([int(node) for node in nodes]) - 1
