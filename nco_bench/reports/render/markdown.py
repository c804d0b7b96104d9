"""A table as GitHub Markdown: one header line, best bold, second underlined, cut for readers, notes and caption below."""

from __future__ import annotations

import re

from nco_bench.reports.tables.parts import parts_of, strips_of
from nco_bench.reports.tables.table import Number, Table, Value

SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def render(table: Table) -> str:
    """Return Markdown; every special character of names is escaped."""
    pieces = "\n".join(_lines(strip) for part in parts_of(table) for strip in strips_of(part))
    notes = [f"{escape(note.mark)} {escape(note.text)}".strip() for note in table.notes]
    return pieces + "\n" + "".join(f"{n}  \n" for n in notes) + f"\n*{escape(table.caption)}*\n"


def _lines(table: Table) -> str:
    headers = [escape(f"{column.group} {column.title}".strip()) for column in table.columns]
    lines = [_line(headers), _line(["---", *["---:"] * (len(headers) - 1)])]
    lines += [_line([_cell(cell) for cell in row.cells]) for row in table.rows]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _cell(cell: Value) -> str:
    marks = f"<sup>{escape(','.join(cell.marks))}</sup>" if cell.marks else ""
    if not isinstance(cell, Number):
        return escape(cell.text) + marks
    text = f"{cell.text}{cell.suffix}"
    text = {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(cell.rank, text)
    return text + marks


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
