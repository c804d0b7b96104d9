"""From records to cells: one summary per solver configuration and dataset, and what stops two from sharing a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.nn.device import on_cpu
from nco_bench.reports.frame.best_known import Source, instance_places
from nco_bench.reports.frame.columns import COUNT_PREFIX
from nco_bench.reports.frame.load import OK, Group, ResultFrame
from nco_bench.reports.frame.naming import method_name
from nco_bench.reports.frame.pooled import Pooled, pool
from nco_bench.reports.frame.statistics import bootstrap_interval
from nco_bench.reports.frame.training_set import calibrated_on_test, distribution_label, trained_on_test
from nco_bench.reports.frame.wholes import Set
from nco_bench.runs.records import STATUSES


@dataclass(frozen=True)
class CellSummary:
    """One cell of a table: a solver configuration on a dataset.

    Repeats are averaged per instance first, then instances are averaged, as PENS does with five solves per
    instance. Failed solves (infeasible, timeout, out of memory, crashed) are counted and left out of all means but
    the times.

    Attributes
    ----------
    group
        Facts, runs and environments.
    instances, instances_of_column
        Instances in this cell; instances that any solver has on this dataset.
    solves, failed_solves, failed
        Records; records that are not ok; instances with at least one such record.
    statuses
        Number of records per status.
    repeats
        Repeats found.
    mean_cost, mean_reference
        Over instances with at least one ok repeat; the reference over those that have one.
    mean_gap_percent
        Mean of per-instance gaps; None without references.
    gap_of_means_percent
        100 (mean cost - mean reference) / mean reference over the same instances.
    gap_std_percent
        Sample standard deviation of per-instance gaps (n - 1); None below two.
    gap_low, gap_high
        95 % bootstrap interval of `mean_gap_percent` over instances.
    gap_instances, undefined_gaps
        Instances with a gap; solved instances whose reference is 0, where the gap is undefined.
    seconds_total
        Time for one pass over the set: sum over instances of the mean over repeats; failed solves took time too.
    sizes
        Smallest and largest n.
    distribution_label
        ``in-distribution``, ``size-OOD``, ``distribution-OOD``, ``size-OOD, distribution-OOD``; None without
        weights or where their manifest does not say.
    trained_on_test
        Whether the weights' manifest lists this dataset among its training data.
    calibrated_on_test
        Whether the coordinate scale was calibrated on this dataset.
    pooled
        Metrics that are pooled over instances, by name; empty for problems without.
    asked
        Solves that the commands asked for; None where the records do not say it.
    references
        Where the references come from, with the number of instances; the most frequent first.
    """

    group: Group
    instances: int
    instances_of_column: int
    solves: int
    failed_solves: int
    failed: int
    statuses: dict[str, int]
    repeats: int
    mean_cost: float | None
    mean_reference: float | None
    mean_gap_percent: float | None
    gap_of_means_percent: float | None
    gap_std_percent: float | None
    gap_low: float | None
    gap_high: float | None
    gap_instances: int
    undefined_gaps: int
    seconds_total: float
    sizes: tuple[int, int]
    distribution_label: str | None
    trained_on_test: bool
    calibrated_on_test: bool
    pooled: dict[str, Pooled] = field(default_factory=dict)
    asked: int | None = None
    references: tuple[tuple[Source, int], ...] = ()

    @property
    def reference_solver(self) -> str | None:
        """Who found most of the references."""
        return self.references[0][0].solver if self.references else None

    @property
    def seconds_per_instance(self) -> float:
        """Mean time of one instance: throughput, where a batch was solved at once."""
        return self.seconds_total / self.instances

    @property
    def complete(self) -> bool:
        """Whether all instances of the column were solved, so that the means can be ranked against others."""
        return self.failed_solves == 0 and self.instances == self.instances_of_column and not self.stopped

    @property
    def stopped(self) -> bool:
        """Whether a run was stopped before it had solved what it was asked for."""
        return self.asked is not None and self.solves < self.asked

    @property
    def all_failed(self) -> bool:
        """Whether nothing was solved."""
        return self.failed_solves == self.solves

    @property
    def method(self) -> str:
        """Label, decoding and chosen settings, as a table prints them."""
        return method_name(self.group.cell)

    @property
    def hardware(self) -> str:
        """Processor or GPU that the cell ran on; several where its runs were on several machines."""
        return " / ".join(dict.fromkeys(hardware(e, self.group.cell.device) for e in self.group.environments))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``run --json`` and ``report --json``."""
        cell = self.group.cell
        weights = cell.weights or {}
        return {
            "solver": cell.solver,
            "label": cell.label,
            "decoding": cell.decoding,
            "kind": cell.kind,
            "solver_version": cell.solver_version,
            "dataset": cell.dataset,
            "dataset_sha256": cell.dataset_sha256,
            "problem": cell.problem,
            "problem_version": cell.problem_version,
            "objective": cell.objective,
            "n_min": self.sizes[0],
            "n_max": self.sizes[1],
            "instances": self.instances,
            "failed": self.failed,
            "failed_solves": self.failed_solves,
            "asked_solves": self.asked,
            "solves": self.solves,
            "statuses": self.statuses,
            "repeats": self.repeats,
            "mean_cost": self.mean_cost,
            "mean_reference": self.mean_reference,
            "mean_gap_percent": self.mean_gap_percent,
            "gap_low_percent": self.gap_low,
            "gap_high_percent": self.gap_high,
            "gap_of_means_percent": self.gap_of_means_percent,
            "gap_std_percent": self.gap_std_percent,
            "gap_instances": self.gap_instances,
            "seconds_total": self.seconds_total,
            "seconds_per_instance": self.seconds_per_instance,
            "latency_seconds": self.group.latency_seconds,
            "peak_memory_mb": self.group.peak_memory_mb,
            "peak_device_memory_mb": self.group.peak_device_memory_mb,
            "device": cell.device,
            "hardware": self.hardware,
            "batch_size": cell.batch_size,
            "convention": cell.convention,
            "reference_solver": self.reference_solver,
            "references": [{**asdict(source), "instances": count} for source, count in self.references],
            "seed": cell.seed,
            "weights": weights.get("name"),
            "weights_sha256": weights.get("sha256"),
            "config_sha256": cell.config_sha256,
            "options": cell.options,
            "distribution_label": self.distribution_label,
            "trained_on_test": self.trained_on_test,
            "calibrated_on_test": self.calibrated_on_test,
            "pooled": {name: metric.as_dict() for name, metric in self.pooled.items()},
            "notes": list(cell.notes),
            "runs": list(self.group.runs),
        }


