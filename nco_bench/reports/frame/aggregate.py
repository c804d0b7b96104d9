"""From records to cells: one summary per solver configuration and dataset, and what stops two from sharing a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.reports.frame.best_known import Source, instance_places
from nco_bench.reports.frame.blocks import COUNT_PREFIX
from nco_bench.reports.frame.result_frame import OK, Group, ResultFrame, Set
from nco_bench.reports.frame.summary import (
    CellSummary,
    calibrated_on_test,
    distribution_label,
    trained_on_test,
)
from nco_bench.runs.records import STATUSES

if TYPE_CHECKING:
    from nco_bench.reports.frame.pooled import Pooled

APART = "Name other sets with --data, or move one of the two runs to another results folder (of an archive: runs unpack)."
"""What to do about runs of one dataset that disagree."""


def asked_solves(group: Group) -> int | None:
    """How many solves the commands behind a group asked for, or None where its records do not say it."""
    if not group.asked:
        return None
    first, last = min(a for a, _, _ in group.asked), max(b for _, b, _ in group.asked)
    repeats = np.zeros(last - first, dtype=np.int64)
    for start, stop, count in group.asked:
        np.maximum(repeats[start - first : stop - first], count, out=repeats[start - first : stop - first])
    return int(repeats.sum())


def summarise(frame: ResultFrame, *, intervals: bool = True) -> list[CellSummary]:
    """Summarise every cell that has records, in the order of their first run.

    Parameters
    ----------
    frame
        From `load_frame`, perhaps with a selection.
    intervals
        Whether to compute intervals.

    Raises
    ------
    ResultsError
        When one dataset name stands for several conventions, problems or objectives.
    """
    records = frame.records
    codes = records["group"].to_numpy()
    order = None if np.all(codes[1:] >= codes[:-1]) else np.argsort(codes, kind="stable")
    codes = codes if order is None else codes[order]
    present, starts = np.unique(codes, return_index=True)
    refuse_mixed_columns([frame.groups[code] for code in present])
    refuse_mixed_instances(frame)
    column_sizes = _instances_of_columns(frame)
    names = [
        "instance",
        "repeat",
        "n",
        "status",
        "cost",
        "reference",
        "reference_from",
        "gap_percent",
        "seconds",
    ]
    names += [name for name in records.columns if name.startswith(COUNT_PREFIX)]
    columns = {name: records[name].to_numpy() for name in names}
    summaries = []
    for code, start, stop in zip(present, starts, [*starts[1:], len(codes)], strict=True):
        rows = slice(start, stop) if order is None else order[start:stop]
        part = {name: values[rows] for name, values in columns.items()}
        group = frame.groups[code]
        size = column_sizes[group.cell.dataset, group.cell.dataset_sha256]
        summaries.append(_summary(group, part, size, frame.references, intervals))
    return summaries


def refuse_mixed_columns(groups: list[Group]) -> None:
    """Refuse a dataset whose cells were scored by different rules; the error names runs of both.

    Sets of one name for two problems (``a.tsp``, ``a.vrp``) are two sets, with columns of their own.
    """
    seen: dict[tuple[str, str], Group] = {}
    for group in groups:
        cell = group.cell
        other = seen.setdefault((cell.dataset, cell.problem), group)
        for fact in ("objective", "convention"):
            mine, theirs = getattr(cell, fact), getattr(other.cell, fact)
            if mine != theirs:
                raise ResultsError(
                    f"{cell.dataset}: {fact} is {theirs} in run {other.runs[0]} and {mine} in run {group.runs[0]}; "
                    f"one column cannot hold both. {APART}"
                )


def refuse_mixed_instances(frame: ResultFrame) -> None:
    """Refuse an instance whose records were scored by different rules, which no dataset with one hash can hold."""
    if len(frame.conventions) < 2:
        return
    records = frame.records
    data = {g.whole.key: i for i, g in enumerate(frame.groups)}
    dataset = np.array([data[g.whole.key] for g in frame.groups], dtype=np.int64)
    place = dataset[records["group"].to_numpy()] << 32 | records["instance"].to_numpy().astype(np.int64)
    first = (
        pd.Series(records["convention"].to_numpy()).groupby(place, sort=False).transform("first").to_numpy()
    )
    mixed = np.flatnonzero(first != records["convention"].to_numpy())
    if not len(mixed):
        return
    row = records.iloc[int(mixed[0])]
    same = np.flatnonzero((place == place[mixed[0]]) & (first == records["convention"].to_numpy()))
    other = records.iloc[int(same[0])]
    raise ResultsError(
        f"{frame.groups[row['group']].cell.dataset}, instance {frame.names[int(row['name'])]}: scored as "
        f"{frame.conventions[int(other['convention'])]} in run {frame.runs[int(other['run'])].run_id} and as "
        f"{frame.conventions[int(row['convention'])]} in run {frame.runs[int(row['run'])].run_id}; "
        f"one column cannot hold both. {APART}"
    )


def _instances_of_columns(frame: ResultFrame) -> dict[Set, int]:
    """Count the distinct instances of each dataset over all its cells."""
    sets = [(g.cell.dataset, g.cell.dataset_sha256) for g in frame.groups]
    codes = {one: code for code, one in enumerate(dict.fromkeys(sets))}
    dataset, place, count = instance_places(frame.records, [codes[one] for one in sets])
    owner = np.full(count, -1, dtype=np.int64)
    owner[place] = dataset
    counts = np.bincount(owner + 1, minlength=len(codes) + 1)[1:]
    return {one: int(k) for one, k in zip(codes, counts, strict=True)}


def _references(
    origin: NDArray[np.int32], position: NDArray[np.integer], count: int, known: Sequence[Source]
) -> tuple[tuple[Source, int], ...]:
    """Count instances by where their reference comes from."""
    of_instance = np.full(count, -1, dtype=np.int64)
    of_instance[position] = origin
    counts = np.bincount(of_instance + 1, minlength=len(known) + 1)[1:].tolist()
    found = [(source, number) for source, number in zip(known, counts, strict=True) if number]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _summary(
    group: Group,
    part: dict[str, NDArray[Any]],
    column_instances: int,
    known: Sequence[Source],
    intervals: bool,
) -> CellSummary:
    ok = part["status"] == OK
    count, position = _positions(part["instance"])
    costs = mean_by(position[ok], part["cost"][ok], count)
    references = mean_by(position[ok], part["reference"][ok], count)
    gaps = mean_by(position[ok], part["gap_percent"][ok], count)
    seconds = mean_by(position, part["seconds"], count)
    solved, with_gap = ~np.isnan(costs), ~np.isnan(gaps)
    both = solved & ~np.isnan(references)
    sign = -1.0 if group.cell.objective == "max" else 1.0
    interval = _interval(gaps[with_gap]) if intervals else None
    statuses = np.bincount(part["status"], minlength=len(STATUSES))
    sizes = (int(part["n"].min()), int(part["n"].max()))
    return CellSummary(
        group=group,
        instances=count,
        instances_of_column=column_instances,
        solves=len(ok),
        failed_solves=int((~ok).sum()),
        failed=len(np.unique(position[~ok])),
        statuses={name: int(k) for name, k in zip(STATUSES, statuses, strict=True)},
        repeats=int(np.count_nonzero(np.bincount(part["repeat"]))),
        mean_cost=_mean(costs[solved]),
        mean_reference=_mean(references[both]),
        mean_gap_percent=_mean(gaps[with_gap]),
        gap_of_means_percent=gap_of_means(costs[both], references[both], sign),
        gap_std_percent=float(gaps[with_gap].std(ddof=1)) if with_gap.sum() > 1 else None,
        gap_low=None if interval is None else interval[0],
        gap_high=None if interval is None else interval[1],
        gap_instances=int(with_gap.sum()),
        undefined_gaps=int((both & ~with_gap).sum()),
        seconds_total=float(np.nansum(seconds)),
        sizes=sizes,
        distribution_label=distribution_label(group, sizes),
        trained_on_test=trained_on_test(group, sizes),
        calibrated_on_test=calibrated_on_test(group, sizes),
        pooled=_pooled(_summed_counts(part, ok, position, count), intervals),
        asked=asked_solves(group),
        references=_references(part["reference_from"], position, count, known),
    )


def _interval(gaps: NDArray[np.float64]) -> tuple[float, float] | None:
    from nco_bench.reports.frame.statistics import interval_of_mean

    return interval_of_mean(gaps)


def _pooled(counts: dict[str, NDArray[np.float64]], intervals: bool) -> dict[str, Pooled]:
    """Pool the counts of instances; routing and packing have none."""
    if not counts:
        return {}
    from nco_bench.reports.frame.pooled import pool

    return pool(counts, intervals=intervals)


def _summed_counts(
    part: dict[str, NDArray[Any]], ok: NDArray[np.bool_], position: NDArray[np.integer], count: int
) -> dict[str, NDArray[np.float64]]:
    """Sum the counts of an instance's repeats; instances without an answer are left out."""
    summed: dict[str, NDArray[np.float64]] = {}
    for name, values in part.items():
        known = ok & ~np.isnan(values) if name.startswith(COUNT_PREFIX) else None
        if known is not None and known.any():
            solved = np.bincount(position[known], minlength=count) > 0
            total = np.bincount(position[known], weights=values[known], minlength=count).astype(np.float64)
            summed[name.removeprefix(COUNT_PREFIX)] = total[solved]
    return summed


def _positions(instance: NDArray[np.int32]) -> tuple[int, NDArray[np.integer]]:
    """Number the distinct instances: how many there are, and which of them each record is of."""
    if np.all(instance[1:] > instance[:-1]):
        return len(instance), np.arange(len(instance))
    ids, position = np.unique(instance, return_inverse=True)
    return len(ids), position


def mean_by(position: NDArray[np.integer], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Mean of the values at each position 0 .. count - 1, NaN values left out; NaN where there are none."""
    if len(position) == count and np.array_equal(position, np.arange(count)):
        return values
    known = ~np.isnan(values)
    number = np.bincount(position[known], minlength=count)
    total = np.bincount(position[known], weights=values[known], minlength=count)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def gap_of_means(
    costs: NDArray[np.float64], references: NDArray[np.float64], sign: float = 1.0
) -> float | None:
    """Gap of the mean cost to the mean reference in percent; None without pairs or with a mean reference of 0."""
    if not len(costs) or references.mean() == 0:
        return None
    return float(100.0 * sign * (costs.mean() - references.mean()) / abs(references.mean()))


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
