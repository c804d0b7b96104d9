"""From records to the number that a paper prints, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.papers.courses import shortened
from nco_bench.reports.frame.aggregate import gap_of_means, mean_by, summarise
from nco_bench.reports.frame.best_known import gap_percents
from nco_bench.reports.frame.load import own_memory
from nco_bench.reports.frame.result_frame import OK, Group, ResultFrame
from nco_bench.reports.frame.statistics import interval_of_mean
from nco_bench.reports.frame.summary import calibrated_on_test, distribution_label, hardware, trained_on_test
from nco_bench.runs.records import STATUSES, Cell

TIMES = ("seconds", "latency")
"""Metrics that a busy machine does not answer; no run is made for them alone."""
HARDWARE_METRICS = (*TIMES, "memory")
"""Metrics that say something of one machine, and of how many instances were solved at once."""
ALONE = "the median of one instance alone"

METRICS: Mapping[str, str] = {
    "gap": "mean over instances of the gap to the reference, percent",
    "gap-of-means": "gap of the mean cost to the mean reference, percent",
    "cost": "mean cost",
    "cost-std": "sample standard deviation over repeats of the mean cost",
    "seconds": "time per instance, times the number of instances where the paper prints a total",
    "latency": "median time of one instance alone",
    "memory": "peak memory that solving took, MB",
    "solved": "instances solved",
    "instances": "instances tried",
    "f1": "F1 of the positive class, pooled over all answers, percent",
    "accuracy": "right answers, pooled, percent",
    "mse": "mean squared error, pooled",
}
"""Any key of a cell of ``nco-bench report --json`` (such as a pooled score) is a metric as well."""

OTHER_GAP = {"gap": "gap-of-means", "gap-of-means": "gap"}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A measured number.

    Attributes
    ----------
    value
        In the unit of the metric.
    low, high
        95 % interval of the mean, or None where there is none.
    instances
        Instances it is a mean of.
    cell
        Facts of the records.
    oom
        Whether instances ran out of memory.
    failed
        Instances without any solution.
    hardware
        Processor or GPU that it ran on.
    distribution
        How the test set looks beside the training data of the weights, such as ``size-OOD``; empty where unknown.
    trained_on_test, calibrated_on_test
        Whether the weights saw the test set, or their coordinate scale was calibrated on it.
    busy
        What else the machine had to do, where that was more than it has cores; a time is then an upper bound.
    other_gap
        The same gap read the other way: the ratio of means beside the mean of gaps, or that beside the ratio.
    of_these
        95 % interval of a mean cost on these very instances: what varies beside their references. None where one has none.
    course
        Where it was read off the course of a longer search, which; or after how many iterations its time limit ended it.
    limited
        Whether a time limit that the paper does not have ended it.
    """

    value: float | None
    low: float | None
    high: float | None
    instances: int
    cell: Cell
    oom: int = 0
    failed: int = 0
    hardware: str = ""
    distribution: str = ""
    trained_on_test: bool = False
    calibrated_on_test: bool = False
    busy: str = ""
    other_gap: Measured | None = None
    of_these: tuple[float, float] | None = None
    course: str = ""
    limited: bool = False


@dataclass(frozen=True)
class Timing:
    """How a time or a memory must have been measured to stand for a printed one.

    Attributes
    ----------
    batch_size
        In which portions, or 0 for any.
    device
        Kind of device, or ``auto`` for any.
    """

    batch_size: int = 0
    device: str = "auto"

    def fits(self, cell: Cell, *, alone: bool = False) -> bool:
        """Whether the records of a cell were made so; what is measured `alone` has no batches."""
        portions = alone or self.batch_size in (0, cell.batch_size)
        return portions and self.device in ("auto", cell.device.partition(":")[0])


@dataclass(frozen=True)
class Columns:
    """Per-instance means of one job: ids, cost, reference, gap, seconds, all ``(n,)``; NaN where unknown."""

    ids: NDArray[np.int64]
    cost: FloatArray
    reference: FloatArray
    gap: FloatArray
    seconds: FloatArray
    sign: float