def asked_solves(group: Group) -> int | None:
    """How many solves the commands behind a group asked for, or None where its records do not say it."""
    if not group.asked:
        return None
    first, last = min(a for a, _, _ in group.asked), max(b for _, b, _ in group.asked)
    repeats = np.zeros(last - first, dtype=np.int64)
    for start, stop, count in group.asked:
        np.maximum(repeats[start - first : stop - first], count, out=repeats[start - first : stop - first])
    return int(repeats.sum())


def hardware(environment: dict[str, Any], device: str) -> str:
    """Describe the machine in a few words: the GPU for a CUDA device, else processor and usable cores."""
    gpus = environment.get("gpu") or []
    if not on_cpu(device) and gpus:
        return str(gpus[0].get("name", "GPU"))
    cores = environment.get("cpu_affinity") or environment.get("cpu_count")
    name = str(environment.get("cpu") or "unknown processor")
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}" if cores else name


def summarise(frame: ResultFrame, *, intervals: bool = True) -> list[CellSummary]:
    """Summarise every cell that has records, in the order of their first run.

    Parameters
    ----------
    frame
        From `load_frame`, perhaps with a selection.
    intervals
        Whether to compute bootstrap intervals.

    Raises
    ------
    ResultsError
        When one dataset name stands for several conventions, problems or objectives.
    """
    records = frame.records
    order = np.argsort(records["group"].to_numpy(), kind="stable")
    codes = records["group"].to_numpy()[order]
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
    columns = {name: records[name].to_numpy()[order] for name in names}
    summaries = []
    for code, start, stop in zip(present, starts, [*starts[1:], len(codes)], strict=True):
        part = {name: values[start:stop] for name, values in columns.items()}
        group = frame.groups[code]
        size = column_sizes[group.cell.dataset, group.cell.dataset_sha256]
        summaries.append(_summary(group, part, size, frame.references, intervals))
    return summaries


def refuse_mixed_columns(groups: list[Group]) -> None:
    """Refuse a dataset name whose cells were scored by different rules; the error names runs of both."""
    seen: dict[str, Group] = {}
    for group in groups:
        cell = group.cell
        other = seen.setdefault(cell.dataset, group)
        for fact in ("problem", "objective", "convention"):
            mine, theirs = getattr(cell, fact), getattr(other.cell, fact)
            if mine != theirs:
                raise ResultsError(
                    f"{cell.dataset}: {fact} is {theirs} in run {other.runs[0]} and {mine} in run {group.runs[0]}; "
                    "one column cannot hold both. Move one of the two runs to another results folder."
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
        "one column cannot hold both. Move one of the two runs to another results folder."
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
    ids, position = np.unique(part["instance"], return_inverse=True)
    count = len(ids)
    costs = mean_by(position[ok], part["cost"][ok], count)
    references = mean_by(position[ok], part["reference"][ok], count)
    gaps = mean_by(position[ok], part["gap_percent"][ok], count)
    seconds = mean_by(position, part["seconds"], count)
    solved, with_gap = ~np.isnan(costs), ~np.isnan(gaps)
    both = solved & ~np.isnan(references)
    sign = -1.0 if group.cell.objective == "max" else 1.0
    interval = bootstrap_interval(gaps[with_gap]) if intervals else None
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
        repeats=len(np.unique(part["repeat"])),
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
        pooled=pool(_summed_counts(part, ok, position, count), intervals=intervals),
        asked=asked_solves(group),
        references=_references(part["reference_from"], position, count, known),
    )


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


def mean_by(position: NDArray[np.integer], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Mean of the values at each position 0 .. count - 1, NaN values left out; NaN where there are none."""
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
