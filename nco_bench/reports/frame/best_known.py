"""Gaps to the best references known when a table is made: the ledger's, those that any run knew, those that came with a set.

No solver is run again to fill a gap. A reference that was found after a run holds for its records too, by the hash of their
instances, or where they do not know it by the place of the instance in its set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.datasets.places import has_ledger
from nco_bench.errors import ResultsError, counted

if TYPE_CHECKING:
    from nco_bench.datasets.dataset import Reference
    from nco_bench.datasets.ledger_file import Entry
    from nco_bench.reports.frame.result_frame import Group

PART = 1 << 20
"""Records that are worked on at a time."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Source:
    """Where references come from.

    Attributes
    ----------
    solver, params
        Who found them, and how where that is known.
    date
        The day they were found, or for those that only records know, the day of the run that knew them; empty where unknown.
    in_ledger
        Whether it is the day they were found.
    """

    solver: str
    params: str = ""
    date: str = ""
    in_ledger: bool = False

    @property
    def who(self) -> str:
        """The solver with its parameters."""
        return f"{self.solver} ({self.params.replace(';', ', ')})" if self.params else self.solver


@dataclass
class Places:
    """The instances of all records: every instance is one place.

    Attributes
    ----------
    of_record
        ``(M,)``, a place for every record.
    group, instance
        ``(P,)``, of one of its records.
    content
        ``(P,)``, the hash of the instance, 0 where no record knows it.
    sign
        ``(P,)``, -1 where higher is better.
    """

    of_record: Integers
    group: Integers
    instance: Integers
    content: NDArray[np.uint64]
    sign: Floats


