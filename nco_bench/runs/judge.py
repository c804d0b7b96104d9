"""From what a solver returned to a record: feasibility and cost are recomputed here, claims are never used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Reference
from nco_bench.problems import Instance, Problem
from nco_bench.runs.records import Record
from nco_bench.solvers.base import Failure, Outcome, Solved


@dataclass(frozen=True)
class Judged:
    """A record whose solution is still to be stored, with that solution."""

    record: Record
    solution: NDArray[np.integer] | None


def gap_percent(cost: float, reference: float, objective: str) -> float | None:
    """Gap of a cost to its reference in percent; positive is worse, also where higher scores are better.

    None where the reference is 0 and the cost is not (the gap is undefined); 0 where both are 0.
    """
    if reference == 0:
        return 0.0 if cost == 0 else None
    worse = cost - reference if objective == "min" else reference - cost
    return 100.0 * worse / abs(reference)


def judge(
    problem: Problem,
    instance: Instance,
    reference: Reference | None,
    outcome: Outcome,
    facts: dict[str, Any],
    cost: float | None = None,
) -> Judged:
    """Score one outcome.

    Parameters
    ----------
    problem, instance, reference
        The referee, the raw instance, its reference.
    outcome
        What the solver returned.
    facts
        The record's fields that are known without looking at the outcome: key, cell, instance, repeat, seed, seconds.
    cost
        What `batch_costs` found for this outcome, or None to judge it here.
    """
    known = None if reference is None else reference.cost
    common = {
        "name": instance.name,
        "n": instance.n,
        "convention": instance.convention,
        "reference": known,
        **facts,
    }
    if isinstance(outcome, Failure):
        return Judged(_without_cost(common, outcome.status, outcome.message), None)
    solution = outcome.solution if isinstance(outcome, Solved) else outcome
    array = np.asarray(solution)
    wrong = problem.violations(instance, array) if cost is None else ()
    if wrong:
        storable = array.ndim == 1 and np.issubdtype(array.dtype, np.integer) and _fits_int32(array)
        return Judged(_without_cost(common, "infeasible", "; ".join(wrong)), array if storable else None)
    if cost is None:
        cost = problem.score(instance, array)
    record = Record(
        status="ok",
        cost=cost,
        gap_percent=None if known is None else gap_percent(cost, known, problem.OBJECTIVE),
        optimal=isinstance(outcome, Solved) and outcome.optimal,
        solution=None,
        solution_sha256=None,
        counts=counts_of(problem, instance, array),
        **common,
    )
    return Judged(record, array)


def counts_of(problem: Problem, instance: Instance, solution: NDArray[np.integer]) -> dict[str, float] | None:
    """Return what pooled metrics need of a feasible solution; None for a problem whose referee does not count."""
    count = getattr(problem, "counts", None)
    return None if count is None else count(instance, solution)


def batch_costs(
    problem: Problem, instances: Sequence[Instance], outcomes: Sequence[Outcome]
) -> Sequence[float | None]:
    """Score a batch at once where the problem can and all of it is feasible; else None for each, to be judged alone."""
    at_once = getattr(problem, "score_batch", None)
    if at_once is None or len(instances) < 2:
        return [None] * len(instances)
    solutions = [o.solution if isinstance(o, Solved) else o for o in outcomes]
    costs = at_once(instances, solutions)
    return [None] * len(instances) if costs is None else costs.tolist()


def _without_cost(common: dict[str, Any], status: str, message: str) -> Record:
    return Record(
        status=status, cost=None, gap_percent=None, optimal=False, solution=None, solution_sha256=None,
        message=" ".join(message.split())[:2000], **common,
    )  # fmt: skip


def _fits_int32(array: NDArray[np.integer]) -> bool:
    limits = np.iinfo(np.int32)
    return array.size == 0 or bool(array.min() >= limits.min and array.max() <= limits.max)
