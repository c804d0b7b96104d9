"""The rules for solvers, checked on somebody's own solver: ``nco-bench test-solver FILE.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generate
from nco_bench.problems import problem as problem_module
from nco_bench.runs.solving import solve_batch
from nco_bench.solvers.protocol import Failure, Outcome, Solved, Solver
from nco_bench.solvers.registry import SolverChoice, create

SEED = 1234
SETS = {"algorithmic": "knapsack", "algorithmic-regression": "fractional-knapsack", "lra": "lra-listops"}
"""What a problem of several kinds is checked on; the others are generated under their own names."""
SIZE = 20
TINY: dict[str, tuple[int, ...]] = {
    "tsp": (2, 3),
    "algorithmic": (2, 3),
    "algorithmic-regression": (2, 3),
    "lra": (),
}
"""Degenerate sizes, where they are not 1 and 2; a text has none."""


@dataclass(frozen=True)
class Check:
    """One rule: its name, whether it holds, and what to do if not."""

    rule: str
    ok: bool
    advice: str = ""


def check_solver(choice: SolverChoice) -> list[Check]:
    """Check a solver against the rules on small instances of every problem it names.

    The rules: solutions are feasible; one outcome per instance; the same seed gives the same solution; how a dataset is cut
    into batches does not matter; instances are left unchanged; tiny and degenerate instances are solved.
    """
    checks: list[Check] = []
    for problem in choice.info.problems or ("tsp",):
        checks += _check_problem(choice, problem)
    return checks


def _check_problem(choice: SolverChoice, problem: str) -> Iterator[Check]:
    made_of = SETS.get(problem, problem)
    dataset = generate(made_of, SIZE, 4, "uniform", SEED)
    solver = create(choice)
    reason = solver.unsupported(dataset)
    if reason is not None:
        yield Check(f"{problem}: supported", False, f"unsupported() says: {reason}")
        return
    solver.prepare(dataset)
    before = dataset.sha256
    whole = _solve(solver, dataset, range(len(dataset)))
    yield _feasible(problem, dataset, whole)
    fresh = Dataset(dataset.name, problem, dataset.instances, dataset.references, dataset.origin)
    yield Check(
        f"{problem}: instances are left unchanged",
        fresh.sha256 == before,
        "solve() wrote into an instance's arrays.",
    )
    again = _solve(solver, dataset, range(len(dataset)))
    yield Check(
        f"{problem}: same seed, same solution",
        _equal(whole, again) or not choice.info.deterministic,
        "draw all random numbers from generators made from `seed` inside solve().",
    )
    single = [_solve(solver, dataset, range(i, i + 1))[0] for i in range(len(dataset))]
    yield Check(
        f"{problem}: batches do not matter",
        _equal(whole, single) or not choice.info.deterministic,
        "instance j of a batch must use the seed `seed + j`, and nothing may leak between instances.",
    )
    for n in TINY.get(problem, (1, 2)):
        tiny = generate(made_of, n, 2, "uniform", SEED)
        yield _feasible(problem, tiny, _solve(solver, tiny, range(2)), f" with n = {n}")
    getattr(solver, "close", lambda: None)()


def _solve(solver: Solver, dataset: Dataset, indices: range) -> list[Outcome]:
    batch = [dataset.instances[i] for i in indices]
    return solve_batch(
        solver, batch, seed=SEED + indices.start, time_limit=None, device="cpu", progress=_ignore
    ).outcomes


_ignore: Callable[[int], None] = lambda _: None  # noqa: E731


def _feasible(problem: str, dataset: Dataset, outcomes: list[Outcome], where: str = "") -> Check:
    module = problem_module(problem)
    for instance, outcome in zip(dataset.instances, outcomes, strict=True):
        if isinstance(outcome, Failure):
            return Check(
                f"{problem}: feasible solutions{where}",
                False,
                f"{instance.name}: {outcome.status}: {outcome.message}",
            )
        wrong = module.violations(instance, np.asarray(_array(outcome)))
        if wrong:
            return Check(f"{problem}: feasible solutions{where}", False, f"{instance.name}: {wrong[0]}")
    return Check(f"{problem}: feasible solutions{where}", True)


def _array(outcome: Outcome) -> object:
    return outcome.solution if isinstance(outcome, Solved) else outcome


def _equal(a: list[Outcome], b: list[Outcome]) -> bool:
    return all(
        np.array_equal(np.asarray(_array(x)), np.asarray(_array(y))) for x, y in zip(a, b, strict=True)
    )