def hold_against_best(
    records: pd.DataFrame,
    groups: Sequence[Group],
    sources: Mapping[tuple[int, int], Source],
    instances: Path | None,
    given: Mapping[str, Reference] | None = None,
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Give every record the best reference of its instance, and the gap to it, in place.

    Parameters
    ----------
    records
        As in `nco_bench.reports.frame.result_frame.ResultFrame`; gets columns ``reference_from`` and ``gap_percent``.
    groups
        What their ``group`` stands for.
    sources
        ``(run, group)`` to where the references that stand in their records come from.
    instances
        Folder that holds ``ledger/``, or None to do without.
    given
        References that come with datasets, by the hash of the instance; where records know one as good, that counts.

    Returns
    -------
    sources
        What ``reference_from`` stands for; -1 stands for no reference.
    notes
        A note per dataset whose runs knew different references.

    Raises
    ------
    ResultsError
        When records of one instance have different instances' hashes.
    """
    places = _places(records, groups)
    reference = records["reference"].to_numpy()
    lowest = np.full(len(places.group), np.nan)
    for part in _parts(len(records)):
        place = places.of_record[part]
        np.fmin.at(lowest, place, places.sign[place] * reference[part])
    best = places.sign * lowest
    known, origin = _sources(records, places, reference, best, sources)
    notes = _notes(groups, places, reference, best)
    if given:
        _lay_over(_given(places, given), places, best, origin, known)
    if instances is not None and has_ledger(instances):
        _lay_over(_in_ledger(places, groups, instances), places, best, origin, known)
    cost, gaps = records["cost"].to_numpy(), np.empty(len(records))
    for part in _parts(len(records)):
        place = places.of_record[part]
        gaps[part] = gap_percents(cost[part], best[place], places.sign[place])
    records["reference"] = best[places.of_record]
    records["reference_from"] = origin[places.of_record]
    records["gap_percent"] = gaps
    return tuple(known), notes


def _parts(count: int) -> list[slice]:
    """Cut records into parts, so that what is computed on the way is never as long as a column."""
    return [slice(start, min(start + PART, count)) for start in range(0, count, PART)]


def _places(records: pd.DataFrame, groups: Sequence[Group]) -> Places:
    codes = {key: code for code, key in enumerate(dict.fromkeys(group.whole.key for group in groups))}
    _, of_record, count = instance_places(records, [codes[group.whole.key] for group in groups])
    group, instance = np.zeros(count, np.int64), np.zeros(count, np.int64)
    content = np.zeros(count, np.uint64)
    group[of_record], instance[of_record] = records["group"].to_numpy(), records["instance"].to_numpy()
    hashed = records["content"].to_numpy()
    known = slice(None) if hashed.all() else hashed != 0
    content[of_record[known]] = hashed[known]
    other = np.flatnonzero((hashed != content[of_record]) & (hashed != 0))
    if len(other):
        row = records.iloc[int(other[0])]
        raise ResultsError(
            f"{groups[int(row['group'])].cell.dataset}: its instance {int(row['instance'])} has two different contents in "
            "these records; move one of the runs to another results folder."
        )
    signs = np.array([-1.0 if g.cell.objective == "max" else 1.0 for g in groups])
    return Places(of_record, group, instance, content, signs[group])


def instance_places(records: pd.DataFrame, sets: Sequence[int]) -> tuple[NDArray[np.int32], Integers, int]:
    """Number the instances of all sets consecutively.

    Parameters
    ----------
    records
        Of a frame.
    sets
        Number of every group's set, from 0.

    Returns
    -------
    set
        Of every record.
    place
        Of every record: equal for records of one instance, and rising with the set.
    count
        Places there are; not all need be taken.
    """
    one = np.asarray(sets, dtype=np.int32)[records["group"].to_numpy()]
    instance = records["instance"].to_numpy()
    last = np.full(max(sets, default=0) + 1, -1, dtype=np.int32)
    np.maximum.at(last, one, instance)  # twenty times as fast where all three are of one type
    sizes = last.astype(np.int64) + 1
    if sizes.sum() > 8 * len(records) + 1024:  # a few records of far apart instances
        taken, place = np.unique(one.astype(np.int64) << 32 | instance, return_inverse=True)
        return one, place, len(taken)
    place = (np.cumsum(sizes) - sizes)[one]
    place += instance
    return one, place, int(sizes.sum())


def _sources(
    records: pd.DataFrame,
    places: Places,
    reference: Floats,
    best: Floats,
    sources: Mapping[tuple[int, int], Source],
) -> tuple[list[Source], NDArray[np.int32]]:
    """Number the sources of what runs knew; return them, and of every place that of its best reference."""
    known = list(dict.fromkeys(sources.values()))
    codes = {source: code for code, source in enumerate(known)}
    runs, groups = (max(axis, default=0) + 1 for axis in zip(*sources, strict=True))
    lookup = np.full((runs, groups), -1, np.int32)
    for place, source in sources.items():
        lookup[place] = codes[source]
    origin = np.full(len(best), -1, np.int32)
    run, group = records["run"].to_numpy(), records["group"].to_numpy()
    for part in reversed(_parts(len(records))):  # so that the first one counts
        holds = part.start + np.flatnonzero(reference[part] == best[places.of_record[part]])[::-1]
        origin[places.of_record[holds]] = lookup[run[holds], group[holds]]
    return known, origin


def _notes(groups: Sequence[Group], places: Places, reference: Floats, best: Floats) -> tuple[str, ...]:
    """Say of which sets runs knew different references."""
    changed = np.zeros(len(best), np.bool_)
    for part in _parts(len(reference)):
        place, mine = places.of_record[part], reference[part]
        held = best[place]
        changed[place[(held != mine) & ~np.isnan(held) & ~np.isnan(mine)]] = True
    moved = np.flatnonzero(changed)
    names = [groups[code].cell.dataset for code in places.group[moved].tolist()]
    return tuple(
        f"{name}: the references of {counted(names.count(name), 'instance')} changed between runs; all gaps are to the "
        "best known."
        for name in sorted(set(names))
    )


def _lay_over(
    found: Iterable[tuple[int, float, Source]],
    places: Places,
    best: Floats,
    origin: NDArray[np.int32],
    known: list[Source],
) -> None:
    """Lay references over what the records know; of equal costs the ledger's counts, which says more."""
    from nco_bench.datasets.ledger import COST_TOLERANCE

    codes = {source: code for code, source in enumerate(known)}
    for place, cost, source in found:
        mine = best[place]
        tolerance = COST_TOLERANCE * max(1.0, abs(mine))
        if places.sign[place] * (cost - mine) > (tolerance if source.in_ledger else -tolerance):
            continue  # a cost that is not known compares as false
        if source not in codes:
            codes[source] = len(known)
            known.append(source)
        best[place], origin[place] = cost, codes[source]


def _given(places: Places, given: Mapping[str, Reference]) -> Iterator[tuple[int, float, Source]]:
    """Find the references that come with datasets."""
    for place in np.flatnonzero(places.content).tolist():
        one = given.get(f"{places.content[place]:016x}")
        if one is not None:
            yield place, one.cost, Source(one.solver, one.params)


def _in_ledger(
    places: Places, groups: Sequence[Group], instances: Path
) -> Iterator[tuple[int, float, Source]]:
    """Find the references that the ledger has."""
    for place, entry in _entries(places, groups, instances):
        yield place, entry.cost, Source(entry.solver, entry.params, entry.date, in_ledger=True)


def _entries(places: Places, groups: Sequence[Group], instances: Path) -> list[tuple[int, Entry]]:
    """What the ledger knows of the places: by hash, and where that is not known by set and index."""
    from nco_bench.datasets.ledger_file import costs, costs_at

    hashed = np.flatnonzero(places.content)
    texts = [f"{content:016x}" for content in places.content[hashed].tolist()]
    by_hash = costs(texts, instances)
    found = [(int(p), by_hash[text]) for p, text in zip(hashed, texts, strict=True) if text in by_hash]
    taken = np.zeros(len(places.group), dtype=np.bool_)
    taken[places.of_record] = True
    bare = np.flatnonzero((places.content == 0) & taken)
    wholes = {code: groups[code].whole for code in np.unique(places.group[bare]).tolist()}
    at = {
        key: costs_at(key, set(w.names.values()), instances)
        for key, w in {w.key: w for w in wholes.values()}.items()
    }
    for place in bare.tolist() if any(at.values()) else ():
        entry = at[wholes[int(places.group[place])].key].get(int(places.instance[place]))
        if entry is not None:
            found.append((place, entry))
    return found


def gap_percents(cost: Floats, reference: Floats, sign: Floats | float) -> Floats:
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
