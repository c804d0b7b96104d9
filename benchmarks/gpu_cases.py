"""What `gpu_models.py` solves on both devices, and how two answers are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.api import load
from nco_bench.errors import BadWeightsError
from nco_bench.nn.device import synchronise
from nco_bench.problems import problem
from nco_bench.solvers.protocol import Failure, SolverOptions
from nco_bench.solvers.registry import choose, create

ALLOWED = 0.005
"""Difference of mean costs, relative, above which a row is BAD."""
SEED = 1234

PATH = ("bq", "lehd", "sigd", "sigd-lehd", "sit", "decoder-6x128", "pens-a", "pens-r", "coordns")
STEPWISE = ("am", "pomo", "elg", "dgl", "invit-2v")
BOTH = ("bq", "lehd", "sigd", "sit", *STEPWISE)
SHIPPED = {("am", "tsp"): "am-eie-tsp100", ("am", "cvrp"): "am-eie-cvrp100"}
"""Weights that ship and are no network's default."""


@dataclass(frozen=True)
class Case:
    """What is solved: a network, a dataset (its tiny form beside it), a decoding and parameters."""

    name: str
    data: str
    tiny: str
    decoding: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return " ".join([self.name, self.data, *([self.decoding] if self.decoding else [])])


@dataclass
class Answer:
    """Solutions and costs of a case's instances; NaN and what is wrong where one is invalid."""

    solutions: list[NDArray[Any]]
    costs: NDArray[np.float64]
    wrong: list[str]
    weights: str
    seconds: list[float]
    replays: int | None = None
    recordings: int | None = None
    first: float | None = None


def routes(name: str, of: str, decoding: str = "greedy") -> Case:
    """A case of the TSP or the CVRP, of 8 instances."""
    sizes = {"tsp": ("tsp50:count=8", "tsp5:count=2"), "cvrp": ("cvrp30:count=8", "cvrp4:count=2")}
    return Case(name, *sizes[of], decoding)


CASES = (
    *(routes(name, "tsp") for name in (*PATH, *STEPWISE)),
    *(routes(name, "cvrp") for name in BOTH),
    *(routes("lehd", of, how) for of in ("tsp", "cvrp") for how in ("beam:2", "rrc:2", "prc:2")),
    *(routes("am", of, how) for of in ("tsp", "cvrp") for how in ("beam:2", "sample:2+x8")),
    *(routes("pomo", of, "multistart+x8") for of in ("tsp", "cvrp")),
    routes("elg", "tsp", "beam:2"),
    routes("lehd", "tsp", "sample:2"),
    routes("sit", "cvrp", "prc:2"),
    routes("dgl", "cvrp", "beam:2"),
    routes("invit-2v", "tsp", "beam:2"),
    Case("attend2pack", "bpp3d20:120x100:count=4", "bpp3d4:120x100:count=2"),
    Case("attend2pack", "bpp3d20:120x100:count=4", "bpp3d4:120x100:count=2", "sample:2"),
    *(
        Case(name, "quickselect:count=64", "quickselect:count=2")
        for name in ("tropical", "tropical-qkv", "vanilla", "ut-adaptive")
    ),
    *(
        Case(name, "lra-listops64:count=8", "lra-listops16:count=2")
        for name in ("lra-tropical", "lra-vanilla", "lra-adaptive")
    ),
    Case("glop", "cvrp100:count=2", "cvrp12:count=2"),
    Case("h-tsp", "tsp200:count=1", "tsp30:count=1"),
    Case("difusco", "tsp50:count=1", "tsp8:count=1"),
)

LARGER = {name: Case(name, "tsp100:count=256", "tsp6:count=2", "greedy") for name in (*PATH, "am", "dgl")}
THOUSAND = (
    *(Case(name, "tsp100:count=1000", "tsp6:count=3", "greedy") for name in ("decoder-6x128", "pens-a")),
    *(Case(name, "tsp100:count=1000", "tsp6:count=3", "greedy") for name in ("am", "lehd", "sit", "bq")),
    Case("pomo", "tsp100:count=1000", "tsp6:count=3", "multistart+x8"),
)


@contextmanager
def solver_of(case: Case, device: str) -> Iterator[tuple[Any, Any]]:
    """A solver that is ready, and its dataset; the network is untrained where no weights are at hand."""
    dataset = load(case.data)
    asked = SHIPPED.get((case.name, dataset.problem))
    options = SolverOptions(decoding=case.decoding, weights=asked, device=device, params=dict(case.params))
    solver = create(choose(case.name, options))
    try:
        solver.prepare(dataset)
    except BadWeightsError:
        solver = create(choose(case.name, replace(options, weights="random")))
        solver.prepare(dataset)
    try:
        yield solver, dataset
    finally:
        solver.close()


def solved(solver: Any, dataset: Any, device: str) -> tuple[list[Any], float]:
    """Outcomes in batches of the solver's size, and wall seconds."""
    found: list[Any] = []
    synchronise(device)
    begun = time.perf_counter()
    size = solver.batch_size(dataset)
    for first in range(0, len(dataset), size):
        batch = dataset.instances[first : first + size]
        found += solver.solve(batch, seed=SEED + first, time_limit=None, progress=lambda done: None)
    synchronise(device)
    return found, time.perf_counter() - begun


def answer(case: Case, device: str, *, timed: int = 0) -> Answer:
    """Solve once; then `timed` times more, for seconds that hold no warming up."""
    with solver_of(case, device) as (solver, dataset):
        outcomes, first = solved(solver, dataset, device)
        seconds = [solved(solver, dataset, device)[1] for _ in range(timed)]
        weights = str(solver.weights_facts()["name"])
        recorded = getattr(solver.policy, "recorded", None)
    referee = problem(dataset.problem)
    solutions, costs, wrong = [], [], []
    for instance, outcome in zip(dataset.instances, outcomes, strict=True):
        bad: Sequence[str]
        if isinstance(outcome, Failure):
            solution, bad = np.empty(0, dtype=np.int64), (outcome.message,)
        else:
            solution = np.asarray(getattr(outcome, "solution", outcome))
            bad = referee.violations(instance, solution)
        solutions.append(solution)
        costs.append(np.nan if bad else referee.score(instance, solution))
        wrong += bad[:1]
    found = Answer(solutions, np.array(costs, dtype=np.float64), wrong, weights, seconds or [first])
    found.first = round(first, 3)
    if recorded is not None:
        found.replays = recorded.replays
        found.recordings = sum(one is not None for one in recorded.met.values())
    return found


def compared(here: Answer, there: Answer) -> dict[str, Any]:
    """Facts of two answers to the same instances; `there` is the one in question."""
    pairs = zip(here.solutions, there.solutions, strict=True)
    equal = sum(np.array_equal(ours, theirs) for ours, theirs in pairs)
    ours, theirs = float(here.costs.mean()), float(there.costs.mean())
    apart = 0.0 if ours == theirs else (theirs - ours) / max(abs(ours), 1e-12)
    wrong = [*(f"before: {line}" for line in here.wrong), *there.wrong]
    return {
        "status": "BAD" if wrong or not abs(apart) <= ALLOWED else "ok",
        "weights": there.weights,
        "equal": f"{equal}/{len(here.solutions)}",
        "before": round(ours, 6),
        "cost": round(theirs, 6),
        "apart_percent": round(100 * apart, 4),
        **({"wrong": wrong[:3]} if wrong else {}),
    }


def middle(found: Answer) -> float:
    return round(statistics.median(found.seconds), 4)