class Records:
    """The records of a results folder, looked up by cell."""

    def __init__(self, frame: ResultFrame) -> None:
        self.frame = frame
        self._by_group: dict[int, pd.DataFrame] = {
            int(str(code)): part for code, part in frame.records.groupby("group", sort=False)
        }

    def _code(self, cell: Cell) -> int:
        code = self.frame.code_of(cell)
        assert code is not None, "the cell was run into this folder"
        return code

    def _group(self, cell: Cell) -> Group:
        """Return a cell's group with the facts of the cell's own set."""
        group = self.frame.groups[self._code(cell)]
        facts = replace(group.cell, dataset=cell.dataset, dataset_sha256=cell.dataset_sha256)
        return replace(group, cell=facts)

    def part(self, cell: Cell, count: int, repeats: int, iterations: int | None = None) -> pd.DataFrame:
        """Records of a cell's first `count` instances and `repeats` repeats; of a search perhaps after fewer iterations."""
        records = self._by_group[self._code(cell)]
        first = records["instance"].to_numpy() < count
        found = records[first & (records["repeat"].to_numpy() < repeats)]
        return found if iterations is None else shortened(found, self.frame.runs, iterations)

    def measure(
        self,
        metric: str,
        cell: Cell,
        count: int,
        repeats: int,
        reference: Cell | float | None = None,
        iterations: int | None = None,
        timing: Timing | None = None,
    ) -> Measured:
        """Read one metric of a cell.

        Parameters
        ----------
        metric
            One of `METRICS`, or a key of a report's cell.
        cell, count, repeats
            Which records.
        reference
            Cell of the solver whose costs are the reference, where the dataset has none; or the mean cost that a gap of
            means is to, whatever the dataset has.
        iterations
            Of a search that the cell's is the longer one of, for metrics in `nco_bench.papers.courses.OF_COURSES`.
        timing
            For `HARDWARE_METRICS`, how they must have been measured: there is no value where none were. A time of single
            instances of one size may be the latency.
        """
        part = self.part(cell, count, repeats, iterations)
        if timing is not None and metric in HARDWARE_METRICS:
            return self._measure_timed(metric, part, cell, count, repeats, timing)
        return self._measure_part(metric, part, cell, count, repeats, reference, iterations)

    def _measure_timed(
        self, metric: str, part: pd.DataFrame, cell: Cell, count: int, repeats: int, timing: Timing
    ) -> Measured:
        solved = self._group(cell).solved
        runs = {run for run, one in solved if timing.fits(one)}
        codes = [code for code, run in enumerate(self.frame.runs) if run.run_id in runs]
        fitting = part[np.isin(part["run"].to_numpy(), codes)]
        told = [one for _, one in solved if timing.fits(one)]
        if metric == "memory" and told:
            return replace(self._measure_part(metric, part, cell, count, repeats), value=own_memory(told))
        if metric == "seconds" and len(fitting):
            return self._measure_part(metric, fitting, cell, count, repeats)
        counted = [one for one in told if one.records and one.seconds_total]
        if metric == "seconds" and counted:  # a later run has records of the same instances, in other batches
            number = sum(one.records or 0 for one in counted)
            value = sum(one.seconds_total or 0.0 for one in counted) / number
            return replace(
                self._measure_part(metric, part, cell, count, repeats), value=value, instances=number
            )
        measured = self._measure_part("latency", part, cell, count, repeats)
        known = [c.latency_seconds for _, c in solved if timing.fits(c, alone=True) and c.latency_seconds]
        alike = int(part["n"].min()) == int(part["n"].max())
        answers = metric == "latency" or (metric == "seconds" and timing.batch_size == 1 and alike)
        course = "" if metric == "latency" else ALONE
        return replace(measured, value=known[-1] if known and answers else None, course=course)

    def _measure_part(
        self, metric: str, part: pd.DataFrame, cell: Cell, count: int, repeats: int,
        reference: Cell | float | None = None, iterations: int | None = None,
    ) -> Measured:  # fmt: skip
        columns = _columns(part, cell)
        if isinstance(reference, float):
            whole = not np.isnan(columns.cost).any()  # the mean of a set says nothing of a part of it
            columns = replace(columns, reference=np.full(len(columns.ids), reference if whole else np.nan))
        elif reference is not None:
            columns = _against(columns, _columns(self.part(reference, count, 1), reference))
        statuses = part["status"].to_numpy()
        value, low, high, number = self._value(metric, columns, part, cell, count, repeats)
        group = self._group(cell)
        sizes = (int(part["n"].min()), int(part["n"].max()))
        found = Measured(
            value,
            low,
            high,
            number,
            cell=group.cell,
            oom=int((statuses == STATUSES.index("oom")).sum()),
            failed=int(np.isnan(columns.cost).sum()),
            hardware=" / ".join(dict.fromkeys(hardware(e, group.cell.device) for e in group.environments)),
            distribution=distribution_label(group, sizes) or "",
            trained_on_test=trained_on_test(group, sizes),
            calibrated_on_test=calibrated_on_test(group, sizes),
            busy=busy(group.environments),
            course=""
            if iterations is None
            else f"where {cell.decoding} stands after {iterations} iterations",
        )
        if metric == "cost":
            found = replace(found, of_these=_of_these(columns))
        other = OTHER_GAP.get(metric)
        if other is None or value is None or isinstance(reference, float):  # a mean alone has one gap to it
            return found
        value, low, high, number = self._value(other, columns, part, cell, count, repeats)
        return replace(found, other_gap=replace(found, value=value, low=low, high=high, instances=number))

    def _value(
        self, metric: str, columns: Columns, part: pd.DataFrame, cell: Cell, count: int, repeats: int
    ) -> tuple[float | None, float | None, float | None, int]:
        solved = ~np.isnan(columns.cost)
        if metric == "gap":
            return _mean(columns.gap)
        if metric == "cost":
            return _mean(columns.cost)
        if metric == "seconds":  # a batch shares its time among its instances, so they are no sample of it
            value, _, _, number = _mean(columns.seconds)
            return value, None, None, number
        if metric == "gap-of-means":
            return _ratio(columns)
        if metric == "cost-std":
            return _over_repeats(part, repeats), None, None, int(solved.sum())
        if metric == "solved":
            return float(solved.sum()), None, None, len(columns.ids)
        if metric == "instances":
            return float(len(columns.ids)), None, None, len(columns.ids)
        group = self._group(cell)
        if metric == "memory":
            return group.peak_memory_mb, None, None, len(columns.ids)
        if metric == "latency":
            return group.latency_seconds, None, None, len(columns.ids)
        return self._reported(metric, part)

    def _reported(
        self, metric: str, part: pd.DataFrame
    ) -> tuple[float | None, float | None, float | None, int]:
        """Read a key of the report's cell, for metrics that are pooled over instances there."""
        (summary,) = summarise(replace(self.frame, records=part.reset_index(drop=True)))
        pooled = summary.pooled.get(metric)
        if pooled is not None:
            return pooled.value, pooled.low, pooled.high, summary.instances
        known: dict[str, Any] = summary.as_dict()
        value = known.get(metric)
        return (None if value is None else float(value)), None, None, summary.instances


