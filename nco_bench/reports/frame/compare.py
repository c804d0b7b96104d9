"""Two solvers on the same instances: difference with interval, wins and losses, a paired test, outliers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.cards import cards
from nco_bench.errors import BadInputError, MissingRecordsError, ResultsError, UnknownNameError, counted
from nco_bench.reports.frame.aggregate import mean_by, summarise
from nco_bench.reports.frame.result_frame import OK, ResultFrame, nearest
from nco_bench.reports.frame.rows import arrange
from nco_bench.reports.frame.statistics import Comparison, interval_of_mean, outliers, wilcoxon_p
from nco_bench.reports.frame.summary import CellSummary

TIE = 1e-9
"""Costs closer than this, relative, are a tie."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class InstanceValues:
    """One cell per instance, means over ok repeats; only instances that were solved.

    Attributes
    ----------
    instance, name
        Index in the dataset, and code in the frame's names, ``(n,)``.
    cost, gap_percent
        ``(n,)``; the gap is NaN without reference.
    """

    instance: NDArray[np.int64]
    name: NDArray[np.int64]
    cost: FloatArray
    gap_percent: FloatArray


SHOWN_PERCENT = 0.5e-4
"""Half a unit of the last digit with which gaps are printed at most."""


@dataclass(frozen=True)
class Outlier:
    """An instance whose gap lies far from the others of its cell."""

    instance: int
    name: str
    gap_percent: float


def compare(frame: ResultFrame, solver_a: str, solver_b: str, dataset: str) -> Comparison:
    """Compare two solvers, paired by instance.

    Parameters
    ----------
    frame
        From `load_frame`.
    solver_a, solver_b
        A row of the main table (``decoder-6x128 greedy``), or a solver's name where it has one row only.
    dataset
        Name of a dataset both have records of; that of a generated set means its first instances, whatever was run.

    Raises
    ------
    MissingRecordsError, UnknownNameError
        For a dataset without records; for a name that is no solver's.
    MissingRecordsError
        For a solver without records of the dataset.
    BadInputError
        Where a name fits several rows, or a pattern several datasets.
    ResultsError
        Where there is no instance that both solved.
    """
    frame = of_dataset(frame, dataset)
    rows = dataset_rows(frame)
    dataset = next(iter(rows.values())).group.cell.dataset
    one, two = pick_row(rows, solver_a, frame.solvers), pick_row(rows, solver_b, frame.solvers)
    a, b = instance_values(frame, rows[one]), instance_values(frame, rows[two])
    _, at, bt = np.intersect1d(a.instance, b.instance, return_indices=True)
    if not len(at):
        raise ResultsError(f"{dataset}: there is no instance that both {one} and {two} solved.")
    higher = rows[one].group.cell.objective == "max"
    cost_a, cost_b = a.cost[at], b.cost[bt]
    winner = winners(cost_b, cost_a) if higher else winners(cost_a, cost_b)
    tied = winner == 0
    has_gaps = not (np.isnan(a.gap_percent[at]).any() or np.isnan(b.gap_percent[bt]).any())
    first, second = (a.gap_percent[at], b.gap_percent[bt]) if has_gaps else (cost_a, cost_b)
    differences = np.where(tied, 0.0, first - second)
    interval = interval_of_mean(differences)
    return Comparison(
        solver_a=one,
        solver_b=two,
        dataset=dataset,
        unit="gap percent" if has_gaps else "score" if higher else "cost",
        instances=len(at),
        only_a=len(a.instance) - len(at),
        only_b=len(b.instance) - len(bt),
        mean_a=float(first.mean()),
        mean_b=float(second.mean()),
        difference=float(differences.mean()),
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        wins=int(np.sum(winner == 1)),
        ties=int(tied.sum()),
        losses=int(np.sum(winner == -1)),
        p_value=wilcoxon_p(differences),
    )


def winners(cost_a: FloatArray, cost_b: FloatArray) -> NDArray[np.int64]:
    """Return per instance 1 where the first cost is lower, -1 where the second is, 0 where they tie."""
    tied = np.abs(cost_a - cost_b) <= TIE * np.maximum(np.abs(cost_a), np.abs(cost_b))
    return np.where(tied, 0, np.sign(cost_b - cost_a)).astype(np.int64)


def of_dataset(frame: ResultFrame, dataset: str) -> ResultFrame:
    """Return the records of one dataset.

    Raises
    ------
    MissingRecordsError
        When no record is of this dataset.
    BadInputError
        For a pattern that fits several.
    """
    fitting = frame.meant([dataset])
    if len(fitting) > 1:
        raise BadInputError(f"{dataset!r} fits several datasets: {', '.join(fitting)}; name one of them.")
    try:
        return frame.select(datasets=[dataset])
    except ResultsError:
        known = nearest(dataset, {g.cell.dataset for g in frame.groups})
        raise MissingRecordsError(
            f"There are no records of dataset {dataset!r}; there are of {known}."
        ) from None


