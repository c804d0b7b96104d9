"""From run folders to one DataFrame of all records of a results folder, beside the facts of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.names import parse_generated, stream_of
from nco_bench.errors import ResultsError
from nco_bench.reports.frame.best_known import Source, hold_against_best
from nco_bench.reports.frame.columns import read_columns
from nco_bench.reports.frame.renamed import references_of_sets
from nco_bench.reports.frame.wholes import Set, Whole, wholes
from nco_bench.runs.finding import runs_of
from nco_bench.runs.records import STATUSES, Cell
from nco_bench.runs.stored_run import Run

OK = STATUSES.index("ok")


@dataclass(frozen=True)
class Group:
    """One solver configuration on one dataset, whichever runs found its records.

    Attributes
    ----------
    cell
        The facts, of the latest run; the dataset's name and hash are those of the longest set that the records are of.
    whole
        The sets that the records are of.
    labels
        What the solver was called, with its options, in each of the runs.
    sources
        What the set was called when it was asked for, to its name.
    runs
        Ids of the runs that hold cells of this group, in order.
    environments
        Distinct environments of these runs, as in ``run.json``.
    latency_seconds
        Latest measured latency at batch size 1, or None.
    peak_memory_mb, peak_device_memory_mb
        Largest over the runs, or None; the host's without what the process held before, where its runs say that.
    asked
        ``(first, last + 1, repeats)`` of what the commands asked for, where the records say it.
    repeated
        Records that a later run computed again; those are left out.
    """

    cell: Cell
    whole: Whole
    labels: tuple[str, ...]
    sources: Mapping[str, str]
    runs: tuple[str, ...]
    environments: tuple[dict[str, Any], ...]
    latency_seconds: float | None
    peak_memory_mb: float | None
    peak_device_memory_mb: float | None
    asked: tuple[tuple[int, int, int], ...] = ()
    repeated: int = 0

    def part(self, cell: Cell, first: int, last: int) -> Group:
        """Return the group with the facts of another cell and only some instances."""
        asked = tuple((max(a, first), min(b, last), k) for a, b, k in self.asked if a < last and b > first)
        return replace(self, cell=cell, asked=asked)


@dataclass(frozen=True)
class ResultFrame:
    """Records as columns, and what their codes stand for.

    Attributes
    ----------
    records
        One row per record: ``group`` (index into `groups`), ``run`` (into `runs`), ``instance``, ``name`` (into
        `names`), ``n``, ``repeat``, ``status`` (into `STATUSES`), ``cost``, ``reference``, ``reference_from`` (into
        `references`, or -1), ``gap_percent``, ``seconds``, ``optimal``, ``convention`` (into `conventions`), ``message``
        (into `messages`), ``content`` (hash of the instance, or 0),
        ``solution_offset``, ``solution_length`` (-1 without a solution). Missing numbers are NaN. Where records have
        counts, a column ``count_NAME`` for each.
    groups, runs, names, conventions, messages, references
        What the codes stand for.
    wholes
        What the sets of all runs are part of.
    notes
        What a reader should know about how the records were put together.
    solvers
        All solvers of the runs, whatever was selected.
    """

    records: pd.DataFrame
    groups: tuple[Group, ...]
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    conventions: tuple[str, ...]
    messages: tuple[str, ...]
    references: tuple[Source, ...] = ()
    wholes: Mapping[Set, Whole] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()

    @cached_property
    def _codes(self) -> dict[tuple[Any, ...], int]:
        return {_identity(group.cell, group.whole): code for code, group in enumerate(self.groups)}

    def code_of(self, cell: Cell) -> int | None:
        """Return the group that a run's cell is part of, or None where nothing of it is stored; of a whole frame."""
        known = self.wholes.get((cell.dataset, cell.dataset_sha256))
        for whole in (
            self.wholes.values() if known is None else (known,)
        ):  # it may have been stored under another name
            if known or whole.key == cell.whole or cell.dataset_sha256 in whole.names.values():
                return self._codes.get(_identity(cell, whole))
        return None

    def parts(self, wanted: Sequence[Mapping[int, tuple[Cell, int, int]]]) -> ResultFrame:
        """Return some instances of some groups, under other facts.

        Parameters
        ----------
        wanted
            For each part: group to its new facts, and the first and last + 1 of its instances. A group may be in several.
        """
        old, first = self.records["group"].to_numpy(), self.records["instance"].to_numpy()
        groups: list[Group] = []
        found = []
        for part in wanted:
            bounds = np.zeros((len(self.groups), 2), dtype=np.int64)
            codes = np.zeros(len(self.groups), dtype=np.int32)
            for code, (cell, start, stop) in part.items():
                bounds[code], codes[code] = (start, stop), len(groups)
                groups.append(self.groups[code].part(cell, start, stop))
            keep = np.flatnonzero((first >= bounds[old, 0]) & (first < bounds[old, 1]))
            found.append(self.records.iloc[keep].assign(group=codes[old[keep]]))
        records = pd.concat(found, ignore_index=True) if found else self.records.iloc[:0]
        return replace(self, records=records, groups=tuple(groups))

    def select(self, *, datasets: Iterable[str] = (), solvers: Iterable[str] = ()) -> ResultFrame:
        """Keep some datasets and solvers (registry names or labels, with the decoding or without); empty means all.

        A name may be a pattern like ``tsp*``, which stands for all that fit it. The name of a generated set means its
        instances, so ``tsp100:count=16`` keeps the first 16 of what was run as ``tsp100``; a set that is asked for under two
        names stands there twice.

        Raises
        ------
        ResultsError
            When nothing is left.
        """
        names, datasets = set(solvers), list(datasets)
        fits = {code for code, group in enumerate(self.groups) if not names or _answers(group, names)}
        asked = {printed: part for name in self.meant(datasets) for printed, part in [self._called(name)]}
        if not datasets:
            chosen = replace(self, records=self.records[np.isin(self.records["group"], list(fits))])
        else:
            chosen = self.parts([{c: v for c, v in part.items() if c in fits} for part in asked.values()])
        if chosen.records.empty:
            have = sorted({f"{g.cell.label} on {g.cell.dataset}" for g in self.groups})
            who, where = ", ".join(sorted(names)) or "any solver", ", ".join(asked) or "any dataset"
            raise ResultsError(
                f"No records of {who} on {where}; "
                f"there are: {'; '.join(have[:12])}{' ...' if len(have) > 12 else ''}."
            )
        return chosen

    def meant(self, names: Iterable[str]) -> list[str]:
        """Return the sets that names mean: for a pattern all that fit, each by the longest of its names that does."""
        found: list[str] = []
        known = {group.whole.key: group.whole for group in self.groups}.values()
        for pattern in names:
            fitting: list[str] = []
            for whole in known if is_pattern(pattern) else ():
                own = [name for name in whole.names if fnmatchcase(name, pattern)]
                fitting += [whole.name] if whole.name in own else own
            found += fitting or [pattern]
        return list(dict.fromkeys(found))

    def _called(self, name: str) -> tuple[str, dict[int, tuple[Cell, int, int]]]:
        """Return how a set is called in tables, and the groups with records of it, as for `parts`."""
        stream = stream_of(name)
        if stream is not None and any(group.whole.stream == stream[0] for group in self.groups):
            spec = parse_generated(name)
            assert spec is not None
            fitting = [code for code, group in enumerate(self.groups) if group.whole.stream == stream[0]]
            return spec.name, {code: self._renamed(code, spec.name, stream[1]) for code in fitting}
        fitting = [code for code, group in enumerate(self.groups) if name in group.whole.names]
        if fitting:
            return name, {code: self._renamed(code, name, _EVER) for code in fitting}
        sources = {
            known for group in self.groups for source, known in group.sources.items() if source == name
        }
        return self._called(sources.pop()) if sources else (name, {})

    def _renamed(self, code: int, name: str, count: int) -> tuple[Cell, int, int]:
        group = self.groups[code]
        sha256 = group.whole.names.get(name, group.whole.sha256)
        return replace(group.cell, dataset=name, dataset_sha256=sha256), 0, count


