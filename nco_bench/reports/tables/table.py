"""A table: typed cells under grouped headers. Renderers print it and know nothing of where numbers came from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nco_bench.errors import UnknownNameError

if TYPE_CHECKING:
    from nco_bench.reports.frame.result_frame import ResultFrame


@dataclass(frozen=True)
class Preset:
    """Where a table's builder is (``module:function``), and what it shows."""

    target: str
    description: str


PRESETS: dict[str, Preset] = {
    "main": Preset(
        "nco_bench.reports.tables.presets:main_table",
        "length, gap and total time per dataset, as papers print them",
    ),
    "gaps": Preset(
        "nco_bench.reports.tables.presets:gaps_table",
        "both gap definitions, 95 % intervals, standard deviation",
    ),
    "times": Preset(
        "nco_bench.reports.tables.presets:times_table", "total, per instance, latency, peak memory"
    ),
    "instances": Preset(
        "nco_bench.reports.tables.instances:instances_table", "one row per instance, as for TSPLIB"
    ),
    "tasks": Preset(
        "nco_bench.reports.tables.tasks:tasks_table",
        "algorithmic tasks: F1, accuracy and MSE, with seeds and intervals",
    ),
}
"""A new table is one function ``(frame, *, gap) -> Table`` and one line here."""

SYMBOLS = ("†", "‡", "§", "¶", "‖", "#")


SHOWN_AS = {
    "text": "nco_bench.reports.render.terminal:render",
    "html": "nco_bench.reports.html.tables:notebook_html",
}
"""What a table looks like in a console and in a notebook; it knows renderers by name only."""


@dataclass(frozen=True)
class Number:
    """A number and how to print it.

    Attributes
    ----------
    value
        Unrounded.
    decimals
        Fixed decimals, or None for three significant digits.
    suffix
        Printed after it, such as ``%``.
    compete
        Whether it takes part in the ranking of its column.
    rank
        1 for the best of its column (bold), 2 for the second (underlined), else 0; set by `ranked`.
    marks
        Footnote marks.
    """

    value: float
    decimals: int | None = None
    suffix: str = ""
    compete: bool = True
    rank: int = 0
    marks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The rounded number without suffix and marks; never ``-0.000``."""
        decimals = significant_decimals(self.value) if self.decimals is None else self.decimals
        printed = f"{self.value:.{decimals}f}"
        return printed.removeprefix("-") if float(printed) == 0 else printed


@dataclass(frozen=True)
class Text:
    """Words: a method's name, ``OOM``, ``failed``, or a dash where there is nothing."""

    text: str
    marks: tuple[str, ...] = ()


DASH = Text("–")
Value = Number | Text


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    key
        Unique in the table; names the column in JSON.
    header, group
        What stands above it, and above that; neighbours with the same group share its header. Empty for none.
    unit
        Of its numbers.
    unit_in_cells
        Whether the cells print the unit; else the header does.
    better
        ``min`` or ``max`` where best and second are marked, else None.
    family
        Of the problem of its set; sets of two families may be read apart. Empty where it belongs to all.
    """

    key: str
    header: str
    group: str = ""
    unit: str = ""
    better: str | None = None
    unit_in_cells: bool = False
    family: str = ""

    @property
    def title(self) -> str:
        """The lower header, with the unit where the cells do not print it."""
        return f"{self.header} ({self.unit})" if self.unit and not self.unit_in_cells else self.header


@dataclass(frozen=True)
class Row:
    """Cells, and the section they belong to; a rule is drawn between sections, with their names where there are several."""

    cells: tuple[Value, ...]
    section: str = ""


@dataclass(frozen=True)
class Note:
    """A footnote, or a remark where the mark is empty."""

    mark: str
    text: str


@dataclass(frozen=True, repr=False)
class Table:
    """A finished table.

    Attributes
    ----------
    name
        Its name in file names.
    caption
        Says convention, gap definition, reference solver, hardware, seed.
    columns, rows
        Every row has one cell per column; the first column names the row.
    notes
        Footnotes.
    data
        What lies behind the cells, plain values for JSON.
    brief
        The caption in one line, for the terminal; empty where there is none.
    label
        Of LaTeX, without ``tab:``; empty for the name.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[Note, ...] = ()
    data: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    brief: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        wrong = [i for i, row in enumerate(self.rows) if len(row.cells) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.name}: row {wrong[0]} does not have {len(self.columns)} cells")

    def __repr__(self) -> str:
        """Return it as plain text."""
        text: str = _function(SHOWN_AS["text"])(self)
        return text.rstrip("\n")

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it."""
        html: str = _function(SHOWN_AS["html"])(self)
        return html


class Notes:
    """Footnotes while a table is built: the same text gets the same mark."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}
        self._symbols = 0

    def mark(self, text: str, mark: str = "") -> str:
        """Return the mark of a note: the given one, or the next symbol."""
        if text not in self._marks:
            if not mark:
                repeats, index = divmod(self._symbols, len(SYMBOLS))
                mark = SYMBOLS[index] * (repeats + 1)
                self._symbols += 1
            self._marks[text] = mark
        return self._marks[text]

    def finish(self, remarks: Sequence[str] = ()) -> tuple[Note, ...]:
        """Return all footnotes, then remarks without a mark."""
        marked = tuple(Note(mark, text) for text, mark in self._marks.items())
        return marked + tuple(Note("", text) for text in remarks)