def dataset_rows(frame: ResultFrame) -> dict[str, CellSummary]:
    """Return the rows of a frame of one dataset by the names that the main table prints."""
    _, columns = arrange(summarise(frame, intervals=False))
    if len(columns) > 1:
        names = " and ".join(column.key for column in columns)
        dataset = frame.groups[0].cell.dataset
        raise BadInputError(f"{dataset} stands for different data: {names}; move one of the runs away.")
    return columns[0].cells


def pick_row(rows: dict[str, CellSummary], name: str, elsewhere: Sequence[str] = ()) -> str:
    """Find the one row that a name means: the row itself, else a solver or label with a single row.

    Parameters
    ----------
    rows
        Of one dataset.
    name
        What to find.
    elsewhere
        Solvers with records of any dataset.
    """
    if name in rows:
        return name
    fitting = [row for row, s in rows.items() if name in (s.group.cell.solver, s.group.cell.label, s.method)]
    if not fitting:
        known = {*elsewhere, *cards()}
        if re.split(r"[ :]", name)[0] in known:
            raise MissingRecordsError(_missing(name, next(iter(rows.values())).group.cell.dataset))
        raise UnknownNameError("solver", name, {*rows, *known}, "See 'nco-bench list solvers'.")
    if len(fitting) > 1:
        raise BadInputError(f"{name!r} fits several rows: {', '.join(map(repr, fitting))}; name one of them.")
    return fitting[0]


def _missing(name: str, dataset: str) -> str:
    method, _, settings = name.partition(" (")
    label, _, decoding = method.partition(" ")
    how = f" --decoding {decoding}" if decoding else ""
    more = ", and the settings that the row names" if settings else ""
    return f"no records of {name} on {dataset}; make them with: nco-bench run {label}{how} --data {dataset}{more}"


def instance_values(frame: ResultFrame, summary: CellSummary) -> InstanceValues:
    """Return cost and gap per solved instance of a cell."""
    code = next(i for i, group in enumerate(frame.groups) if group is summary.group)
    records = frame.records
    part = records[(records["group"].to_numpy() == code) & (records["status"].to_numpy() == OK)]
    ids, first, position = np.unique(part["instance"].to_numpy(), return_index=True, return_inverse=True)
    return InstanceValues(
        ids.astype(np.int64),
        part["name"].to_numpy()[first].astype(np.int64),
        mean_by(position, part["cost"].to_numpy(), len(ids)),
        mean_by(position, part["gap_percent"].to_numpy(), len(ids)),
    )


def outlying_instances(frame: ResultFrame, summary: CellSummary) -> list[Outlier]:
    """List the instances whose gaps lie beyond Tukey's outer fences and print otherwise than the median, worst first."""
    values = instance_values(frame, summary)
    known = np.flatnonzero(~np.isnan(values.gap_percent))
    far = known[outliers(values.gap_percent[known], least=SHOWN_PERCENT)]
    return [
        Outlier(int(values.instance[i]), frame.names[int(values.name[i])], float(values.gap_percent[i]))
        for i in far
    ]


def outliers_of(frame: ResultFrame, comparison: Comparison) -> dict[str, list[Outlier]]:
    """List the outlying instances of both rows of a comparison."""
    frame = of_dataset(frame, comparison.dataset)
    rows = dataset_rows(frame)
    return {
        name: outlying_instances(frame, rows[name]) for name in (comparison.solver_a, comparison.solver_b)
    }


def sentence(comparison: Comparison) -> str:
    """Say the result in words, for the terminal."""
    c = comparison
    unit = {"gap percent": " percentage points of gap", "score": ", higher is better"}.get(c.unit, "")
    sign = " %" if c.unit == "gap percent" else ""
    interval = "" if c.low is None or c.high is None else f" (95 % interval {c.low:+z.4f} to {c.high:+z.4f})"
    p = "" if c.p_value is None else f", Wilcoxon p = {c.p_value:.3g}"
    numbers = ((c.wins, "win", "wins"), (c.ties, "tie", "ties"), (c.losses, "loss", "losses"))
    outcomes = ", ".join(f"{number} {one if number == 1 else more}" for number, one, more in numbers)
    left = (
        f" {c.only_a} and {c.only_b} instances were solved by one of them only."
        if c.only_a + c.only_b
        else ""
    )
    return (
        f"{c.dataset}, {counted(c.instances, 'instance')}: {c.solver_a} {c.mean_a:z.4f}{sign}, "
        f"{c.solver_b} {c.mean_b:z.4f}{sign}; "
        f"difference {c.difference:+z.4f}{unit}{interval}; "
        f"{outcomes} of {c.solver_a}{p}.{left}"
    )


def as_document(comparison: Comparison, outlier_lists: dict[str, list[Outlier]]) -> dict[str, Any]:
    """Return plain values for ``compare --json``."""
    return {
        **comparison.as_dict(),
        "outliers": {
            name: [{"instance": o.instance, "name": o.name, "gap_percent": o.gap_percent} for o in found]
            for name, found in outlier_lists.items()
        },
    }
