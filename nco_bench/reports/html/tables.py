"""Tables as HTML: headers are buttons that sort, words stay apart from numbers, notes and caption below."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nco_bench.reports.tables.parts import groups_of, parts_of
from nco_bench.reports.tables.table import Number, Table, Value

SHORT = 26
"""Letters of a word, such as a date, that stands in one line."""


def table_html(table: Table) -> str:
    """Return the parts of a table, each in a region that scrolls by keyboard, with caption and notes below them."""
    notes = "".join(
        f'<p class="note">{f"<sup>{escape(n.mark)}</sup> " if n.mark else ""}{escape(n.text)}</p>'
        for n in table.notes
    )
    parts = "".join(_part(part, number) for number, part in enumerate(parts_of(table), start=1))
    return f'{parts}<p class="note" id="caption-{escape(table.name)}">{escape(table.caption)}</p>{notes}'


def _part(table: Table, number: int) -> str:
    """Return one part; of several the names have a number."""
    rows = []
    section: str | None = None
    for row in table.rows:
        starts = section is not None and row.section != section
        section = row.section
        cells = "".join(_cell(cell, first=i == 0) for i, cell in enumerate(row.cells))
        rows.append(f"<tr{' class=section' if starts else ''}>{cells}</tr>")
    name = escape(table.name if number == 1 else f"{table.name}-{number}")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Table {name}">'
        f'<table id="table-{name}" aria-describedby="caption-{escape(table.name)}">'
        f"<thead>{_head(table)}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def notebook_html(table: Table) -> str:
    """Return a table for a notebook, which brings its own style and runs no scripts: best bold, second underlined."""
    parts = "".join(map(_notebook_part, parts_of(table)))
    notes = [f"{n.mark} {n.text}".strip() for n in table.notes]
    below = "".join(f"<div>{escape(text)}</div>" for text in (table.caption, *notes))
    return f'<div>{parts}<div style="font-size:smaller;max-width:60em">{below}</div></div>'


def _notebook_part(table: Table) -> str:
    rows = []
    section: str | None = None
    for row in table.rows:
        rule = ' style="border-top:1px solid"' if section is not None and row.section != section else ""
        section = row.section
        rows.append(f"<tr{rule}>{''.join(map(_notebook_cell, row.cells))}</tr>")
    groups = groups_of(table.columns)
    upper = "".join(f'<th colspan="{len(m)}" style="text-align:center">{escape(g)}</th>' for g, m in groups)
    lower = "".join(f'<th style="padding:2px 8px">{escape(column.title)}</th>' for column in table.columns)
    head = f"<tr>{upper}</tr>" if any(g for g, _ in groups) else ""
    return (
        f'<table style="border-collapse:collapse"><thead>{head}'
        f"<tr>{lower}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _notebook_cell(cell: Value) -> str:
    text = escape(cell.text + (cell.suffix if isinstance(cell, Number) else ""))
    marks = f"<sup>{escape(','.join(cell.marks))}</sup>" if cell.marks else ""
    if not isinstance(cell, Number):
        return f'<td style="text-align:left;padding:2px 8px">{text}{marks}</td>'
    tag = ("", "b", "u")[cell.rank]
    return f'<td style="text-align:right;padding:2px 8px">{f"<{tag}>{text}</{tag}>" if tag else text}{marks}</td>'


def plain_table(
    name: str, headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()
) -> str:
    """Return a sortable table of words; columns in `numbers` are set and sorted as numbers."""
    head = "".join(
        _sort_header(header, index, ' class="number"' if index in numbers else "")
        for index, header in enumerate(headers)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(_plain_cell(cell, index in numbers) for index, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">'
        f'<table class="words"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _plain_cell(text: str, number: bool) -> str:
    if number:
        return f'<td data-value="{float(text)!r}">{escape(text)}</td>'
    narrow = " short" if len(text) <= SHORT and " " not in text else ""
    return f'<td class="text{narrow}">{escape(text)}</td>'


def _head(table: Table) -> str:
    groups = groups_of(table.columns)
    if not any(group for group, _ in groups):
        return f"<tr>{''.join(_sort_header(c.title, i, '') for i, c in enumerate(table.columns))}</tr>"
    upper, lower = [], []
    for group, members in groups:
        if group:
            upper.append(f'<th scope="colgroup" colspan="{len(members)}">{escape(group)}</th>')
            lower += [_sort_header(table.columns[i].title, i, "", group) for i in members]
        else:
            upper += [_sort_header(table.columns[i].title, i, ' rowspan="2"') for i in members]
    return f"<tr>{''.join(upper)}</tr><tr>{''.join(lower)}</tr>"


def _sort_header(title: str, column: int, attributes: str, group: str = "") -> str:
    label = f' aria-label="{escape(f"{group} {title}")}, sort"' if group else ""
    return (
        f'<th scope="col" aria-sort="none"{attributes}>'
        f'<button type="button" data-column="{column}"{label}>{escape(title)}</button></th>'
    )


def _cell(cell: Value, *, first: bool) -> str:
    marks = f"<sup>{escape(','.join(cell.marks))}</sup>" if cell.marks else ""
    if first:
        return f'<th scope="row">{escape(cell.text)}{marks}</th>'
    if isinstance(cell, Number):
        style = ("", ' class="best"', ' class="second"')[cell.rank]
        return f'<td data-value="{cell.value!r}"{style}>{escape(cell.text + cell.suffix)}{marks}</td>'
    return f'<td class="word">{escape(cell.text)}{marks}</td>'
