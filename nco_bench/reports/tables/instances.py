"""One row per instance, cost and gap per method: for TSPLIB, CVRPLIB and other sets whose instances have names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nco_bench.reports.frame.aggregate import mean_by, summarise
from nco_bench.reports.frame.result_frame import OK, ResultFrame
from nco_bench.reports.frame.rows import DatasetColumn, MethodRow, arrange
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.reports.tables.captions import caption, remarks
from nco_bench.reports.tables.presets import cost_decimals, cost_header
from nco_bench.reports.tables.table import DASH, Column, Notes, Number, Row, Table, Text, Value, rank_values
from nco_bench.runs.records import STATUSES


def instances_table(frame: ResultFrame, *, gap: str) -> Table:
    """Rows are instances, grouped columns are methods; best and second stand out per row.

    Parameters
    ----------
    frame
        From `load_frame`.
    gap
        Ignored: one instance has one gap. Every preset takes it.
    """
    summaries = summarise(frame, intervals=False)
    methods, datasets = arrange(summaries)
    notes = Notes()
    used = [m for m in methods if any(m.key in d.cells for d in datasets)]
    several = len(datasets) > 1
    rows = [row for d in datasets for row in _dataset_rows(frame, d, used, notes, several)]
    columns = [Column("dataset", "Dataset")] if several else []
    columns += [Column("instance", "Instance"), Column("n", "n"), Column("reference", "Reference")]
    headers = {cost_header(s) for s in summaries}
    header, unit = headers.pop() if len(headers) == 1 else ("Cost", "")
    if any(s.group.cell.objective == "max" for s in summaries) and header == "Cost":
        header = "Cost or score"
    header = "Cost" if header == "Length" else header
    for method in used:
        columns.append(Column(f"{method.key}/cost", header, method.name, unit))
        columns.append(Column(f"{method.key}/gap", "Gap", method.name, "%", unit_in_cells=True))
    title = "Cost and gap per instance, means over repeats; best and second per row"
    return Table(
        name="instances",
        caption=caption(title, summaries, "", timed=False),
        columns=tuple(columns),
        rows=tuple(rows),
        notes=notes.finish(remarks(summaries, frame.notes)),
        data=tuple(s.as_dict() for s in summaries),
    )


def _dataset_rows(
    frame: ResultFrame, dataset: DatasetColumn, methods: Sequence[MethodRow], notes: Notes, several: bool
) -> list[Row]:
    parts = {key: _records_of(frame, summary) for key, summary in dataset.cells.items()}
    known = pd.concat(parts.values()).sort_values("instance", kind="stable").drop_duplicates("instance")
    decimals = _decimals(known["reference"].dropna().tolist())
    cells = {key: _method_cells(parts[key], notes) for key in parts}
    objective = next(iter(dataset.cells.values())).group.cell.objective
    rows = []
    for index, name, n, reference in zip(
        known["instance"], known["name"], known["n"], known["reference"], strict=True
    ):
        found = [cells.get(m.key, {}).get(int(index), (DASH, DASH)) for m in methods]
        costs = rank_values([cost for cost, _ in found], objective)
        gaps = rank_values([gap for _, gap in found], "min")
        body: list[Value] = [Text(dataset.key)] if several else []
        body += [Text(frame.names[int(name)]), Number(float(n), 0)]
        body.append(DASH if np.isnan(reference) else Number(float(reference), decimals))
        for cost, gap in zip(costs, gaps, strict=True):
            body += [cost, gap]
        rows.append(Row(tuple(body), dataset.key if several else ""))
    return rows


def _records_of(frame: ResultFrame, summary: CellSummary) -> pd.DataFrame:
    code = next(i for i, group in enumerate(frame.groups) if group is summary.group)
    return frame.records[frame.records["group"] == code]


def _decimals(values: Sequence[float]) -> int:
    return 0 if all(v.is_integer() for v in values) else cost_decimals(values)


def _method_cells(part: pd.DataFrame, notes: Notes) -> dict[int, tuple[Value, Value]]:
    """Cost and gap of one method by instance; the status where no repeat succeeded."""
    ids, position = np.unique(part["instance"].to_numpy(), return_inverse=True)
    statuses = part["status"].to_numpy()
    ok = statuses == OK
    costs = mean_by(position[ok], part["cost"].to_numpy()[ok], len(ids)).tolist()
    gaps = mean_by(position[ok], part["gap_percent"].to_numpy()[ok], len(ids)).tolist()
    decimals = _decimals([c for c in costs if not np.isnan(c)])
    failed = {int(p): STATUSES[s] for p, s in zip(position[~ok], statuses[~ok], strict=True)}
    cells: dict[int, tuple[Value, Value]] = {}
    for place, (index, cost, gap) in enumerate(zip(ids.tolist(), costs, gaps, strict=True)):
        status = failed.get(place)
        if np.isnan(cost):
            cells[index] = (Text("OOM" if status == "oom" else status or DASH.text), DASH)
            continue
        marks = (
            (notes.mark("Some repeats failed; the mean is over the others, not ranked."),) if status else ()
        )
        shown: Value = DASH if np.isnan(gap) else Number(gap, 3, "%", compete=not status)
        cells[index] = (Number(cost, decimals, compete=not status, marks=marks), shown)
    return cells
