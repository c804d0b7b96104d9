"""References are computed by an ordinary run: per-instance records, parallel, resumable; then the solutions are collected.

The run lives in ``references/`` inside the instances folder, apart from the results a user reports on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nco_bench.datasets import ledger
from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import SolverFailedError
from nco_bench.runs.display import Display
from nco_bench.runs.executors import execute
from nco_bench.runs.finding import find_runs
from nco_bench.runs.offering import offer
from nco_bench.runs.records import Record, settings_of
from nco_bench.runs.request import RunRequest, cut
from nco_bench.runs.store import REFERENCES
from nco_bench.runs.stored_run import Run


@dataclass(frozen=True)
class ReferenceRun:
    """How references are made.

    Attributes
    ----------
    solver
        Solver with options, such as ``lkh3:runs=10``.
    jobs
        Processes at once.
    time_limit
        Seconds per instance, or None.
    limit
        Instances to solve, as in `RunRequest`.
    """

    solver: str
    jobs: int = 1
    seed: int = 1234
    time_limit: float | None = None
    command: str = ""
    limit: tuple[int, int | None] | None = None


def compute_references(
    dataset: Dataset, source: str, how: ReferenceRun, places: Places, display: Display
) -> list[Reference | None]:
    """Solve every instance of a dataset and return the solutions as references.

    Parameters
    ----------
    dataset
        What `source` loads, cut to the limit; its content hash finds the records of earlier, interrupted tries.
    source
        Name or path by which worker processes load the dataset.
    how, places, display
        Settings, folders, progress.

    Raises
    ------
    SolverFailedError
        When not one instance was solved.
    """
    results = places.instances / REFERENCES
    request = RunRequest(
        solvers=(how.solver,), datasets=(source,), results=results, places=places, seed=how.seed, jobs=how.jobs,
        limit=how.limit, time_limit=how.time_limit, command=how.command,
    )  # fmt: skip
    outcome = execute(request, display)
    configs = {cell.config_sha256 for cell in outcome.cells}
    found = collect(results, configs, dataset)
    if not any(found):
        raise SolverFailedError(f"{how.solver} solved no instance of {dataset.name}; see {results}.")
    return found


def collect(results: Path, configs: set[str], dataset: Dataset) -> list[Reference | None]:
    """Gather the best stored solution of each instance of `dataset` from the cells with these configurations."""
    best: dict[int, tuple[float, Run, Record, str, str]] = {}
    for run in find_runs(results):
        cells = {c.cell: c for c in run.cells() if c.config_sha256 in configs and c.is_of(dataset)}
        for record in run.records() if cells else ():
            cell = cells.get(record.cell)
            if cell is None or record.status != "ok" or record.cost is None:
                continue
            if not dataset.holds(record.instance, record.instance_sha256):
                continue
            known = best.get(record.instance)
            if known is None or ledger.beats(record.cost, known[0], dataset.problem):
                best[record.instance] = (record.cost, run, record, cell.solver, settings_of(cell))
    out: list[Reference | None] = [None] * len(dataset)
    for index, (cost, run, record, solver, settings) in best.items():
        out[index - dataset.first_index] = Reference(
            cost, solver, run.solution(record).copy(), record.optimal, record.seconds, settings
        )
    return out


def merge(
    known: Sequence[Reference | None], new: Sequence[Reference | None], problem: str
) -> list[Reference | None]:
    """Take the better of two references per instance; of equal costs the proven one, then the known one."""
    return [
        b if a is None or (b is not None and _is_better(b, a, problem)) else a
        for a, b in zip(known, new, strict=True)
    ]


def _is_better(new: Reference, known: Reference, problem: str) -> bool:
    if ledger.beats(new.cost, known.cost, problem) or ledger.beats(known.cost, new.cost, problem):
        return ledger.beats(new.cost, known.cost, problem)
    return new.optimal > known.optimal or (known.solution is None and new.solution is not None)


@dataclass(frozen=True)
class Improved:
    """What `improve_references` did."""

    dataset: str
    instances: int
    known_before: int
    improved: int
    refused: tuple[str, ...]
    mean_before: float | None
    mean_after: float | None

    def as_dict(self) -> dict[str, object]:
        """Return the fields."""
        return asdict(self)

    def describe(self) -> str:
        """Return one line for people, and one per refused solution."""
        lines = [
            f"{self.dataset}: {self.improved} of {self.instances} references are new or better "
            f"({self.known_before} were known){self._means()}"
        ]
        return "\n".join([*lines, *(f"refused: {text}" for text in self.refused)])

    def _means(self) -> str:
        if self.mean_after is None:
            return ""
        before = "" if self.mean_before is None else f"{self.mean_before:.6g} -> "
        return f", mean {before}{self.mean_after:.6g}"


def improve_references(source: str, how: ReferenceRun, places: Places, display: Display) -> Improved:
    """Solve a dataset and store what is better than its references in the ledger.

    Parameters
    ----------
    source
        Name or path of the dataset.
    how, places, display
        Settings, folders, progress.
    """
    dataset = cut(load_dataset(source, places), how.limit)
    found = compute_references(dataset, source, how, places, display)
    outcomes = offer(dataset, {p: r for p, r in enumerate(found) if r is not None}, places.instances)
    refused = tuple(f"instance {o.index}: {o.reason}" for o in outcomes if o.status == "refused")
    improved = sum(o.status in ("improved", "proved") for o in outcomes)
    after = cut(load_dataset(source, places), how.limit)
    return Improved(
        dataset.name, len(dataset), sum(r is not None for r in dataset.references), improved, refused,
        _mean(dataset), _mean(after),
    )  # fmt: skip


def _mean(dataset: Dataset) -> float | None:
    costs = [r.cost for r in dataset.references if r is not None]
    return sum(costs) / len(costs) if costs else None