def crowding(environments: Sequence[Mapping[str, Any]]) -> float:
    """Return by how much the least busy of some runs was slowed down: load over cores where it started, 1 or more."""
    shares = [
        float(load[0]) / int(e["cpu_count"])
        for e in environments
        if (load := e.get("load_average")) and e.get("cpu_count")
    ]
    return max(1.0, min(shares, default=1.0))


UPPER = ", so an upper bound"
"""What `busy` ends with."""


def busy(environments: Sequence[Mapping[str, Any]]) -> str:
    """Say what load the busiest of some runs started under; empty where every run had a core to itself."""
    loads = [
        (float(load[0]), int(e["cpu_count"]))
        for e in environments
        if (load := e.get("load_average")) and e.get("cpu_count")
    ]
    load, cores = max(loads, default=(0.0, 1))
    return f"beside a load of {load:.0f} on {cores} cores{UPPER}" if load > cores else ""


def _columns(part: pd.DataFrame, cell: Cell) -> Columns:
    ids, position = np.unique(part["instance"].to_numpy(), return_inverse=True)
    ok, count = part["status"].to_numpy() == OK, len(ids)

    def mean(name: str, rows: NDArray[np.bool_]) -> FloatArray:
        return mean_by(position[rows], part[name].to_numpy()[rows], count)

    return Columns(
        ids.astype(np.int64), mean("cost", ok), mean("reference", ok), mean("gap_percent", ok),
        mean("seconds", np.ones(len(ok), dtype=bool)), -1.0 if cell.objective == "max" else 1.0,
    )  # fmt: skip


def _against(columns: Columns, other: Columns) -> Columns:
    """Hold the costs against those of another solver on the same instances."""
    known = dict(zip(other.ids.tolist(), other.cost.tolist(), strict=True))
    reference = np.array([known.get(i, np.nan) for i in columns.ids.tolist()])
    gap = gap_percents(columns.cost, reference, columns.sign)
    return Columns(columns.ids, columns.cost, reference, gap, columns.seconds, columns.sign)


def _mean(values: FloatArray) -> tuple[float | None, float | None, float | None, int]:
    known = values[~np.isnan(values)]
    if not len(known):
        return None, None, None, 0
    low, high = interval_of_mean(known) or (None, None)
    return float(known.mean()), low, high, len(known)


def _ratio(columns: Columns) -> tuple[float | None, float | None, float | None, int]:
    """Gap of means; its interval is that of the mean of cost - reference, over the mean reference."""
    both = ~np.isnan(columns.cost) & ~np.isnan(columns.reference)
    cost, reference = columns.cost[both], columns.reference[both]
    value = gap_of_means(cost, reference, columns.sign)
    if value is None:
        return None, None, None, 0
    # Linearised ratio: 100 (cost - ratio reference) / mean reference has the ratio's sampling error.
    ratio = cost.mean() / reference.mean()
    residual = 100.0 * columns.sign * (cost - ratio * reference) / abs(reference.mean())
    low, high = interval_of_mean(residual) or (None, None)
    shift = value - float(residual.mean())
    return value, (None if low is None else low + shift), (None if high is None else high + shift), len(cost)


def _of_these(columns: Columns) -> tuple[float, float] | None:
    """Interval of the mean cost for who runs the same instances again: how long their best tours are does not vary."""
    known = ~np.isnan(columns.cost)
    if not known.any() or np.isnan(columns.reference[known]).any():
        return None
    cost, reference = columns.cost[known], columns.reference[known]
    low, high = interval_of_mean(cost - cost.mean() / reference.mean() * reference) or (None, None)
    return None if low is None or high is None else (float(cost.mean()) + low, float(cost.mean()) + high)


def _over_repeats(part: pd.DataFrame, repeats: int) -> float | None:
    if repeats < 2:
        return None
    means = part[part["status"] == OK].groupby("repeat")["cost"].mean().to_numpy()
    return float(means.std(ddof=1)) if len(means) > 1 else None
