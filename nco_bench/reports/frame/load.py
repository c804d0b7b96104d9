"""From run folders to one frame of all records of a results folder, or of what one run asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.datasets.dataset import MIXED, Reference
from nco_bench.datasets.names import stream_of
from nco_bench.errors import NcoBenchError, ResultsError
from nco_bench.reports.frame.best_known import Source, hold_against_best
from nco_bench.reports.frame.columns import read_columns
from nco_bench.reports.frame.result_frame import Group, ResultFrame, Set, Whole, identity, wholes
from nco_bench.runs.finding import none_in, runs_of
from nco_bench.runs.folders import began
from nco_bench.runs.records import Cell
from nco_bench.runs.stored_run import Run


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
        given and found solved as copies without references, and of files that were written after a run.

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
            f"{none_in(folders, 'no results yet')}; fill it with: nco-bench run lkh3 --data tsp100 --limit 100"
        )
    records, repeated = _latest(columns.records, len(groups))
    scoring = _conventions(groups.values())
    finished = tuple(
        builder.group(repeated[builder.index], scoring[builder.whole.key]) for builder in groups.values()
    )
    sources = {
        (number, code): Source(cell.reference_solver or "unknown", "", _day(run))
        for number, (run, of_run) in enumerate(zip(runs, cells, strict=True))
        for cell in of_run
        for code in [codes[number][cell.cell]]
    }
    if given is None and instances is not None:
        bare = set(records["group"].to_numpy()[records["reference"].isna()].tolist())
        told = [
            cell
            for run, of_run, code in zip(runs, cells, codes, strict=True)
            for cell in of_run
            if (code[cell.cell] in bare and _without_records(cell)) or _changed_since(cell.source, run)
        ]
        given = _references_of_sets(told, instances)
    references, changed = hold_against_best(records, finished, sources, instances, given)
    return ResultFrame(
        records, finished, tuple(runs), columns.names, columns.conventions, columns.messages, references, known,
        changed, tuple(sorted({cell.solver for of_run in cells for cell in of_run})),
    )  # fmt: skip


def frame_of_cells(
    results: Path,
    cells: Sequence[Cell],
    repeats: int,
    instances: Path | None = None,
    given: Mapping[str, Reference] | None = None,
) -> ResultFrame:
    """Read the records of what some cells asked for, whichever runs found them.

    Parameters
    ----------
    results
        Folder of all runs.
    cells
        The cells asked for, in the order that the result shall have.
    repeats
        Repeats ``0 .. repeats - 1``.
    instances
        Folder that holds the reference ledger.
    given
        References that came with the datasets, by the hash of the instance: the records may be of copies without them.
    """
    frame = load_frame(results, instances, given)
    wanted = []
    for cell in cells:
        code = frame.code_of(cell)
        first, last = cell.asked or (0, cell.instances)
        if code is not None:
            facts = replace(
                frame.groups[code].cell,
                dataset=cell.dataset,
                dataset_sha256=cell.dataset_sha256,
                label=cell.label,
            )
            part = {code: (facts, first, last)}
            if part not in wanted:  # one set under two spellings
                wanted.append(part)
    frame = frame.parts(wanted)
    asked = [next((first, last, repeats) for _, first, last in part.values()) for part in wanted]
    groups = [replace(group, asked=(one,)) for group, one in zip(frame.groups, asked, strict=True)]
    records = frame.records
    records = records[records["repeat"] < repeats].reset_index(drop=True)
    return replace(frame, records=records, groups=tuple(groups))


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


@dataclass
class _GroupBuilder:
    index: int
    whole: Whole
    cells: list[Cell] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def add(self, cell: Cell, run: Run) -> None:
        self.cells.append(cell)
        self.runs.append(run)

    def group(self, repeated: int, convention: str) -> Group:
        def known(name: str) -> list[float]:
            return [value for c in self.cells if (value := getattr(c, name)) is not None]

        # A cell that only adds names to what was stored before says nothing of how that was solved.
        solved = [pair for pair in zip(self.cells, self.runs, strict=True) if pair[0].seconds_total != 0]
        cells, runs = zip(*(solved or zip(self.cells, self.runs, strict=True)), strict=True)
        environments: list[dict[str, Any]] = []
        for environment in (run.info.get("environment") or {} for run in runs):
            if environment not in environments:
                environments.append(environment)
        # The same instances may have been run from a file, which does not say how they were drawn.
        drawn = next(
            (c.origin for c in reversed(self.cells) if c.origin.get("distribution")), cells[-1].origin
        )
        facts = replace(
            cells[-1], dataset=self.whole.name, dataset_sha256=self.whole.sha256, origin=drawn, convention=convention
        )  # fmt: skip
        return Group(
            cell=facts,
            whole=self.whole,
            labels=tuple(dict.fromkeys(cell.label for cell in self.cells)),
            sources={cell.source: cell.dataset for cell in self.cells},
            runs=tuple(dict.fromkeys(run.run_id for run in runs)),
            environments=tuple(environments),
            latency_seconds=next(reversed(known("latency_seconds")), None),
            peak_memory_mb=own_memory(self.cells),
            peak_device_memory_mb=max(known("peak_device_memory_mb"), default=None),
            asked=tuple({(*cell.asked, cell.repeats) for cell in self.cells if cell.asked is not None}),
            repeated=repeated,
            solved=tuple((run.run_id, cell) for cell, run in zip(cells, runs, strict=True)),
        )


def _conventions(builders: Iterable[_GroupBuilder]) -> dict[str, str]:
    """Return how each whole is scored: a run of some instances knows the convention of those alone."""
    found: dict[str, set[str]] = {}
    for builder in builders:
        found.setdefault(builder.whole.key, set()).update(cell.convention for cell in builder.cells)
    return {key: names.pop() if len(names) == 1 else MIXED for key, names in found.items()}


def own_memory(cells: Sequence[Cell]) -> float | None:
    """Return the largest memory that solving took in any of some cells, MB; None where none was measured."""
    # Records of version 0.1 have the whole process, which says nothing beside those that know what was loaded before.
    told = [c for c in cells if c.memory_before_mb is not None] or cells
    return max((c.own_memory_mb for c in told if c.own_memory_mb is not None), default=None)


def _register_cells(
    run: Run, cells: Sequence[Cell], known: Mapping[Set, Whole], groups: dict[tuple[Any, ...], _GroupBuilder]
) -> dict[int, int]:
    """Add a run's cells to the groups; return cell index -> group index."""
    codes = {}
    for cell in cells:
        whole = known[cell.dataset, cell.dataset_sha256]
        builder = groups.setdefault(identity(cell, whole), _GroupBuilder(len(groups), whole))
        builder.add(cell, run)
        codes[cell.cell] = builder.index
    return codes


def _without_records(cell: Cell) -> bool:
    """Whether a cell only says that a run found its set, with references, solved under another name."""
    return cell.seconds_total == 0 and cell.reference_solver is not None


def _changed_since(source: str, run: Run) -> bool:
    """Whether a set is a file that was written after a run began: it may have better references by now."""
    try:
        return stream_of(source) is None and Path(source).stat().st_mtime > began(run.run_id).timestamp()
    except (OSError, ValueError):
        return False


def _references_of_sets(cells: Iterable[Cell], instances: Path) -> dict[str, Reference]:
    """Return the references, by the hash of the instance, of the sets of some cells.

    A set that is no longer there, or damaged, has no references here; those of generated sets are the ledger's.

    Parameters
    ----------
    cells
        Of any runs.
    instances
        Folder of datasets.
    """
    from nco_bench.datasets.load import load_dataset
    from nco_bench.datasets.places import Places

    found: dict[str, Reference] = {}
    for source in dict.fromkeys(cell.source for cell in cells):
        if source and stream_of(source) is None:
            with suppress(NcoBenchError):
                found |= load_dataset(source, Places.from_environment(instances)).costs_of_references()
    return found
