"""A table for the terminal: aligned columns under grouped headers, its parts below each other; too wide a part is cut
between groups.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from nco_bench.reports.tables.captions import BEST
from nco_bench.reports.tables.parts import groups_of, parts_of, without_empty_rows
from nco_bench.reports.tables.table import Number, Table, Value

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text as RichText

GAP = 2
DEFAULT_WIDTH = 120


def show(table: Table, console: Console, *, notes: bool = False) -> None:
    """Print to a console, best bold, second underlined, with the short caption or (`notes`) the whole one."""
    caption = table.caption if notes else table.brief or table.caption
    if console.color_system is None:
        caption = _without_styles(caption)
    for line in _lines(replace(table, caption=caption), console.width):
        console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def render(table: Table, width: int = DEFAULT_WIDTH) -> str:
    """Return plain text; best and second cannot be seen in it."""
    plain = replace(table, caption=_without_styles(table.caption))
    return "\n".join(line.plain.rstrip() for line in _lines(plain, width)) + "\n"


def _without_styles(caption: str) -> str:
    """Leave out what only a terminal that knows bold can show."""
    return caption.replace(f" {BEST}.", "")


def _body(cell: Value) -> str:
    return f"{cell.text}{cell.suffix}" if isinstance(cell, Number) else cell.text


def _marks(cell: Value) -> str:
    """In brackets: a letter at a unit would read as a misprint of it."""
    return f" [{','.join(cell.marks)}]" if cell.marks else ""


def _lines(table: Table, width: int) -> list[RichText]:
    from rich.text import Text as RichText

    lines: list[RichText] = []
    for part in parts_of(table):
        for indices in _pages(part, width):
            lines.extend(_page(without_empty_rows(part, indices, first=not lines), indices))
            lines.append(RichText(""))
    for note in table.notes:
        lines.extend(
            RichText(t, style="dim")
            for t in textwrap.wrap(
                f"[{note.mark}] {note.text}" if note.mark else note.text, width, subsequent_indent="  "
            )
        )
    lines.extend(RichText(t, style="italic") for t in textwrap.wrap(table.caption, width))
    return lines


def _widths(table: Table) -> list[int]:
    widths = []
    for index, column in enumerate(table.columns):
        cells = [row.cells[index] for row in table.rows]
        hanging = max((len(_marks(c)) for c in cells), default=0)
        widths.append(max([len(column.title), *(len(_body(c)) + hanging for c in cells)]))
    for group, members in groups_of(table.columns):
        missing = len(group) - sum(widths[i] for i in members) - GAP * (len(members) - 1)
        if missing > 0:
            widths[members[-1]] += missing
    return widths


def _pages(table: Table, width: int) -> list[list[int]]:
    """Cut the columns into pages that fit, between groups; the row names stand on every page."""
    widths = _widths(table)
    first, *others = [members for _, members in groups_of(table.columns)]
    pages: list[list[int]] = []
    page = list(first)
    used = sum(widths[i] + GAP for i in first)
    for members in others:
        need = sum(widths[i] + GAP for i in members)
        if len(page) > len(first) and used + need - GAP > width:
            pages.append(page)
            page, used = list(first), sum(widths[i] + GAP for i in first)
        page, used = page + members, used + need
    return [*pages, page]


def _page(table: Table, indices: list[int]) -> list[RichText]:
    from rich.text import Text as RichText

    widths = _widths(table)
    columns = [table.columns[i] for i in indices]
    total = sum(widths[i] for i in indices) + GAP * (len(indices) - 1)
    lines = []
    if any(c.group for c in columns):
        upper, under = [], []
        for group, members in groups_of(columns):
            span = sum(widths[indices[m]] for m in members) + GAP * (len(members) - 1)
            upper.append(group.center(span))
            under.append("─" * span if group else " " * span)
        lines += [RichText((" " * GAP).join(upper), style="bold"), RichText((" " * GAP).join(under))]
    lower = [table.columns[i].title for i in indices]
    lines.append(
        RichText((" " * GAP).join(_align(t, widths[i], i) for t, i in zip(lower, indices, strict=True)))
    )
    section = None
    several = len({row.section for row in table.rows}) > 1
    for row in table.rows:
        if section is None or row.section != section:
            named = several and row.section != row.cells[0].text
            lines.append(RichText(_rule(row.section if named else "", total)))
        section = row.section
        line = RichText("")
        for position, index in enumerate(indices):
            cell = row.cells[index]
            style = ("", "bold", "underline")[cell.rank] if isinstance(cell, Number) else ""
            hanging = max(len(_marks(r.cells[index])) for r in table.rows)  # so that digits stay aligned
            marks = _marks(cell).ljust(hanging)
            padding = " " * (widths[index] - len(_body(cell)) - hanging)
            line.append(" " * GAP if position else "")
            line.append("" if index == 0 else padding)
            line.append(_body(cell), style=style)
            line.append(marks)
            line.append(padding if index == 0 else "")
        lines.append(line)
    return lines


def _rule(label: str, width: int) -> str:
    return (f"── {label} " if label else "").ljust(width, "─")


def _align(text: str, width: int, index: int) -> str:
    return text.ljust(width) if index == 0 else text.rjust(width)
