"""All records of a results folder as one DataFrame, beside the facts of their cells, and parts of it by name.

A group is one solver configuration on one whole: a set and its beginnings are one, whatever they were called when they were
run. `nco_bench.reports.frame.load` makes frames.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nco_bench.datasets.names import parse_generated, stream_of
from nco_bench.errors import ResultsError
from nco_bench.reports.frame.best_known import Source
from nco_bench.runs.records import STATUSES, Cell
from nco_bench.runs.stored_run import Run

OK = STATUSES.index("ok")
MOST_NAMED = 12
"""Datasets in a message."""
Set = tuple[str, str]
"""Name and content hash."""


@dataclass(frozen=True)
class Whole:
    """Sets whose records stand in one column.

    Attributes
    ----------
    key
        What they have in common, see `nco_bench.datasets.names`.
    name, sha256
        Of the longest of them.
    names
        Name to content hash, of all of them.
    stream
        Their name without its count; empty for sets that no generator made.
    """

    key: str
    name: str
    sha256: str
    names: Mapping[str, str] = field(default_factory=dict)
    stream: str = ""


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
    solved
        The cells of the runs, each with its run's id: batches, devices and memory may differ between them.
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
    solved: tuple[tuple[str, Cell], ...] = ()

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
        return {identity(group.cell, group.whole): code for code, group in enumerate(self.groups)}

    def code_of(self, cell: Cell) -> int | None:
        """Return the group that a run's cell is part of, or None where nothing of it is stored; of a whole frame."""
        known = self.wholes.get((cell.dataset, cell.dataset_sha256))
        for whole in (
            self.wholes.values() if known is None else (known,)
        ):  # it may have been stored under another name
            if known or whole.key == cell.whole or cell.dataset_sha256 in whole.names.values():
                return self._codes.get(identity(cell, whole))
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


def identity(cell: Cell, whole: Whole) -> tuple[Any, ...]:
    """What makes two cells of different runs the same: all that can move a number."""
    return cell.config_sha256, whole.key, cell.problem_version, cell.seed


def nearest(name: str, known: Iterable[str]) -> str:
    """List for a message the datasets that a mistaken name may mean; the first ones where it is like none."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:MOST_NAMED]
    more = len(names) - len(near)
    return ", ".join([*near, *([f"{more} more"] if more else [])])


def wholes(cells: Iterable[Cell]) -> dict[Set, Whole]:
    """Say of every set that occurs what it is part of.

    Sets of one name and different content (of another machine, whose sines differ in the last bit) are no part of each
    other, nor is anything else of their stream part of them: which one would be a guess.
    """
    keys = {(cell.dataset, cell.dataset_sha256): cell.whole for cell in cells}
    named: dict[tuple[str, str], set[str]] = {}
    for (name, sha256), key in keys.items():
        named.setdefault((key, name), set()).add(sha256)
    torn = {key for (key, _), hashes in named.items() if len(hashes) > 1}
    keys = {one: one[1] if key in torn else key for one, key in keys.items()}
    # The same content under another name, such as a file's, is the same set.
    by_content = {sha256: key for (_, sha256), key in keys.items() if key != sha256}
    keys = {one: by_content.get(one[1], key) for one, key in keys.items()}
    members: dict[str, list[Set]] = {}
    for one, key in keys.items():
        members.setdefault(key, []).append(one)
    known = {key: _whole(key, sets) for key, sets in members.items()}
    return {one: known[key] for one, key in keys.items()}


def _whole(key: str, sets: list[Set]) -> Whole:
    counts = {name: found[1] if (found := stream_of(name)) else 0 for name, _ in sets}
    name, sha256 = max(sets, key=lambda one: counts[one[0]])
    found = stream_of(name) if key != sha256 else None
    return Whole(key, name, sha256, dict(sets), "" if found is None else found[0])
