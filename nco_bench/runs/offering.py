"""Offering solutions to the reference ledger, each with the random insertion cost that it must not exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nco_bench.datasets import ledger
from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.errors import NcoBenchError
from nco_bench.problems import Instance
from nco_bench.problems import problem as problem_module
from nco_bench.runs.solving import solve_batch
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.registry import choose, create

YARDSTICK = "random-insertion"
SEED = 1234


def offer(dataset: Dataset, found: Mapping[int, Reference], instances: Path) -> list[ledger.Outcome]:
    """Offer solutions as references; the ledger refuses infeasible ones and ones beaten by random insertion.

    Parameters
    ----------
    dataset
        The dataset, or a slice of it.
    found
        Position in `dataset` to a reference with a solution.
    instances
        Folder that holds ``ledger/``.
    """
    positions = [p for p, reference in found.items() if reference.solution is not None]
    limits = insertion_costs(dataset, [p for p in positions if _to_be_judged(dataset.instances[p], found[p])])
    candidates = []
    for position in positions:
        reference = found[position]
        assert reference.solution is not None
        candidates.append(
            ledger.Candidate(
                index=position + dataset.first_index,
                solution=reference.solution,
                solver=reference.solver,
                params=reference.params,
                seconds=reference.seconds,
                optimal=reference.optimal,
                insertion_cost=limits.get(position),
            )
        )
    return ledger.improve(dataset, candidates, instances) if candidates else []


def _to_be_judged(instance: Instance, reference: Reference) -> bool:
    """Whether random insertion could be better: than a proof only where it proves the order of the file."""
    assert reference.solution is not None
    return not reference.optimal or ledger.in_file_order(instance, reference.solution)


def insertion_costs(dataset: Dataset, positions: Sequence[int]) -> dict[int, float]:
    """Solve some instances by random insertion; those that it cannot solve (package missing, a matrix) are left out."""
    if not positions:
        return {}
    solver = create(choose(YARDSTICK, SolverOptions()))
    if solver.unsupported(dataset) is not None:
        return {}
    module = problem_module(dataset.problem)
    batch = [dataset.instances[p] for p in positions]
    try:
        solver.prepare(dataset)
        outcomes = solve_batch(
            solver, batch, seed=SEED, time_limit=None, device="cpu", progress=lambda _: None
        ).outcomes
    except NcoBenchError:
        return {}
    finally:
        solver.close()
    costs = {}
    for position, instance, outcome in zip(positions, batch, outcomes, strict=True):
        if isinstance(outcome, Failure):
            continue
        solution = outcome.solution if isinstance(outcome, Solved) else outcome
        if not module.violations(instance, solution):
            costs[position] = module.score(instance, solution)
    return costs
