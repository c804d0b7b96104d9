"""A table cut into parts that are read by themselves: sets that share no method would fill each other's rows with dashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nco_bench.reports.tables.table import DASH, Table


def parts_of(table: Table) -> list[Table]:
    """Cut a table for readers; what machines read stays whole.

    Sets of one family (`Column.family`) stay together where methods connect them; of two families, where the same
    methods were run. Ranks are those of columns and do not change.

    Returns
    -------
    list[Table]
        Parts in the order of their first column, each with the columns without family and the rows that say something
        in it; a row or a set that says nothing anywhere (a gap without references) stands in the first. All have the
        caption, notes and data of the whole.
    """
    sets: dict[tuple[str, str], list[int]] = {}
    for index, column in enumerate(table.columns):
        if column.family:
            sets.setdefault((column.family, column.group), []).append(index)
    connected: list[tuple[str, list[int], set[int]]] = []
    silent: list[int] = []
    for (family, _), columns in sets.items():
        rows = {i for i, row in enumerate(table.rows) if any(row.cells[c] != DASH for c in columns)}
        if not rows:
            silent += columns
            continue
        for other in [one for one in connected if one[0] == family and one[2] & rows]:
            connected.remove(other)
            columns, rows = [*other[1], *columns], rows | other[2]
        connected.append((family, columns, rows))
    alike: dict[frozenset[int], list[int]] = {}
    for _, columns, rows in connected:
        alike.setdefault(frozenset(rows), []).extend(columns)
    if len(alike) < 2:
        return [table]
    nowhere = set(range(len(table.rows))).difference(*alike)
    ordered = sorted((sorted(columns), rows) for rows, columns in alike.items())
    first, *others = ordered
    return [
        _part(table, [*first[0], *silent], first[1] | nowhere),
        *(_part(table, columns, rows) for columns, rows in others),
    ]


def _part(table: Table, columns: Sequence[int], rows: frozenset[int]) -> Table:
    kept = [i for i, column in enumerate(table.columns) if not column.family or i in set(columns)]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(
            replace(row, cells=tuple(row.cells[i] for i in kept))
            for i, row in enumerate(table.rows)
            if i in rows
        ),
    )
