"""The reference ledger: the best solution that was ever found for each instance.

``<instances>/ledger/references.sqlite``, keyed by the content hash of the instance alone, so whatever set an instance stands
in, under whatever name, it has the same reference. The ledger keeps per instance cost, solution, solver, parameters,
seconds, whether it is proven optimal, and the day. It is laid over the references that a dataset brings along; the better
one counts. Tables ask it when they are made.

Writers take SQLite's lock, read, merge and commit, so two processes lose nothing. Ledgers of before (one ``<sha16>.npz`` per
dataset content, keyed by the index of the instance) are read beside it.
"""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.ledger_file import (
    Row,
    committed,
    ledger_path,
    locked,
    old_rows,
    rows_by_hash,
    write,
    write_places,
)
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance, problem

COST_TOLERANCE = 1e-9
"""Relative difference below which two costs are equal: float64 sums in another order."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A solution offered as the reference of one instance.

    Attributes
    ----------
    index
        Of the instance in the whole dataset (not in a slice).
    solution
        Node sequence; its cost is recomputed, never taken over.
    solver, params
        Who found it, and how.
    seconds
        What it took, where known.
    optimal
        True where the solver proved it.
    insertion_cost
        Cost of a random insertion solution of the same instance. A reference must not be worse. None leaves the
        check out (only for solvers that cannot be worse, such as a proof), and nodes in file order without it are refused.
    """

    index: int
    solution: NDArray[np.integer]
    solver: str
    params: str = ""
    seconds: float | None = None
    optimal: bool = False
    insertion_cost: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate.

    Attributes
    ----------
    index
        Of the instance.
    status
        ``improved`` (stored, better or first), ``proved`` (as good as known, now proven), ``kept`` (what is known is as
        good or better), ``refused`` (not fit to be a reference).
    reason
        One sentence.
    cost, previous
        Recomputed cost (None if infeasible) and the cost known before (None if none).
    """

    index: int
    status: str
    reason: str
    cost: float | None
    previous: float | None


def load(dataset: Dataset, instances_dir: Path) -> Dataset:
    """Lay the ledger's references over a dataset's own; the better one counts, and a proof is kept.

    Parameters
    ----------
    dataset
        A whole dataset or a slice of one.
    instances_dir
        Folder that holds ``ledger/``.

    Raises
    ------
    BadInputError
        When the ledger is damaged.
    """
    rows = _rows_of(dataset, range(len(dataset)), instances_dir)
    if not rows:
        return dataset
    merged = [
        better(reference, rows[i].reference, dataset.problem) if i in rows else reference
        for i, reference in enumerate(dataset.references)
    ]
    return dataset.with_references(merged)


def better(known: Reference | None, new: Reference, problem_name: str) -> Reference:
    if known is None or beats(new.cost, known.cost, problem_name):
        return new
    if abs(new.cost - known.cost) <= _slack(known.cost):
        # The same cost: prefer the one with a solution, and keep a proof whoever has it.
        best = known if known.solution is not None or new.solution is None else new
        return replace(best, optimal=known.optimal or new.optimal)
    return known


def beats(new: float, known: float, problem_name: str) -> bool:
    """Whether a cost is better than another by more than rounding, where the problem's objective is what counts."""
    gain = known - new if problem(problem_name).OBJECTIVE == "min" else new - known
    return gain > _slack(known)


def _slack(cost: float) -> float:
    return COST_TOLERANCE * max(1.0, abs(cost))


def improve(
    dataset: Dataset, candidates: Sequence[Candidate], instances_dir: Path, today: datetime.date | None = None
) -> list[Outcome]:
    """Offer solutions to the ledger; keep those that beat what is known.

    Parameters
    ----------
    dataset
        The dataset that the indices of the candidates refer to (whole, or a slice that holds them).
    candidates
        In any order, several per instance allowed.
    instances_dir
        Folder that holds ``ledger/``.
    today
        Date to note; by default the current day in UTC.

    Returns
    -------
    list of Outcome
        One per candidate, in order.

    Raises
    ------
    BadInputError
        When the ledger is damaged or cannot be written. What stood there before stays.
    """
    date = (today or datetime.datetime.now(datetime.UTC).date()).isoformat()
    judged = [_judge(dataset, candidate) for candidate in candidates]
    if all(outcome.status == "refused" for outcome in judged):
        return judged
    positions = sorted({candidate.index - dataset.first_index for candidate in candidates})
    with locked(ledger_path(instances_dir)) as ledger:
        rows = _rows_of(dataset, positions, instances_dir, ledger)
        before = dict(rows)
        outcomes = [
            _apply(dataset, rows, candidate, outcome, date)
            for candidate, outcome in zip(candidates, judged, strict=True)
        ]
        changed = [position for position, row in rows.items() if row is not before.get(position)]
        write(ledger, dataset, {position: rows[position] for position in changed})
        write_places(ledger, dataset, positions)
    return outcomes