def significant_decimals(value: float, digits: int = 3) -> int:
    """Decimals that show `digits` significant digits, between 0 and 6."""
    if value == 0 or not math.isfinite(value):
        return 0
    exponent = math.floor(math.log10(abs(value)))
    if round(abs(value), digits - 1 - exponent) >= 10 ** (exponent + 1):
        exponent += 1  # 9.996 prints as 10.0
    return min(6, max(0, digits - 1 - exponent))


def column_decimals(values: Sequence[float], most: int = 6) -> int:
    """Decimals for a whole column: a significant digit of its smallest number, and three of its largest.

    One precision per column keeps the digits of all rows below each other.
    """
    sizes = [abs(v) for v in values if v and math.isfinite(v)]
    if not sizes:
        return 0
    return min(most, max(significant_decimals(min(sizes), 1), significant_decimals(max(sizes))))


def ranked(table: Table) -> Table:
    """Mark best and second of every column that asks for it."""
    rows = [list(row.cells) for row in table.rows]
    for index, column in enumerate(table.columns):
        if column.better is not None:
            for row, cell in zip(rows, rank_values([r[index] for r in rows], column.better), strict=True):
                row[index] = cell
    done = tuple(Row(tuple(cells), row.section) for cells, row in zip(rows, table.rows, strict=True))
    return replace(table, rows=done)


def rank_values(cells: Sequence[Value], better: str) -> list[Value]:
    """Give the best and the second of some cells their rank.

    Values compare as printed, so two equal texts never carry different marks; ties share a rank, and after two firsts
    comes a third, not a second. Fewer than two competitors have no winner.
    """
    competitors = [c for c in cells if isinstance(c, Number) and c.compete]
    if len(competitors) < 2:
        return list(cells)
    order = sorted((float(c.text) for c in competitors), reverse=better == "max")
    ranks = {value: 1 + order.index(value) for value in order[:2]}
    return [
        replace(c, rank=ranks.get(float(c.text), 0)) if isinstance(c, Number) and c.compete else c
        for c in cells
    ]


def build_table(name: str, frame: ResultFrame, *, gap: str = "mean-of-gaps") -> Table:
    """Build a table from records.

    Parameters
    ----------
    name
        One of `PRESETS`.
    frame
        From `nco_bench.reports.frame.load.load_frame`.
    gap
        ``mean-of-gaps`` or ``gap-of-means``.

    Raises
    ------
    UnknownNameError
        For another name or gap definition.
    ResultsError
        When records do not fit into one column.
    """
    if name not in PRESETS:
        raise UnknownNameError("table", name, PRESETS)
    if gap not in GAP_DEFINITIONS:
        raise UnknownNameError("gap definition", gap, GAP_DEFINITIONS)
    table: Table = _function(PRESETS[name].target)(frame, gap=gap)
    return ranked(replace(table, label="-".join([name, *_subjects(table)])))


MOST_LABELLED = 3
"""Datasets that a label names; of more, it names the problems."""


def _subjects(table: Table) -> list[str]:
    """Return what a table is of, so that two tables of one paper have two labels: its datasets or, of many, the problems."""
    datasets = {str(cell["dataset"]) for cell in table.data}
    if len(datasets) > MOST_LABELLED:
        return sorted({str(cell["problem"]) for cell in table.data if "problem" in cell})
    return sorted(re.split(r"[/\\]", name)[-1] for name in datasets)


def _function(target: str) -> Callable[..., Any]:
    """Import ``module:function``."""
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


GAP_DEFINITIONS: dict[str, str] = {
    "mean-of-gaps": "mean over instances of 100 (cost − reference) / reference",
    "gap-of-means": "100 (mean cost − mean reference) / mean reference",
}
"""Where lower is better."""

GAP_DEFINITIONS_MAX: dict[str, str] = {
    "mean-of-gaps": "mean over instances of 100 (reference − score) / reference",
    "gap-of-means": "100 (mean reference − mean score) / mean reference",
}
"""Where higher is better: a positive gap is worse there too."""
