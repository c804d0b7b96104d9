"""A table as CSV (RFC 4180): one header line, unrounded numbers, the notes of a row in its last column."""

from __future__ import annotations

import csv
import io

from nco_bench.reports.tables.table import Column, Number, Row, Table


def render(table: Table) -> str:
    """Return CSV; words such as ``OOM`` stand as they are, a missing cell is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*(_header(column) for column in table.columns), "Notes"])
    texts = {note.mark: note.text for note in table.notes if note.mark}
    for row in table.rows:
        writer.writerow([*(_plain(cell) for cell in row.cells), _notes(table, row, texts)])
    return out.getvalue()


def _header(column: Column) -> str:
    name = f"{column.group} {column.header}".strip()
    return f"{name} ({column.unit})" if column.unit else name


def _plain(cell: object) -> str | float:
    if isinstance(cell, Number):
        whole = cell.decimals == 0 and float(cell.value).is_integer()
        return int(cell.value) if whole else cell.value  # the size of an instance is 20, not 20.0
    text = getattr(cell, "text", "")
    return "" if text == "–" else text


def _notes(table: Table, row: Row, texts: dict[str, str]) -> str:
    found = [
        f"{column.group} {column.header}: {texts[mark]}".strip()
        for column, cell in zip(table.columns, row.cells, strict=True)
        for mark in cell.marks
        if mark in texts
    ]
    return " ".join(found)
