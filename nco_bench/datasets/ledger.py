"""The reference ledger: the best solution that was ever found for each instance of a dataset.

One file per dataset content, ``<instances>/ledger/<sha16>.npz``, keyed by the content hash, so the same instances under
another name share their references. It keeps per instance cost, solution, solver, parameters, seconds, whether it is
proven optimal, and the day. It is laid over the references that a dataset brings along; the better one counts.

Writers hold a lock (``fcntl``) on ``<sha16>.lock``, read, merge, and replace the file, so two processes lose nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.formats.reading import read_npz, write_npz
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance, problem

FORMAT_VERSION = 1
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
        check out (only for solvers that cannot be worse, such as a proof).
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


@dataclass(frozen=True, eq=False)
class _Row:
    reference: Reference
    date: str


def ledger_path(dataset: Dataset, instances_dir: Path) -> Path:
    """Return the ledger file of a dataset's content."""
    return instances_dir / "ledger" / f"{dataset.sha256[:16]}.npz"


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
        When the ledger file is damaged, or belongs to another dataset.
    """
    rows = _read(ledger_path(dataset, instances_dir), dataset.sha256)
    if not rows:
        return dataset
    merged = [
        _better(reference, rows[dataset.first_index + i].reference, dataset.problem)
        if dataset.first_index + i in rows
        else reference
        for i, reference in enumerate(dataset.references)
    ]
    return dataset.with_references(merged)


def _better(known: Reference | None, new: Reference, problem_name: str) -> Reference:
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
    path = ledger_path(dataset, instances_dir)
    with _locked(path):
        rows = _read(path, dataset.sha256)
        outcomes = []
        for candidate, outcome in zip(candidates, judged, strict=True):
            outcomes.append(_apply(dataset, rows, candidate, outcome, date))
        if any(outcome.status in ("improved", "proved") for outcome in outcomes):
            _write(path, dataset, rows)
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
    if _is_identity(solution, instance):
        reason = "the nodes in the order of the file: most likely a solver that did nothing"
        return Outcome(candidate.index, "refused", reason, cost, None)
    limit = candidate.insertion_cost
    if limit is not None and cost > limit + _slack(limit):
        reason = f"costs {cost:.10g}, more than a random insertion solution ({limit:.10g})"
        return Outcome(candidate.index, "refused", reason, cost, None)
    return Outcome(candidate.index, "kept", "", cost, None)


def _instance(dataset: Dataset, index: int) -> Instance:
    position = index - dataset.first_index
    if not 0 <= position < len(dataset):
        raise BadInputError(f"{dataset.name}: no instance {index} to give a reference to.")
    return dataset.instances[position]


def _is_identity(solution: NDArray[np.integer], instance: Instance) -> bool:
    """True for nodes in file order; with up to four nodes that can be the best order."""
    visits = solution[solution != 0] if instance.problem == "cvrp" else solution
    return len(visits) > 4 and bool(np.all(np.diff(visits) == 1))


def _apply(
    dataset: Dataset, rows: dict[int, _Row], candidate: Candidate, judged: Outcome, date: str
) -> Outcome:
    """Store a candidate in `rows` if it beats what ledger and dataset know."""
    if judged.status == "refused":
        return judged
    assert judged.cost is not None
    known = dataset.references[candidate.index - dataset.first_index]
    if candidate.index in rows:
        known = _better(known, rows[candidate.index].reference, dataset.problem)
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
        rows[candidate.index] = _Row(new, date)
        reason = "first reference" if known is None else f"better than {known.cost:.10g} of {known.solver}"
        return replace(judged, status="improved", reason=reason, previous=previous)
    same = abs(new.cost - known.cost) <= _slack(known.cost)
    if same and known.solution is None:
        rows[candidate.index] = _Row(replace(new, optimal=new.optimal or known.optimal), date)
        return replace(
            judged, status="improved", reason="the first solution of the known cost", previous=previous
        )
    if same and new.optimal and not known.optimal:
        rows[candidate.index] = _Row(new, date)
        return replace(
            judged, status="proved", reason=f"the cost of {known.solver} is optimal", previous=previous
        )
    return replace(judged, status="kept", reason=f"{known.solver} has {known.cost:.10g}", previous=previous)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.with_suffix(".lock").open("a")
    except OSError as error:
        raise BadInputError(
            f"{path.parent}: the ledger cannot be written ({error.strerror or error})."
        ) from None
    with handle:
        # Released when the file is closed, also when the process dies.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _read(path: Path, sha256: str) -> dict[int, _Row]:
    if not path.is_file():
        return {}
    arrays = read_npz(path)
    try:
        return _rows(arrays, sha256, path)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise BadInputError(
            f"{path}: a damaged ledger ({error}); delete it, or restore it from a backup."
        ) from None


def _rows(arrays: Mapping[str, NDArray[Any]], sha256: str, path: Path) -> dict[int, _Row]:
    if int(arrays["format"]) != FORMAT_VERSION or str(arrays["sha256"]) != sha256:
        raise BadInputError(f"{path}: a ledger of another dataset or version; move it away.")
    starts = np.concatenate(([0], np.cumsum(arrays["length"])))
    rows = {}
    for k, index in enumerate(arrays["index"].tolist()):
        seconds = float(arrays["seconds"][k])
        reference = Reference(
            cost=float(arrays["cost"][k]),
            solver=str(arrays["solver"][k]),
            solution=arrays["solution"][starts[k] : starts[k + 1]].astype(np.int64),
            optimal=bool(arrays["optimal"][k]),
            seconds=None if np.isnan(seconds) else seconds,
            params=str(arrays["params"][k]),
        )
        rows[int(index)] = _Row(reference, str(arrays["date"][k]))
    return rows


def _write(path: Path, dataset: Dataset, rows: Mapping[int, _Row]) -> None:
    order = sorted(rows)
    references = [rows[index].reference for index in order]
    solutions = [np.asarray(r.solution, dtype=np.int32) for r in references]
    write_npz(
        path,
        {
            "format": np.array(FORMAT_VERSION),
            "sha256": np.array(dataset.sha256),
            "dataset": np.array(dataset.name),
            "index": np.array(order, dtype=np.int64),
            "cost": np.array([r.cost for r in references]),
            "optimal": np.array([r.optimal for r in references]),
            "seconds": np.array([np.nan if r.seconds is None else r.seconds for r in references]),
            "solver": np.array([r.solver for r in references]),
            "params": np.array([r.params for r in references]),
            "date": np.array([rows[index].date for index in order]),
            "length": np.array([len(s) for s in solutions], dtype=np.int64),
            "solution": np.concatenate(solutions),
        },
    )