_EVER = 2**62
"""More instances than there are in any set."""


def is_pattern(name: str) -> bool:
    """Tell a pattern of names, such as ``tsp*``, from a name."""
    return any(letter in name for letter in "*?[")


def _answers(group: Group, names: Iterable[str]) -> bool:
    """Whether a group's solver answers to one of some names or patterns."""
    decoded = (f"{label} {group.cell.decoding}" for label in group.labels)
    own = (group.cell.solver, *group.labels, *decoded)
    return any(fnmatchcase(one, name) if is_pattern(name) else one == name for name in names for one in own)


def load_frame(
    results: Path | Sequence[Path],
    instances: Path | None = None,
    given: Mapping[str, Reference] | None = None,
) -> ResultFrame:
    """Read all runs below one or several results folders.

    Where the same thing was computed more than once (two processes at a time, or ``--fresh``), the record of the latest run
    is kept. Gaps are to the best reference that is known now, see `nco_bench.reports.frame.best_known`.

    Parameters
    ----------
    results
        Folders that hold the runs' folders.
    instances
        Folder that holds the reference ledger, or None to do with what the records know.
    given
        References that are known beside these, by the hash of the instance; None for those of the sets that runs were
        given and found solved as copies without references.

    Raises
    ------
    ResultsError
        When the folders are empty or absent, a run is of another schema version, or a line is damaged.
    """
    folders = [results] if isinstance(results, Path) else list(results)
    runs = _runs(folders)
    cells = [run.cells() for run in runs]
    known = wholes(cell for of_run in cells for cell in of_run)
    groups: dict[tuple[Any, ...], _GroupBuilder] = {}
    codes = [_register_cells(run, of_run, known, groups) for run, of_run in zip(runs, cells, strict=True)]
    columns = read_columns([(run, of_run) for run, of_run in zip(runs, codes, strict=True)])
    if columns.records.empty:
        raise ResultsError(
            f"{', '.join(map(str, folders))}: no results yet; fill it with: nco-bench run lkh3 --data tsp100 --limit 100"
        )
    records, repeated = _latest(columns.records, len(groups))
    finished = tuple(builder.group(repeated[builder.index]) for builder in groups.values())
    sources = {
        (number, code): Source(cell.reference_solver or "unknown", "", _day(run))
        for number, (run, of_run) in enumerate(zip(runs, cells, strict=True))
        for cell in of_run
        for code in [codes[number][cell.cell]]
    }
    if given is None and instances is not None:
        bare = set(records["group"].to_numpy()[records["reference"].isna()].tolist())
        pairs = zip(cells, codes, strict=True)
        given = references_of_sets((c for of, code in pairs for c in of if code[c.cell] in bare), instances)
    references, changed = hold_against_best(records, finished, sources, instances, given)
    return ResultFrame(
        records, finished, tuple(runs), columns.names, columns.conventions, columns.messages, references, known,
        changed, tuple(sorted({cell.solver for of_run in cells for cell in of_run})),
    )  # fmt: skip


