"""The table of the algorithmic tasks: pooled metrics per dataset, with their spread over training seeds.

Several weights files of one network that were trained alike (same steps, samples and data) are seeds of one method: they
share a row, which shows mean and sample standard deviation of each metric over them. A row of one weights file, or of none,
has a 95 % bootstrap interval over instances instead. Many datasets stand below each other instead of beside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nco_bench.errors import ResultsError
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.pooled import MEANING, METRICS
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import DatasetColumn, MethodRow, arrange, column_identity
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.reports.tables.captions import caption, remarks
from nco_bench.reports.tables.presets import cell_marks, failure_word
from nco_bench.reports.tables.table import DASH, Column, Notes, Number, Row, Table, Text, Value, rank_values

WIDEST = 4
"""Datasets beside each other; more of them stand below each other."""

TRAINED = re.compile(r"\S+: the weights (\S+) have seen (\S+) % of the training samples of the paper\.")
TRAINED_ALIKE = ("steps", "samples", "share_of_paper", "training_size", "training_distribution")
"""Facts of two weights files that must agree for them to be seeds of one method."""


@dataclass(frozen=True)
class SeedGroup:
    """The cells of one method on one dataset, one per weights file."""

    cells: tuple[CellSummary, ...]

    @property
    def shown(self) -> CellSummary:
        """The first cell, under the name of the method without its weights."""
        first = self.cells[0]
        cell = first.group.cell
        weights = cell.weights if len(self.cells) == 1 else None
        named = replace(cell, label=method_label(cell.label), weights=weights)
        return replace(first, group=replace(first.group, cell=named))

    @property
    def complete(self) -> bool:
        """Whether every seed solved all instances of the dataset."""
        return all(cell.complete for cell in self.cells)

    def values(self, metric: str) -> list[float]:
        """Return the metric of each seed that has it."""
        return [cell.pooled[metric].value for cell in self.cells if metric in cell.pooled]

    def mean(self, metric: str) -> float | None:
        """Mean over seeds."""
        values = self.values(metric)
        return float(np.mean(values)) if values else None

    def std(self, metric: str) -> float | None:
        """Sample standard deviation over seeds (n - 1); None below two."""
        values = self.values(metric)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def bound(self, metric: str, side: str) -> float | None:
        """One end of the interval over instances; None where there are several seeds."""
        if len(self.cells) > 1 or metric not in self.cells[0].pooled:
            return None
        return getattr(self.cells[0].pooled[metric], side)

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics over seeds, beside the facts of each seed's cell."""
        shown = self.shown.group.cell
        metrics = {
            name: {
                "mean": self.mean(name), "std": self.std(name), "seeds": len(self.values(name)),
                "low": self.bound(name, "low"), "high": self.bound(name, "high"),
                "unit": METRICS[name].unit, "better": METRICS[name].better,
            }
            for name in METRICS
            if self.values(name)
        }  # fmt: skip
        return {
            "method": self.shown.method,
            "solver": shown.solver,
            "dataset": shown.dataset,
            "metrics": metrics,
            "cells": [cell.as_dict() for cell in self.cells],
        }


def tasks_table(frame: ResultFrame, *, gap: str) -> Table:
    """Build the table.

    Raises
    ------
    ResultsError
        When no record has the counts that the metrics are pooled from.
    """
    summaries = [s for s in summarise(frame) if s.pooled or s.group.cell.problem.startswith("algorithmic")]
    if not summaries:
        raise ResultsError(
            "No results of algorithmic tasks here; make some with: nco-bench run all-positive majority --data quickselect"
        )
    groups = seed_groups(summaries)
    rows, datasets = arrange([g.shown for g in groups])
    by_cell = {_identity(g.shown): g for g in groups}
    notes = Notes()
    if len(datasets) <= WIDEST:
        columns, table_rows = _beside(by_cell, rows, datasets, notes)
    else:
        columns, table_rows = _below(by_cell, rows, datasets, notes)
    found = {name for g in groups for name in METRICS if g.values(name)}
    text = caption("Algorithmic tasks, metrics pooled over all answers of a set", summaries, "", timed=False)
    # Nothing here is held against a reference.
    kept = [part for part in text.split(". ") if part != "Reference: none"]
    meanings = [MEANING[name] for name in METRICS if name in found]
    if any(len(g.cells) > 1 for g in groups):
        seeds = sorted({len(g.cells) for g in groups if len(g.cells) > 1})
        meanings.append(
            f"std: sample standard deviation over {' or '.join(map(str, seeds))} training seeds, beside their mean"
        )
    meanings.append(
        "low, high: 95 % bootstrap interval over instances, for methods with one weights file or none"
    )
    return Table(
        name="tasks",
        caption=f"{'. '.join(kept)} {'. '.join(meanings)}.",
        columns=tuple(columns),
        rows=tuple(table_rows),
        notes=notes.finish(_condensed(remarks(summaries, frame.notes))),
        data=tuple(g.as_dict() for g in groups),
    )


Groups = Mapping[tuple[Any, ...], SeedGroup]


def _column_of(dataset: DatasetColumn, rows: Sequence[MethodRow], by_cell: Groups) -> dict[str, SeedGroup]:
    """Return the groups of a dataset by the key of their row."""
    cells = {row.key: dataset.cells.get(row.key) for row in rows}
    return {key: by_cell[_identity(cell)] for key, cell in cells.items() if cell is not None}


