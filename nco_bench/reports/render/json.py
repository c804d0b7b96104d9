"""Tables as plain values for ``report --json``: unrounded numbers, every fact behind every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from nco_bench.reports.tables.table import DASH, Number, Table, Value


def document(tables: Sequence[Table]) -> dict[str, Any]:
    """Return ``{"tables": [{"name", "caption", "columns", "rows", ...}]}``.

    ``columns`` describes each column by ``key``, ``group``, ``header`` and ``unit``. Each of ``rows`` is an object with
    the columns' keys, holding a number, a word (``OOM``) or null, plus ``marks`` (column key to footnote marks) where
    there are any. ``cells`` holds the summaries that ``run --json`` prints.
    """
    return {"tables": [as_dict(table) for table in tables]}


def render(table: Table) -> str:
    """Return one table's document as indented JSON."""
    return (
        orjson.dumps(document([table]), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode()
        + "\n"
    )


def as_dict(table: Table) -> dict[str, Any]:
    """Return one table as plain values."""
    rows: list[dict[str, Any]] = []
    for row in table.rows:
        named = list(zip(table.columns, row.cells, strict=True))
        entry: dict[str, Any] = {column.key: _plain(cell) for column, cell in named}
        marks = {column.key: list(cell.marks) for column, cell in named if cell.marks}
        ranks = {column.key: cell.rank for column, cell in named if isinstance(cell, Number) and cell.rank}
        rows.append({**entry, **({"marks": marks} if marks else {}), **({"ranks": ranks} if ranks else {})})
    return {
        "name": table.name,
        "caption": table.caption,
        "columns": [
            {"key": c.key, "group": c.group, "header": c.header, "unit": c.unit, "better": c.better}
            for c in table.columns
        ],
        "rows": rows,
        "notes": [{"mark": note.mark, "text": note.text} for note in table.notes],
        "cells": list(table.data),
    }


def _plain(cell: Value) -> float | str | None:
    if isinstance(cell, Number):
        return cell.value
    return None if cell.text == DASH.text else cell.text