def _runs(folders: Sequence[Path]) -> list[Run]:
    """All runs in the order in which they started."""
    found = runs_of(folders)
    return [found[name] for name in sorted(found)]


def _day(run: Run) -> str:
    return str((run.info.get("environment") or {}).get("date") or "")[:10]


def _latest(records: pd.DataFrame, groups: int) -> tuple[pd.DataFrame, list[int]]:
    """Drop what a later record repeats; return how many that were of each group, too."""
    group, repeat, instance = (records[name].to_numpy() for name in ("group", "repeat", "instance"))
    if _all_differ(group, repeat, instance, groups):
        return records, [0] * groups
    repeats = int(repeat.max()) + 1
    code = (group.astype(np.int64) * repeats + repeat) << 32 | instance
    later = pd.Series(code).duplicated(keep="last").to_numpy()
    counts: list[int] = np.bincount(group[later], minlength=groups).tolist()
    return records[~later].reset_index(drop=True), counts


def _all_differ(
    group: NDArray[np.int32], repeat: NDArray[np.int32], instance: NDArray[np.int32], groups: int
) -> bool:
    """Whether no two records are of one solve; not told where there could be far more solves than there are."""
    last = np.zeros(groups, np.int32)
    np.maximum.at(last, group, instance)
    each = last.astype(np.int64) + 1
    sizes = each * (int(repeat.max()) + 1)
    if sizes.sum() > 8 * len(group) + 1024:
        return False
    place = (np.cumsum(sizes) - sizes)[group]
    place += each[group] * repeat if repeat.any() else 0
    place += instance
    seen = np.zeros(int(sizes.sum()), np.bool_)
    seen[place] = True
    return int(seen.sum()) == len(group)


def _identity(cell: Cell, whole: Whole) -> tuple[Any, ...]:
    """What makes two cells of different runs the same: all that can move a number."""
    return cell.config_sha256, whole.key, cell.problem_version, cell.seed


@dataclass
class _GroupBuilder:
    index: int
    whole: Whole
    cells: list[Cell] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def add(self, cell: Cell, run: Run) -> None:
        self.cells.append(cell)
        self.runs.append(run)

    def group(self, repeated: int) -> Group:
        def known(name: str) -> list[float]:
            return [value for c in self.cells if (value := getattr(c, name)) is not None]

        # A cell that only adds names to what was stored before says nothing of how that was solved.
        solved = [pair for pair in zip(self.cells, self.runs, strict=True) if pair[0].seconds_total != 0]
        cells, runs = zip(*(solved or zip(self.cells, self.runs, strict=True)), strict=True)
        environments: list[dict[str, Any]] = []
        for environment in (run.info.get("environment") or {} for run in runs):
            if environment not in environments:
                environments.append(environment)
        memory = [c.own_memory_mb for c in self.cells if c.own_memory_mb is not None]
        return Group(
            cell=replace(cells[-1], dataset=self.whole.name, dataset_sha256=self.whole.sha256),
            whole=self.whole,
            labels=tuple(dict.fromkeys(cell.label for cell in self.cells)),
            sources={cell.source: cell.dataset for cell in self.cells},
            runs=tuple(dict.fromkeys(run.run_id for run in runs)),
            environments=tuple(environments),
            latency_seconds=next(reversed(known("latency_seconds")), None),
            peak_memory_mb=max(memory, default=None),
            peak_device_memory_mb=max(known("peak_device_memory_mb"), default=None),
            asked=tuple({(*cell.asked, cell.repeats) for cell in self.cells if cell.asked is not None}),
            repeated=repeated,
        )


def _register_cells(
    run: Run, cells: Sequence[Cell], known: Mapping[Set, Whole], groups: dict[tuple[Any, ...], _GroupBuilder]
) -> dict[int, int]:
    """Add a run's cells to the groups; return cell index -> group index."""
    codes = {}
    for cell in cells:
        whole = known[cell.dataset, cell.dataset_sha256]
        builder = groups.setdefault(_identity(cell, whole), _GroupBuilder(len(groups), whole))
        builder.add(cell, run)
        codes[cell.cell] = builder.index
    return codes