def _beside(
    by_cell: Groups, rows: Sequence[MethodRow], datasets: Sequence[DatasetColumn], notes: Notes
) -> tuple[list[Column], list[Row]]:
    """Lay out a row per method, datasets beside each other."""
    columns, bodies = [Column("method", "Method")], [list[Value]([Text(row.name)]) for row in rows]
    for dataset in datasets:
        column = _column_of(dataset, rows, by_cell)
        for key, header, unit, better, value in _quantities(list(column.values())):
            columns.append(Column(f"{dataset.key}/{key}", header, dataset.title, unit, better))
            for row, body in zip(rows, bodies, strict=True):
                body.append(_cell(column.get(row.key), value, unit, better, notes))
    return columns, [Row(tuple(body), row.section) for body, row in zip(bodies, rows, strict=True)]


def _below(
    by_cell: Groups, rows: Sequence[MethodRow], datasets: Sequence[DatasetColumn], notes: Notes
) -> tuple[list[Column], list[Row]]:
    """Lay out a row per dataset and method, datasets below each other; the best of each dataset is marked."""
    quantities = _quantities(list(by_cell.values()))
    columns = [Column("dataset", "Dataset"), Column("method", "Method")]
    columns += [Column(key, header, "", unit) for key, header, unit, _, _ in quantities]
    found = []
    for dataset in datasets:
        column = _column_of(dataset, rows, by_cell)
        names = [row for row in rows if row.key in column]
        body: list[list[Value]] = [[Text(dataset.title) for _ in names], [Text(row.name) for row in names]]
        for _, _, unit, better, value in quantities:
            cells = [_cell(column[row.key], value, unit, better, notes) for row in names]
            body.append(rank_values(cells, better) if better else cells)
        found += [Row(tuple(cells), dataset.key) for cells in zip(*body, strict=True)]
    return columns, found


def _condensed(lines: Sequence[str]) -> list[str]:
    """Put remarks on how far weights are trained together where there are many."""
    by_share: dict[str, list[str]] = {}
    for line in lines:
        if match := TRAINED.fullmatch(line):
            by_share.setdefault(match[2], []).append(match[1])
    if sum(map(len, by_share.values())) <= WIDEST:
        return list(lines)
    kept = [line for line in lines if not TRAINED.fullmatch(line)]
    return kept + [
        f"{len(names)} weights files have seen {share} % of the training samples of the paper, {names[0]} one of them."
        for share, names in by_share.items()
    ]


def seed_groups(summaries: Sequence[CellSummary]) -> list[SeedGroup]:
    """Put the cells together that differ in nothing but the weights file, where these were trained alike."""
    found: dict[tuple[Any, ...], list[CellSummary]] = {}
    for summary in summaries:
        cell = summary.group.cell
        weights = cell.weights or {}
        options = tuple(sorted((k, str(v)) for k, v in cell.options.items() if k != "weights"))
        trained = tuple(str(weights.get(fact)) for fact in TRAINED_ALIKE)
        key = (
            method_label(cell.label), cell.decoding, cell.solver_version, options, trained, cell.seed,
            cell.device.partition(":")[0], column_identity(summary), None if weights else cell.config_sha256,
        )  # fmt: skip
        found.setdefault(key, []).append(summary)
    return [SeedGroup(tuple(cells)) for cells in found.values()]


def method_label(label: str) -> str:
    """Return a solver's label without the weights it was given."""
    return re.sub(r":weights=[^:]*", "", label)


def _identity(summary: CellSummary) -> tuple[Any, ...]:
    cell = summary.group.cell
    return (*column_identity(summary), cell.label, cell.decoding, cell.config_sha256, cell.seed)


Value_ = Callable[[SeedGroup], float | None]


def _quantities(column: list[SeedGroup]) -> list[tuple[str, str, str, str | None, Value_]]:
    """Return (key, header, unit, better, value) of a dataset's columns."""
    found: list[tuple[str, str, str, str | None, Value_]] = []
    for name, metric in METRICS.items():
        if not any(g.values(name) for g in column):
            continue
        header, unit = metric.header, metric.unit
        found.append((name, header, unit, metric.better, lambda g, m=name: g.mean(m)))  # type: ignore[misc]
        if any(g.std(name) is not None for g in column):
            found.append((f"{name}-std", f"{header} std", unit, None, lambda g, m=name: g.std(m)))  # type: ignore[misc]
        for side in ("low", "high"):
            if any(g.bound(name, side) is not None for g in column):
                key, title = f"{name}-{side}", f"{header} {side}"
                found.append((key, title, unit, None, lambda g, m=name, s=side: g.bound(m, s)))  # type: ignore[misc]
    return found


def _cell(group: SeedGroup | None, value: Value_, unit: str, better: str | None, notes: Notes) -> Value:
    if group is None:
        return DASH
    shown = group.shown
    if shown.all_failed:
        return Text(failure_word(shown)) if better else DASH
    number = value(group)
    if number is None:
        return DASH
    marks = tuple(dict.fromkeys(m for c in group.cells for m in cell_marks(c, notes))) if better else ()
    decimals = 2 if unit == "%" or number >= 1 else None
    return Number(number, decimals, compete=group.complete, marks=marks)
