"""The Python API, which the command line itself uses; what ``import nco_bench`` offers comes from here.

Names, options and defaults are those of the command line; folders default to the environment's. A user's mistake raises
`nco_bench.errors.NcoBenchError` with the line that the command line would print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import ArrayLike

from nco_bench.arguments import as_text, refused
from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import load_dataset
from nco_bench.problems import Instance
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import frame_of_cells
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.tables.table import Table, build_table
from nco_bench.runs.display import Display, QuietDisplay
from nco_bench.runs.executors import execute_all
from nco_bench.runs.runner import RunOutcome
from nco_bench.solvers.protocol import Solver as Solver
from nco_bench.solvers.registry import register as register
from nco_bench.study import Study as Study
from nco_bench.study import places_of

if TYPE_CHECKING:
    from nco_bench.runs.planning import Plan
    from nco_bench.runs.scoring import Scored

Names = str | Sequence[str]
Folder = str | Path


@dataclass(frozen=True, repr=False)
class RunResult:
    """What a run was asked for, whether it was computed now or stored before; shows itself as its main table.

    Attributes
    ----------
    run_ids
        Folders written now.
    failed
        Instances that failed now.
    skipped
        A line for each solver that cannot run on a dataset.
    frame
        The records, for `nco_bench.reports`.
    """

    run_ids: tuple[str, ...]
    failed: int
    skipped: tuple[str, ...]
    frame: ResultFrame

    @cached_property
    def table(self) -> Table:
        """Cost, gap and time, as ``nco-bench run`` prints them."""
        return build_table("main", self.frame)

    @cached_property
    def records(self) -> pd.DataFrame:
        """A row per instance and repeat, as `records` gives them."""
        from nco_bench.reports.frame.tidy import tidy

        return tidy(self.frame)

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """A dict per solver, decoding, dataset and seed: the cells of ``nco-bench run --json``."""
        return [summary.as_dict() for summary in summarise(self.frame)]

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def load(name: Folder, *, instances: Folder | None = None) -> Dataset:
    """Load a dataset by name (``tsp100``, ``tsplib/berlin52``, ``cvrplib:X``) or from a file of any supported format.

    Parameters
    ----------
    name
        Generated sets are made on the spot where they are not stored.
    instances
        Folder of stored sets and of the reference ledger.

    Returns
    -------
    Dataset
        ``instances`` and ``references``, one each per instance, with the best solutions known here.

    Raises
    ------
    UnknownNameError, BadInputError
        For a name that nothing answers to, or a damaged file.
    """
    return load_dataset(as_text("name", name, "a name or a file"), places_of(instances))


def run(
    solvers: Names,
    data: Names,
    *,
    decoding: Names = (),
    weights: str | None = None,
    logit_scale: str | None = None,
    coordinate_scale: str | float | None = None,
    device: str = "auto",
    seed: int | Sequence[int] = 1234,
    repeats: int = 1,
    batch_size: str | int = "auto",
    limit: str | int | None = None,
    time_limit: float | None = None,
    param: Mapping[str, Any] | None = None,
    jobs: int = 1,
    fresh: bool = False,
    update_references: bool = False,
    results: Folder | None = None,
    instances: Folder | None = None,
) -> RunResult:
    """Run solvers on datasets; what is stored is not computed again.

    The parameters are the options of ``nco-bench run``, see `Study`. With ``jobs`` above 1, a script must start under
    ``if __name__ == "__main__":``, as for every Python program that starts processes.

    Returns
    -------
    RunResult
        With ``table``, ``records`` and ``cells``.

    Raises
    ------
    NcoBenchError
        For a user's mistake; an instance that a solver fails on is a record, and raises nothing.
    """
    study = Study(
        solvers=solvers,
        data=data,
        decoding=decoding,
        weights=weights,
        logit_scale=logit_scale,
        coordinate_scale=coordinate_scale,
        device=device,
        seed=seed,
        repeats=repeats,
        batch_size=batch_size,
        limit=limit,
        time_limit=time_limit,
        param=param or {},
        jobs=jobs,
        fresh=fresh,
        update_references=update_references,
        results=results,
        instances=instances,
    )
    return run_study(study)


def run_study(study: Study, display: Display | None = None, *, command: str = "") -> RunResult:
    """Run a study; `run` and ``nco-bench run`` end here.

    Parameters
    ----------
    study
        What to run.
    display
        Who is told of the progress; by default only failures are told, on stderr.
    command
        What stands in the records as the command; by default the call of `run` that does the same.
    """
    outcome = RunOutcome()
    requests = _study(study).requests(command)
    for done in execute_all(requests, display or QuietDisplay()):
        outcome.run_ids += done.run_ids
        outcome.cells += done.cells
        outcome.failed += done.failed
        outcome.references |= done.references
        outcome.skipped += [line for line in done.skipped if line not in outcome.skipped]
    first = requests[0]
    frame = frame_of_cells(
        first.results, outcome.cells, first.repeats, first.places.instances, outcome.references
    )
    return RunResult(tuple(outcome.run_ids), outcome.failed, tuple(outcome.skipped), frame)


def submit_study(study: Study, display: Display | None = None, *, command: str = "") -> RunOutcome:
    """Submit a study to SLURM and return, which is what ``nco-bench run --detach`` does; nothing is collected.

    Returns
    -------
    RunOutcome
        With `submissions`, for ``nco-bench runs status`` and ``wait``.
    """
    detached = replace(_study(study), detach=True)
    (outcome,) = execute_all(detached.requests(command), display or QuietDisplay())
    return outcome


def plan(study: Study, tell: Callable[[str], None] | None = None) -> Plan:
    """Say what a study would solve, what is stored, and how long it may take; nothing is written.

    Parameters
    ----------
    study
        What would be run.
    tell
        Called with a line before an instance is solved for the estimate, which is done where no record tells the time.
    """
    from nco_bench.runs import planning

    return planning.plan(_study(study).requests(), tell or (lambda _: None))


def score(
    instance: Folder | Instance | Dataset,
    solution: Folder | ArrayLike,
    *,
    convention: str | None = None,
    instances: Folder | None = None,
) -> Scored:
    """Score a solution: cost in float64 from the raw instance, or what makes it infeasible.

    Parameters
    ----------
    instance
        A file or a name of a dataset with one instance, such a dataset, or an instance of one.
    solution
        A ``.tour``, ``.sol`` or JSON file, or nodes counted from 0: ``(n,)`` for a tour; for the CVRP with 0, the depot, at
        the start, between routes and at the end.
    convention
        Another distance convention than the instance's own.
    instances
        Folder of stored sets and of the reference ledger, whose solutions count as they do for `run`.

    Raises
    ------
    BadInputError
        For unreadable files, or a dataset with several instances.
    """
    from nco_bench.runs.scoring import only, score_instance, with_ledger

    convention = None if convention is None else as_text("convention", convention)
    if isinstance(instance, str | Path):
        instance = load(instance, instances=instances)
    elif hasattr(instance, "problem"):
        instance = with_ledger(instance, places_of(instances))
    else:
        raise refused("instance", instance, "a file, a name, an instance or a dataset")
    if isinstance(solution, str | Path):
        from nco_bench.datasets import formats

        solution = formats.read_solution(Path(solution), only(instance))
    return score_instance(instance, solution, convention)


def _study(study: Study) -> Study:
    if not isinstance(study, Study):
        raise refused("study", study, "a Study, for instance nco_bench.Study(solvers='lkh3', data='tsp100')")
    return study
