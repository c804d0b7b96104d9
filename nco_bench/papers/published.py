"""The numbers that five papers print in their tables, as data: every cell with row, column, unit and conditions.

One CSV and one JSON file per table in the paper's room, ``papers/<paper>/published/``. Values are kept as printed,
misprints included; what looks wrong is said in the table's notes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nco_bench.errors import BadInputError, UnknownNameError

_FIELDS = ("row", "column", "value", "number", "unit", "seconds", "mark")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class PublishedCell:
    """One printed entry of a table.

    Attributes
    ----------
    row, column
        Names that a reader of the paper recognises; levels of a header are joined by ``" | "``.
    value
        The entry as printed: ``"0.464%"``, ``"2.75h"``, ``"OOM"``, ``"-"``.
    number
        The printed number in `unit` (``0.464`` for ``"0.464%"``); None where none is printed.
    unit
        ``"percent"``, ``"length"``, ``"minutes"``, ``"count"``, ``"text"``, ``"setting"`` (a word that
        a recipe has too), ...
    seconds
        Times converted to seconds; None for anything else.
    marks
        What the print adds to the entry: ``"bold"``, ``"underlined"``, ``"dagger"``, ``"asterisk"``, ``"upper-bound"``.
        `PublishedTable.marks` says what each means.
    """

    row: str
    column: str
    value: str
    number: float | None
    unit: str
    seconds: float | None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableEntry:
    """One line of the list of published tables."""

    paper: str
    number: int | str
    label: str
    title: str


@dataclass(frozen=True)
class PublishedTable:
    """One table of a paper: cells in printed order, conditions of the experiment, and notes on oddities."""

    paper: str
    number: int | str
    label: str
    title: str
    conditions: Mapping[str, str]
    marks: Mapping[str, str]
    notes: tuple[str, ...]
    cells: tuple[PublishedCell, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """Row names in printed order."""
        return tuple(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names in printed order."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    def cell(self, row: str, column: str) -> PublishedCell:
        """Return the entry at `row` and `column`.

        Raises
        ------
        UnknownNameError
            If the table has no such row or column.
        BadInputError
            If row and column exist but the paper prints nothing there (halves of a table with different rows).
        """
        place = f"{self.paper} {self.label}"
        if row not in self.rows:
            raise UnknownNameError(f"row of {place}", row, self.rows)
        if column not in self.columns:
            raise UnknownNameError(f"column of {place}", column, self.columns)
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        raise BadInputError(
            f"{place} prints nothing for row {row!r} in column {column!r}; choose another pair."
        )


def paper_room(paper: str) -> Path:
    """Return the folder of a paper: its presets, its published numbers, its code."""
    return HERE / paper.replace("-", "_")


def list_papers() -> Mapping[str, Mapping[str, str]]:
    """Return the papers by name (``pens``, ``eie``, ...), each with title, authors and short name."""
    return MappingProxyType(_read_json(HERE / "papers.json"))


@cache
def list_tables() -> tuple[TableEntry, ...]:
    """List every published table, paper by paper, in the order of the paper's numbering."""
    entries = []
    for paper in list_papers():
        headers = [_read_json(path) for path in (paper_room(paper) / "published").glob("*.json")]
        # Unnumbered tables ("figure-4") come after the numbered ones.
        headers.sort(key=lambda h: (isinstance(h["number"], str), h["number"]))
        entries += [TableEntry(paper, h["number"], h["label"], h["title"]) for h in headers]
    return tuple(entries)


@cache
def load_table(paper: str, number: int | str) -> PublishedTable:
    """Load one published table.

    Parameters
    ----------
    paper
        ``pens``, ``eie``, ``tropical``, ``sit`` or ``decoder-scaling``.
    number
        The table's number; also ``"2"``, ``"Table 2"`` and, for a table without a number, ``"figure-4"``.

    Raises
    ------
    UnknownNameError
        If there is no such paper; the message names those that exist.
    BadInputError
        If the paper has no such table (the message names those it has) or a data file is damaged (file and line).
    """
    papers = list_papers()
    if paper not in papers:
        raise UnknownNameError("paper", paper, papers)
    stem = _stem(number)
    known = {_stem(entry.number): entry for entry in list_tables() if entry.paper == paper}
    if stem not in known:
        labels = ", ".join(str(entry.number) for entry in known.values())
        raise BadInputError(f"{paper} has no table {number!r}; choose one of {labels}.")
    header_path = paper_room(paper) / "published" / f"{stem}.json"
    header = _read_json(header_path)
    try:
        return PublishedTable(
            paper=header["paper"],
            number=header["number"],
            label=header["label"],
            title=header["title"],
            conditions=MappingProxyType(dict(header["conditions"])),
            marks=MappingProxyType(dict(header["marks"])),
            notes=tuple(header["notes"]),
            cells=_read_cells(header_path.with_suffix(".csv")),
        )
    except KeyError as error:
        raise BadInputError(f"{header_path}: key {error} is missing; restore the file.") from error


def _stem(number: int | str) -> str:
    text = str(number).strip().lower().replace(" ", "-")
    return f"table-{text}" if text.isdigit() else text


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: not readable as JSON ({error}); restore the file.") from error
    if not isinstance(content, dict):
        raise BadInputError(f"{path}: expected a JSON object; restore the file.")
    return content


def _read_cells(path: Path) -> tuple[PublishedCell, ...]:
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.reader(handle)
            if tuple(next(reader, ())) != _FIELDS:
                raise BadInputError(f"{path}:1: expected the columns {','.join(_FIELDS)}; restore the file.")
            return tuple(_parse_cell(fields, f"{path}:{reader.line_num}") for fields in reader)
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: not readable as CSV ({error}); restore the file.") from error


def _parse_cell(fields: list[str], place: str) -> PublishedCell:
    if len(fields) != len(_FIELDS):
        raise BadInputError(
            f"{place}: {len(fields)} fields where {len(_FIELDS)} are expected; restore the file."
        )
    row, column, value, number, unit, seconds, mark = fields
    try:
        return PublishedCell(
            row=row,
            column=column,
            value=value,
            number=float(number) if number else None,
            unit=unit,
            seconds=float(seconds) if seconds else None,
            marks=tuple(mark.split("+")) if mark else (),
        )
    except ValueError as error:
        raise BadInputError(f"{place}: {error}; restore the file.") from error
