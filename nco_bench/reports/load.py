"""From run folders to columns: all records of a results folder in one DataFrame, beside the facts of their cells.

A million records must load in seconds, so lines are decoded in blocks and go straight into NumPy columns; no
`Record` object is made.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.runs.records import STATUSES, Cell, Run, find_runs

BLOCK = 20_000
"""Records decoded at a time; larger blocks gain nothing and hold more dicts at once."""

OK = STATUSES.index("ok")
COUNT_PREFIX = "count_"
"""Of the columns that hold records' counts."""


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
    columns = _Columns()
    groups: dict[tuple[Any, ...], _GroupBuilder] = {}
    with _without_gc():
        for code, run in enumerate(runs):
            codes = _register_cells(run, groups)
            columns.read(run, code, codes)
    if not columns.count:
        raise ResultsError(
            f"{results}: no results yet; fill it with: nco-bench run lkh3 --data tsp100 --limit 100"
        )
    records = columns.frame()
    duplicated = records["key"].duplicated(keep="last").to_numpy()
    notes = (f"{int(duplicated.sum())} records were computed more than once; the latest counts.",)
    records = records.drop(columns="key")[~duplicated].reset_index(drop=True)
    finished = tuple(builder.group() for builder in groups.values())
    improved = unify_references(records, finished)
    return ResultFrame(
        records,
        finished,
        tuple(runs),
        tuple(columns.names),
        tuple(columns.conventions),
        tuple(columns.messages),
        (notes if duplicated.any() else ()) + improved,
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


class _Codes(dict[str, int]):
    """Strings to consecutive codes, given when first seen."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code


_PLAIN: tuple[tuple[str, type], ...] = (
    ("instance", np.int32), ("n", np.int32), ("repeat", np.int32), ("cost", np.float64), ("reference", np.float64),
    ("gap_percent", np.float64), ("seconds", np.float64), ("optimal", np.bool_),
)  # fmt: skip
_FIELDS = itemgetter(
    "key", "cell", "name", "status", "convention", "message", "solution", *(name for name, _ in _PLAIN)
)


class _Columns:
    """Columns that grow by blocks of decoded lines."""

    def __init__(self) -> None:
        self.names, self.conventions, self.messages = _Codes(), _Codes(), _Codes()
        self._status = {name: code for code, name in enumerate(STATUSES)}
        self._keys: list[str] = []
        self._counts: dict[str, list[tuple[int, NDArray[np.float64]]]] = {}
        self._blocks: dict[str, list[NDArray[Any]]] = {}
        self.count = 0

    def read(self, run: Run, run_code: int, group_codes: dict[int, int]) -> None:
        lines: Iterator[dict[str, Any]] = run.raw_records()
        while block := list(islice(lines, BLOCK)):
            try:
                self._append(block, run_code, group_codes)
            except (KeyError, TypeError, ValueError) as error:
                raise ResultsError(
                    f"{run.folder / 'records.jsonl'}: a record does not fit its run ({type(error).__name__}: {error}); "
                    f"move the run's folder away."
                ) from error

    def _append(self, block: list[dict[str, Any]], run_code: int, group_codes: dict[int, int]) -> None:
        keys, cells, names, statuses, conventions, messages, solutions, *plain = zip(
            *map(_FIELDS, block), strict=True
        )
        self._keys.extend(keys)
        self._add("run", [run_code] * len(block), np.int32)
        self._add("group", _mapped(group_codes.__getitem__, cells), np.int32)
        self._add("name", _mapped(self.names.__getitem__, names), np.int32)
        self._add("status", _mapped(self._status.__getitem__, statuses), np.int8)
        self._add("convention", _mapped(self.conventions.__getitem__, conventions), np.int16)
        self._add("message", _mapped(self.messages.__getitem__, messages), np.int32)
        self._add("solution_offset", [-1 if s is None else s[0] for s in solutions], np.int64)
        self._add("solution_length", [-1 if s is None else s[1] for s in solutions], np.int32)
        for (name, dtype), values in zip(_PLAIN, plain, strict=True):
            self._add(name, values, dtype)
        if any("counts" in line for line in block):
            self._add_counts([line.get("counts") or {} for line in block])
        self.count += len(block)

    def _add_counts(self, counts: Sequence[dict[str, float]]) -> None:
        for name in dict.fromkeys(chain.from_iterable(counts)):
            try:
                found = list(map(itemgetter(name), counts))
            except KeyError:  # not all records count the same
                found = [line.get(name) for line in counts]
            values = np.array(found, dtype=np.float64)
            self._counts.setdefault(name, []).append((self.count, values))

    def _count_column(self, name: str) -> NDArray[np.float64]:
        column = np.full(self.count, np.nan)
        for start, values in self._counts[name]:
            column[start : start + len(values)] = values
        return column

    def _add(self, name: str, values: Sequence[Any], dtype: type) -> None:
        self._blocks.setdefault(name, []).append(np.array(values, dtype=dtype))  # None becomes NaN

    def frame(self) -> pd.DataFrame:
        columns: dict[str, Any] = {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}
        self._blocks = {}
        columns.update({f"{COUNT_PREFIX}{name}": self._count_column(name) for name in self._counts})
        return pd.DataFrame({"key": pd.Series(self._keys, dtype=object), **columns}, copy=False)


def _mapped(code: Callable[[Any], int], values: Iterable[Any]) -> list[int]:
    return list(map(code, values))


@contextmanager
def _without_gc() -> Iterator[None]:
    """Hold the cycle collector off: millions of short-lived dicts make it run all the time, and there are no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def unify_references(records: pd.DataFrame, groups: Sequence[Group]) -> tuple[str, ...]:
    """Hold all records of an instance against the same reference, the best that any run knew, in place.

    References improve between runs; gaps to different references must not stand in one column.

    Returns
    -------
    tuple of str
        A note per dataset whose records were changed.
    """
    data = sorted({g.cell.dataset_sha256 for g in groups})
    dataset = np.array([data.index(g.cell.dataset_sha256) for g in groups], dtype=np.int64)[
        records["group"].to_numpy()
    ]
    sign = np.array([-1.0 if g.cell.objective == "max" else 1.0 for g in groups])[records["group"].to_numpy()]
    reference = records["reference"].to_numpy()
    place = pd.Series(dataset << 32 | records["instance"].to_numpy().astype(np.int64))
    best = sign * pd.Series(sign * reference).groupby(place, sort=False).transform("min").to_numpy()
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
