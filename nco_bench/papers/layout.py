"""A reproduced table in the paper's own layout: its rows, its columns, ours beside the printed number; ready to paste."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nco_bench.errors import UnknownNameError
from nco_bench.papers.entries import Entry, Reproduction
from nco_bench.papers.judging import SETTING_STATUSES
from nco_bench.papers.tables import (
    SYMBOLS,
    caption,
    data_of,
    decimals_of,
    printed_number,
    reproduction_table,
    table_name,
)
from nco_bench.reports.tables.table import DASH, Column, Note, Notes, Number, Row, Table, Text, Value, ranked

LAYOUTS = ("list", "paper", "compact")
"""A line per printed number with status and reason; rows and columns as printed, ours beside; or ours below, for reading."""

STATUS_MARKS = {
    "reproduced": "=",
    "agrees": "=",
    "differs": "≠",
    "reproduced (few)": "=?",
    "differs (few)": "≠?",
    "other weights": "w",
    "not comparable": "~",
    "OOM": "m",
    "setting matches": "=",
    "setting differs": "≠",
}  # fmt: skip
"""Of what has a number of ours, in the compact layout."""

LOWER_IS_BETTER = ("gap", "gap-of-means", "seconds", "latency", "memory", "mse")
HIGHER_IS_BETTER = ("f1", "accuracy", "solved")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def laid_out(reproduction: Reproduction, layout: str, *, reasons: str = "notes") -> Table:
    """Return a reproduced table in one of `LAYOUTS`.

    Raises
    ------
    UnknownNameError
        For another layout.
    """
    if layout not in LAYOUTS:
        raise UnknownNameError("layout", layout, LAYOUTS)
    if layout == "list":
        return reproduction_table(reproduction, reasons=reasons)
    return paper_table(reproduction) if layout == "paper" else compact_table(reproduction)


def readable(reproduction: Reproduction) -> str:
    """Return the layout that a terminal shows best: compact for tables of the paper, a list for settings and claims."""
    has_rows = reproduction.table.label.startswith("Table") and not all(
        e.verdict.status in SETTING_STATUSES for e in reproduction.entries
    )
    return "compact" if has_rows else "list"


def paper_table(reproduction: Reproduction) -> Table:
    """Put ours beside the printed numbers in the paper's layout.

    Rows and columns without any number of ours are left out, and the caption says how many. A table of which nothing
    could be measured comes as the list that says why.
    """
    entries = {(e.cell.row, e.cell.column): e for e in reproduction.entries}
    shown = [e.cell for e in reproduction.entries if _has_ours(e)]
    rows = list(dict.fromkeys(cell.row for cell in shown))
    heads = [c for c in reproduction.table.columns if any(cell.column == c for cell in shown)]
    if not rows:
        return reproduction_table(reproduction)
    notes = Notes()
    columns = [Column("row", "")]
    bodies: list[list[Value]] = [[Text(_name(row))] for row in rows]
    for head in heads:
        members = [entries.get((row, head)) for row in rows]
        intervals = any(e is not None and e.low is not None for e in members)
        columns += _columns(head, [e for e in members if e is not None], intervals)
        most = max((e.measured.instances for e in members if e is not None and e.measured), default=0)
        for body, entry in zip(bodies, members, strict=True):
            body += _cells(entry, intervals, most, notes)
    table = Table(
        name=table_name(reproduction),
        caption=f"{caption(reproduction, counts=False)} {_left_out(reproduction, rows, heads)}".rstrip(),
        columns=tuple(columns),
        rows=tuple(Row(tuple(body), _section(row)) for row, body in zip(rows, bodies, strict=True)),
        notes=notes.finish(reproduction.notes),
        data=tuple(data_of(entry) for entry in reproduction.entries),
    )
    return ranked(table)


def compact_table(reproduction: Reproduction) -> Table:
    """Print the paper's rows and columns, each method's printed numbers over ours, with a mark per status.

    Rows and columns without any number of ours are summed up below the table, by status.
    """
    entries = {(e.cell.row, e.cell.column): e for e in reproduction.entries}
    shown = [e.cell for e in reproduction.entries if _has_ours(e)]
    heads = [c for c in reproduction.table.columns if any(cell.column == c for cell in shown)]
    digits = {head: _decimals([e for e in reproduction.entries if e.cell.column == head]) for head in heads}
    rows: list[Row] = []
    used: dict[str, str] = {}
    for name in dict.fromkeys(cell.row for cell in shown):
        members = [entries.get((name, head)) for head in heads]
        section, _, title = name.rpartition(" | ")
        printed = [DASH if e is None else printed_number(e.cell) for e in members]
        rows.append(Row((Text(title), *printed), section))
        rows.append(
            Row(
                (Text("  ours"), *(_ours(e, digits[h], used) for h, e in zip(heads, members, strict=True))),
                section,
            )
        )
    columns = [Column("row", ""), *(_compact_column(head) for head in heads)]
    published = reproduction.table
    legend = " ".join(f"[{mark}] {status}" for status, mark in STATUS_MARKS.items() if status in used)
    return Table(
        name=table_name(reproduction),
        caption=caption(reproduction),
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(Note("", text) for text in (legend, *_not_shown(reproduction)) if text),
        data=tuple(data_of(entry) for entry in reproduction.entries),
        brief=f"{published.paper} {published.label} ({reproduction.scale}), printed over ours: {published.title}. "
        "Reasons and intervals: --long.",
    )


def _compact_column(head: str) -> Column:
    group, _, title = head.rpartition(" | ")
    return Column(head, title, group, unit_in_cells=True)


def _decimals(entries: Sequence[Entry]) -> int | None:
    """One precision for a column: the finest that one of its numbers asks for."""
    known = [d for e in entries if e.value is not None and (d := decimals_of(e)) is not None]
    return max(known, default=None)


def _ours(entry: Entry | None, decimals: int | None, used: dict[str, str]) -> Value:
    if entry is None or not _has_ours(entry):
        return DASH
    status = entry.verdict.status
    mark = used.setdefault(status, STATUS_MARKS[status])
    if entry.value is None:
        return Text("OOM", (mark,))
    return Number(entry.value, decimals, SYMBOLS.get(entry.cell.unit, ""), compete=False, marks=(mark,))


def _not_shown(reproduction: Reproduction) -> list[str]:
    """One sentence on what has no number of ours: how many printed numbers by status, and whose rows are missing whole."""
    missing = [e for e in reproduction.entries if not _has_ours(e)]
    if not missing:
        return []
    with_ours = {e.cell.row for e in reproduction.entries if _has_ours(e)}
    counts = Counter(e.verdict.status for e in missing)
    whole = [row for row in dict.fromkeys(e.cell.row for e in missing) if row not in with_ours]
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    sentence = f"Without a number of ours: {said} of {len(reproduction.entries)} printed numbers"
    return [f"{sentence}; whole rows: {', '.join(_name(row) for row in whole)}." if whole else f"{sentence}."]


def _has_ours(entry: Entry) -> bool:
    return entry.value is not None or entry.verdict.status == "OOM"


def _name(row: str) -> str:
    return row.replace(" | ", ", ")


def _section(row: str) -> str:
    return row.rpartition(" | ")[0]


def _columns(head: str, entries: list[Entry], intervals: bool) -> list[Column]:
    """The columns below one printed column: the paper's number, ours, and its interval where one is known."""
    group = head.replace(" | ", " ")
    metrics = {e.preset.metric for e in entries if _has_ours(e)}
    better = None
    if metrics and metrics <= {*LOWER_IS_BETTER}:
        better = "min"
    elif metrics and metrics <= {*HIGHER_IS_BETTER}:
        better = "max"
    found = [
        Column(f"{head}/paper", "Paper", group, unit_in_cells=True),
        Column(f"{head}/ours", "Ours", group, better=better, unit_in_cells=True),
    ]
    return [*found, Column(f"{head}/interval", "95 % interval", group)] if intervals else found


