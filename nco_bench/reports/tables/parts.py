"""A table cut for readers: into parts of sets that share no method, which would fill each other's rows with dashes, and into
strips of columns that fit a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from nco_bench.reports.tables.table import DASH, Column, Row, Table

STRIP = 19
"""Columns of a strip, at most: more could not be read side by side."""


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


def strips_of(table: Table) -> list[Table]:
    """Cut a table of more columns than `STRIP` between groups of columns, each strip with the names of its rows."""
    if len(table.columns) <= STRIP:
        return [table]
    strips: list[list[int]] = [[]]
    for _, members in groups_of(table.columns[1:]):
        if strips[-1] and len(strips[-1]) + len(members) >= STRIP:
            strips.append([])
        strips[-1] += [1 + member for member in members]
    return [_strip(table, [0, *strip], first=strip is strips[0]) for strip in strips]


def _strip(table: Table, shown: list[int], *, first: bool) -> Table:
    rows = without_empty_rows(table, shown, first=first).rows
    return replace(
        table,
        columns=tuple(table.columns[i] for i in shown),
        rows=tuple(replace(row, cells=tuple(row.cells[i] for i in shown)) for row in rows),
    )


def without_empty_rows(table: Table, indices: list[int], *, first: bool) -> Table:
    """Leave out rows that hold nothing on this page; those that hold nothing on any stand on the first.

    A page that holds nothing, of sets without references, keeps all: any choice would say whose sets these are.
    """

    def empty(row: Row, shown: Sequence[int]) -> bool:
        return all(row.cells[i] == DASH for i in shown if i)

    every = range(len(table.columns))
    if all(empty(row, indices) for row in table.rows):
        return table
    rows = [row for row in table.rows if not empty(row, indices) or (first and empty(row, every))]
    return replace(table, rows=tuple(rows))


def groups_of(columns: Sequence[Column]) -> list[tuple[str, list[int]]]:
    """Upper headers with the indices of the columns below them; a column without group stands alone."""
    out: list[tuple[str, list[int]]] = []
    for (group, _), members in groupby(
        enumerate(columns), key=lambda p: (p[1].group, -1 if p[1].group else p[0])
    ):
        out.append((group, [index for index, _ in members]))
    return out
