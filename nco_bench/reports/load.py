"""From run folders to one DataFrame of all records of a results folder, beside the facts of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.reports.columns import read_columns
from nco_bench.runs.records import STATUSES, Cell, Run, find_runs

OK = STATUSES.index("ok")


@dataclass(frozen=True)
class Group:
    """One solver configuration on one dataset, whichever runs found its records.

    Attributes
    ----------
    cell
        The facts, of the latest run.
    runs
        Ids of the runs that hold cells of this group, in order.
    environments
        Distinct environments of these runs, as in ``run.json``.
    latency_seconds
        Latest measured latency at batch size 1, or None.
    peak_memory_mb, peak_device_memory_mb
        Largest over the runs, or None.
    """

    cell: Cell
    runs: tuple[str, ...]
    environments: tuple[dict[str, Any], ...]
    latency_seconds: float | None
    peak_memory_mb: float | None
    peak_device_memory_mb: float | None


@dataclass(frozen=True)
class ResultFrame:
    """Records as columns, and what their codes stand for.

    Attributes
    ----------
    records
        One row per record: ``group`` (index into `groups`), ``run`` (into `runs`), ``instance``, ``name`` (into
        `names`), ``n``, ``repeat``, ``status`` (into `STATUSES`), ``cost``, ``reference``, ``gap_percent``,
        ``seconds``, ``optimal``, ``convention`` (into `conventions`), ``message`` (into `messages`),
        ``solution_offset``, ``solution_length`` (-1 without a solution). Missing numbers are NaN. Where records have
        counts, a column ``count_NAME`` for each.
    groups, runs, names, conventions, messages
        What the codes stand for.
    notes
        What a reader should know about how the records were put together.
    """

    records: pd.DataFrame
    groups: tuple[Group, ...]
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    conventions: tuple[str, ...]
    messages: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def select(self, *, datasets: Iterable[str] = (), solvers: Iterable[str] = ()) -> ResultFrame:
        """Keep some datasets and solvers (registry names or labels); empty means all. Codes stay as they are.

        Raises
        ------
        ResultsError
            When nothing is left.
        """
        data, names = set(datasets), set(solvers)
        keep = [
            (not data or g.cell.dataset in data)
            and (not names or bool(names & {g.cell.solver, g.cell.label}))
            for g in self.groups
        ]
        records = self.records[np.asarray(keep)[self.records["group"].to_numpy()]]
        if records.empty:
            have = sorted({f"{g.cell.label} on {g.cell.dataset}" for g in self.groups})
            raise ResultsError(
                f"No records of {', '.join(sorted(names)) or 'any solver'} on {', '.join(sorted(data)) or 'any dataset'}; "
                f"there are: {'; '.join(have[:12])}{' ...' if len(have) > 12 else ''}."
            )
        return ResultFrame(
            records, self.groups, self.runs, self.names, self.conventions, self.messages, self.notes
        )


def load_frame(results: Path) -> ResultFrame:
    """Read all runs below a results folder.

    Where the same key was computed more than once (two processes at a time, or ``--fresh``), the record of the
    latest run is kept. Gaps are those of the records, except where runs saw different references of one instance:
    then the best of them holds for all, and a note says so.

    Parameters
    ----------
    results
        Folder that holds the runs' folders.

    Raises
    ------
    ResultsError
        When the folder is empty or absent, a run is of another schema version, or a line is damaged.
    """
    runs = find_runs(results)
    groups: dict[tuple[Any, ...], _GroupBuilder] = {}
    columns = read_columns([(run.folder / "records.jsonl", _register_cells(run, groups)) for run in runs])
    if columns.records.empty:
        raise ResultsError(
            f"{results}: no results yet; fill it with: nco-bench run lkh3 --data tsp100 --limit 100"
        )
    records, repeated = columns.records, columns.repeated
    notes: tuple[str, ...] = ()
    if repeated.any():
        records = records[~repeated].reset_index(drop=True)
        notes = (f"{int(repeated.sum())} records were computed more than once; the latest counts.",)
    finished = tuple(builder.group() for builder in groups.values())
    improved = unify_references(records, finished)
    return ResultFrame(
        records, finished, tuple(runs), columns.names, columns.conventions, columns.messages, notes + improved
    )


def group_identity(cell: Cell) -> tuple[Any, ...]:
    """What makes two cells of different runs the same: all that can move a number."""
    return (
        cell.solver, cell.label, cell.decoding, cell.config_sha256, cell.dataset, cell.dataset_sha256,
        cell.problem_version, cell.seed,
    )  # fmt: skip


@dataclass
class _GroupBuilder:
    index: int
    cells: list[Cell] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    environments: list[dict[str, Any]] = field(default_factory=list)

    def add(self, cell: Cell, run: Run) -> None:
        self.cells.append(cell)
        if run.run_id not in self.runs:
            self.runs.append(run.run_id)
        environment = run.info.get("environment") or {}
        if environment not in self.environments:
            self.environments.append(environment)

    def group(self) -> Group:
        def known(name: str) -> list[float]:
            return [value for c in self.cells if (value := getattr(c, name)) is not None]

        return Group(
            cell=self.cells[-1],
            runs=tuple(self.runs),
            environments=tuple(self.environments),
            latency_seconds=next(reversed(known("latency_seconds")), None),
            peak_memory_mb=max(known("peak_memory_mb"), default=None),
            peak_device_memory_mb=max(known("peak_device_memory_mb"), default=None),
        )


def _register_cells(run: Run, groups: dict[tuple[Any, ...], _GroupBuilder]) -> dict[int, int]:
    """Add a run's cells to the groups; return cell index -> group index."""
    codes = {}
    for cell in run.cells():
        builder = groups.setdefault(group_identity(cell), _GroupBuilder(len(groups)))
        builder.add(cell, run)
        codes[cell.cell] = builder.index
    return codes


