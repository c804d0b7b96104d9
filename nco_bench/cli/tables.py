"""Terminal tables and key-value lists, by rich, on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Any

from rich.table import Table
from rich.text import Text

from nco_bench.cli.output import console

WHOLE = 20
"""Columns up to this wide are never wrapped, so that a name or a number stays in one piece."""


def print_objects(objects: Sequence[dict[str, Any]]) -> None:
    """Print a list of objects with equal keys as a table; where the terminal is too narrow, long columns wrap."""
    out = console()
    if not objects:
        out.print("nothing here yet")
        return
    keys = list(dict.fromkeys(key for o in objects for key in o))
    rows = [[_text(o.get(key)) for key in keys] for o in objects]
    widths = [
        max(len(line) for cell in column for line in cell.splitlines() or [""])
        for column in zip(*rows, strict=True)
    ]
    table = Table(box=None, header_style="bold", pad_edge=False)
    longest = max(
        len(word) for row in rows for word in row[0].split() or [""]
    )  # of names: never broken within one
    for i, (key, width) in enumerate(zip(keys, widths, strict=True)):
        whole = key == "name" or width <= WHOLE
        least = longest if i == 0 and longest <= 2 * WHOLE else None
        table.add_column(key.replace("_", " "), overflow="fold", no_wrap=whole, min_width=least)
    for row in rows:
        table.add_row(*map(Text, row))  # as text: rich would take the [extra] of a pip command for markup
    out.print(table)


def print_object(known: dict[str, Any]) -> None:
    """Print one object as key and value lines."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in known.items():
        table.add_row(key.replace("_", " "), Text(_text(value)))
    console().print(table)


def _entry(key: str, value: Any) -> str:
    text = _text(value)
    return f"{key}:\n{indent(text, '  ')}" if isinstance(value, dict) and value else f"{key}: {text}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "\n".join(_entry(k, v) for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        separator = "\n" if any(isinstance(v, dict | list) for v in value) else ", "
        return separator.join(_text(v) for v in value) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