def _judge(dataset: Dataset, candidate: Candidate) -> Outcome:
    """Refuse what must not become a reference, whatever is known."""
    instance = _instance(dataset, candidate.index)
    solution = np.asarray(candidate.solution)
    faults = problem(dataset.problem).violations(instance, solution)
    if faults:
        return Outcome(candidate.index, "refused", f"infeasible: {faults[0]}", None, None)
    cost = float(problem(dataset.problem).score(instance, solution))
    if not np.isfinite(cost):
        return Outcome(candidate.index, "refused", "its cost is not finite", None, None)
    limit, in_order = candidate.insertion_cost, in_file_order(instance, solution)
    if limit is None and in_order and not candidate.optimal:
        reason = "the nodes in the order of the file, and nothing to judge them by: most likely a solver that did nothing"
        return Outcome(candidate.index, "refused", reason, cost, None)
    if limit is not None and cost > limit + _slack(limit):
        reason = f"costs {cost:.10g}, more than a random insertion solution ({limit:.10g})"
        if in_order:
            reason += ", with the nodes in the order of the file: most likely a solver that did nothing"
        return Outcome(candidate.index, "refused", reason, cost, None)
    return Outcome(candidate.index, "kept", "", cost, None)


def _instance(dataset: Dataset, index: int) -> Instance:
    position = index - dataset.first_index
    if not 0 <= position < len(dataset):
        raise BadInputError(f"{dataset.name}: no instance {index} to give a reference to.")
    return dataset.instances[position]


def in_file_order(instance: Instance, solution: NDArray[np.integer]) -> bool:
    """True for more than four nodes in file order: by chance, as the file was written along a tour, or without any work."""
    visits = solution[solution != 0] if instance.problem == "cvrp" else solution
    return len(visits) > 4 and bool(np.all(np.diff(visits) == 1))


def _apply(
    dataset: Dataset, rows: dict[int, Row], candidate: Candidate, judged: Outcome, date: str
) -> Outcome:
    """Store a candidate in `rows` if it beats what ledger and dataset know."""
    if judged.status == "refused":
        return judged
    assert judged.cost is not None
    position = candidate.index - dataset.first_index
    known = dataset.references[position]
    if position in rows:
        known = better(known, rows[position].reference, dataset.problem)
    new = Reference(
        cost=judged.cost,
        solver=candidate.solver,
        solution=np.asarray(candidate.solution, dtype=np.int64).copy(),
        optimal=candidate.optimal,
        seconds=candidate.seconds,
        params=candidate.params,
    )
    previous = None if known is None else known.cost
    if known is None or beats(new.cost, known.cost, dataset.problem):
        if known is not None and known.optimal:
            reason = f"costs {new.cost:.10g}, better than the proven optimum {known.cost:.10g}: one of the two is wrong"
            return replace(judged, status="refused", reason=reason, previous=previous)
        rows[position] = Row(new, date)
        reason = "first reference" if known is None else f"better than {known.cost:.10g} of {known.solver}"
        return replace(judged, status="improved", reason=reason, previous=previous)
    same = abs(new.cost - known.cost) <= _slack(known.cost)
    if same and known.solution is None:
        rows[position] = Row(replace(new, optimal=new.optimal or known.optimal), date)
        return replace(
            judged, status="improved", reason="the first solution of the known cost", previous=previous
        )
    if same and new.optimal and not known.optimal:
        rows[position] = Row(new, date)
        return replace(
            judged, status="proved", reason=f"the cost of {known.solver} is optimal", previous=previous
        )
    return replace(judged, status="kept", reason=f"{known.solver} has {known.cost:.10g}", previous=previous)


def _rows_of(
    dataset: Dataset,
    positions: Collection[int],
    instances_dir: Path,
    ledger: sqlite3.Connection | None = None,
) -> dict[int, Row]:
    """Read what the ledgers know of some instances of a dataset, by their position in it."""
    path, first = ledger_path(instances_dir), dataset.first_index
    rows = {
        position: old[first + position]
        for old in [old_rows(dataset.sha256, instances_dir)]
        for position in positions
        if first + position in old
    }
    hashes = dataset.instance_hashes
    with contextlib.nullcontext(ledger) if ledger is not None else committed(path) as connection:
        if connection is None:
            return rows
        found = rows_by_hash(connection, {hashes[position] for position in positions})
    for position in positions:
        row, old_row = found.get(hashes[position]), rows.get(position)
        if row is None:
            continue
        if old_row is None or not beats(old_row.reference.cost, row.reference.cost, dataset.problem):
            rows[position] = row
    return rows