def unify_references(records: pd.DataFrame, groups: Sequence[Group]) -> tuple[str, ...]:
    """Hold all records of an instance against the same reference, the best that any run knew, in place.

    References improve between runs; gaps to different references must not stand in one column.

    Returns
    -------
    tuple of str
        A note per dataset whose records were changed.
    """
    data = sorted({g.cell.dataset_sha256 for g in groups})
    dataset, place, count = instance_places(records, groups, data)
    sign = np.array([-1.0 if g.cell.objective == "max" else 1.0 for g in groups])[records["group"].to_numpy()]
    reference = records["reference"].to_numpy()
    lowest = np.full(count, np.nan)
    np.fmin.at(lowest, place, sign * reference)
    best = sign * lowest[place]
    changed = (best != reference) & ~np.isnan(best)
    if not changed.any():
        return ()
    records["reference"] = np.where(changed, best, reference)
    gaps = gap_percents(records["cost"].to_numpy(), best, sign)
    records["gap_percent"] = np.where(changed, gaps, records["gap_percent"].to_numpy())
    names = {g.cell.dataset_sha256: g.cell.dataset for g in groups}
    notes = []
    for code in np.unique(dataset[changed]):
        instances = np.unique(records["instance"].to_numpy()[changed & (dataset == code)]).size
        notes.append(
            f"{names[data[code]]}: the references of {instances} instances changed between runs; "
            "all gaps are to the best known."
        )
    return tuple(notes)


def instance_places(
    records: pd.DataFrame, groups: Sequence[Group], datasets: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Number the instances of all datasets consecutively.

    Parameters
    ----------
    records, groups
        Of a frame.
    datasets
        Their hashes, each once.

    Returns
    -------
    dataset
        Of every record, as index into `datasets`.
    place
        Of every record: equal for records of one instance, and rising with the dataset.
    count
        Places there are; not all need be taken.
    """
    codes = {sha: code for code, sha in enumerate(datasets)}
    of_group = np.array([codes[g.cell.dataset_sha256] for g in groups], dtype=np.int64)
    dataset = of_group[records["group"].to_numpy()]
    instance = records["instance"].to_numpy().astype(np.int64)
    sizes = np.zeros(len(datasets), dtype=np.int64)
    np.maximum.at(sizes, dataset, instance + 1)
    if sizes.sum() > 8 * len(records) + 1024:  # a few records of far apart instances
        taken, place = np.unique(dataset << 32 | instance, return_inverse=True)
        return dataset, place, len(taken)
    return dataset, (np.cumsum(sizes) - sizes)[dataset] + instance, int(sizes.sum())


def gap_percents(
    cost: NDArray[np.float64], reference: NDArray[np.float64], sign: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Gaps in percent as the runner defines them, elementwise.

    Parameters
    ----------
    cost, reference
        NaN where unknown.
    sign
        1 where lower is better, -1 where higher is better.

    Returns
    -------
    array
        100 sign (cost - reference) / abs(reference); 0 where both are 0, NaN where only the reference is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = 100.0 * sign * (cost - reference) / np.abs(reference)
    return np.where(reference == 0, np.where(cost == 0, 0.0, np.nan), gaps)
