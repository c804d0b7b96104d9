"""From what a solver returned to a record: feasibility and cost are recomputed here, claims are never used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Reference
from nco_bench.errors import shown
from nco_bench.problems import Instance, Problem
from nco_bench.runs.records import Record
from nco_bench.solvers.protocol import Failure, Outcome, Solved


class Place(NamedTuple):
    """What is known of a record without looking at the outcome; a tuple, since many are made."""

    key: str
    cell: int
    instance: int
    repeat: int
    seed: int
    seconds: float
    instance_sha256: str


class Judged(NamedTuple):
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
    place: Place,
    cost: float | None = None,
) -> Judged:
    """Score one outcome.

    Parameters
    ----------
    problem, instance, reference
        The referee, the raw instance, its reference.
    outcome
        What the solver returned.
    place
        Which record it is.
    cost
        What `batch_costs` found for this outcome, or None to judge it here.
    """
    known = None if reference is None else reference.cost
    if isinstance(outcome, Failure):
        return Judged(_without_cost(instance, known, place, outcome.status, outcome.message), None)
    optimal = isinstance(outcome, Solved) and outcome.optimal
    array = np.asarray(outcome.solution if isinstance(outcome, Solved) else outcome)
    if cost is None:
        wrong = problem.violations(instance, array)
        if wrong:
            storable = array.ndim == 1 and np.issubdtype(array.dtype, np.integer) and _fits_int32(array)
            record = _without_cost(instance, known, place, "infeasible", "; ".join(wrong))
            return Judged(record, array if storable else None)
        cost = problem.score(instance, array)
    key, cell, index, repeat, seed, seconds, sha256 = place
    record = Record(  # in the order of the fields: names would take longer than all the rest of this
        key, cell, index, instance.name, instance.n, repeat, seed, "ok", cost, known, seconds, optimal, None, None,
        instance.convention, "", sha256, counts_of(problem, instance, array),
    )  # fmt: skip
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


def _without_cost(
    instance: Instance, reference: float | None, place: Place, status: str, message: str
) -> Record:
    return Record(
        **place._asdict(), name=instance.name, n=instance.n, convention=instance.convention, reference=reference,
        status=status, cost=None, optimal=False, solution=None, solution_sha256=None,
        message=shown(message),
    )  # fmt: skip


def _fits_int32(array: NDArray[np.integer]) -> bool:
    limits = np.iinfo(np.int32)
    return array.size == 0 or bool(array.min() >= limits.min and array.max() <= limits.max)