def _competes(entry: Entry, most: int) -> bool:
    """Whether a number of ours may be bold: comparable, over more than one instance, and as many as any in its column."""
    if entry.measured is not None and entry.measured.instances == 1:
        return False
    if entry.verdict.status == "not comparable":
        return False
    return entry.measured is None or (entry.measured.instances == most and not entry.measured.failed)


def _cells(entry: Entry | None, intervals: bool, most: int, notes: Notes) -> list[Value]:
    if entry is None:
        return [DASH] * (3 if intervals else 2)
    ours: Value = DASH
    decimals, suffix = decimals_of(entry), SYMBOLS.get(entry.cell.unit, "")
    if _has_ours(entry):
        marks = (_mark(entry, notes),)
        if entry.value is None:
            ours = Text("OOM", marks)
        else:
            ours = Number(entry.value, decimals, suffix, compete=_competes(entry, most), marks=marks)
    cells: list[Value] = [printed_number(entry.cell), ours]
    if intervals:
        cells.append(DASH if entry.low is None or entry.high is None else _interval(entry, decimals))
    return cells


def _interval(entry: Entry, decimals: int | None) -> Text:
    ends = [Number(end, decimals).text for end in (entry.low, entry.high) if end is not None]
    return Text(f"[{', '.join(ends)}]")


def _mark(entry: Entry, notes: Notes) -> str:
    """A letter per status and reason, with the number of instances and the kind of test set.

    Weights that were trained equally far share a letter, whatever their names are.
    """
    reason, measured = entry.verdict.reason, entry.measured
    if measured is not None and measured.cell.weights is not None:
        name = measured.cell.weights.get("name")
        for one, many in (("has seen", "have seen"), ("was trained", "were trained")):
            reason = reason.replace(f"{name} {one}", f"the weights {many}")
    parts = [f"{entry.verdict.status}: {reason}"]
    if measured is not None and not entry.verdict.reason.startswith(f"{measured.instances} instance"):
        parts.append(f"{measured.instances} instance{'' if measured.instances == 1 else 's'}")
    if measured is not None and measured.distribution:
        parts.append(measured.distribution)
    text = "; ".join(parts)
    tens, index = divmod(len(notes.finish()), len(LETTERS))
    return notes.mark(text, (LETTERS[tens - 1] if tens else "") + LETTERS[index])


def _left_out(reproduction: Reproduction, rows: list[str], heads: list[str]) -> str:
    every_row = {e.cell.row for e in reproduction.entries}
    every_column = {e.cell.column for e in reproduction.entries}
    gone = [
        f"{count} of {total} {word}"
        for count, total, word in (
            (len(every_row) - len(rows), len(every_row), "rows"),
            (len(every_column) - len(heads), len(every_column), "columns"),
        )
        if count
    ]
    return f"Left out, since nothing was run for them: {' and '.join(gone)}." if gone else ""
