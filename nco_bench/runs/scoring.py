"""Scoring one solution of one instance, from files or from memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nco_bench.datasets import catalog
from nco_bench.datasets.dataset import Dataset, Origin, content_sha256
from nco_bench.datasets.places import Places, has_ledger
from nco_bench.errors import BadInputError, counted
from nco_bench.problems import Instance
from nco_bench.problems import problem as problem_module
from nco_bench.runs.judge import gap_percent


@dataclass(frozen=True)
class Scored:
    """What ``nco-bench score`` prints."""

    cost: float | None
    feasible: bool
    violations: tuple[str, ...]
    convention: str
    reference: float | None
    gap_percent: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    def describe(self) -> str:
        """Return one line for people."""
        if not self.feasible:
            return "infeasible: " + "; ".join(self.violations)
        gap = (
            ""
            if self.gap_percent is None
            else f", gap {self.gap_percent:z.4f} % to the reference {self.reference:.10g}"
        )
        return f"cost {self.cost:.10g} ({self.convention}){gap}"


def score_instance(given: Instance | Dataset, solution: ArrayLike, convention: str | None = None) -> Scored:
    """Score a solution.

    Parameters
    ----------
    given
        An instance, or a dataset with one, whose reference counts unless a published value is better.
    solution
        ``(L,)`` nodes.
    convention
        Another distance convention than the instance's own, or None; the reference then no longer applies.

    Raises
    ------
    BadInputError
        For a dataset with several instances, or a solution that is no list of whole numbers.
    """
    instance = only(given)
    stored = given.references[0] if isinstance(given, Dataset) else None
    try:
        nodes = np.asarray(solution)
    except ValueError:  # lists of unlike lengths
        nodes = np.asarray(None)
    if nodes.ndim != 1 or not np.issubdtype(nodes.dtype, np.integer):
        raise BadInputError(
            f"{instance.name}: the solution has shape {nodes.shape} and type {nodes.dtype}; expected a list of node indices."
        )
    known = published_value(instance)
    if stored is not None:
        known = stored.cost if known is None else min(known, stored.cost)  # only lengths are published
    if convention is not None and convention != instance.convention:
        instance = replace(instance, convention=convention)  # type: ignore[type-var]
        known = None
    module = problem_module(instance.problem)
    wrong = module.violations(instance, nodes)
    cost = None if wrong else module.score(instance, nodes)
    gap = None if cost is None or known is None else gap_percent(cost, known, module.OBJECTIVE)
    return Scored(cost, not wrong, wrong, instance.convention, known, gap)


def with_ledger(given: Instance | Dataset, places: Places) -> Instance | Dataset:
    """Lay the reference ledger over an instance or a dataset in memory, as loading by name or from a file does."""
    if not has_ledger(places.instances):
        return given
    from nco_bench.datasets import ledger

    if not isinstance(given, Dataset):
        given = Dataset(given.name, given.problem, (given,), (None,), Origin("memory"))
    return ledger.load(given, places.instances)


def only(given: Instance | Dataset) -> Instance:
    """Return an instance, or the one that a dataset holds.

    Raises
    ------
    BadInputError
        For a dataset with several.
    """
    if not isinstance(given, Dataset):
        return given
    if len(given) != 1:
        raise BadInputError(f"{given.name}: holds {counted(len(given), 'instance')}; score takes one.")
    return given.instances[0]


def published_value(instance: Instance) -> float | None:
    """Return the published value of a library instance, recognised by its content, or None."""
    found = content_sha256(instance.problem, [instance])
    entries = catalog.tsplib() if instance.problem == "tsp" else catalog.cvrplib()
    return next((entry.value for entry in entries if entry.content_sha256 == found), None)
