"""Reproduced tables as text, and as one file per table."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from nco_bench.errors import ResultsError
from nco_bench.files import READABLE, write
from nco_bench.papers.entries import Reproduction
from nco_bench.papers.layout import laid_out
from nco_bench.papers.tables import table_name
from nco_bench.reports.render import csv as render_csv
from nco_bench.reports.render import json as render_json
from nco_bench.reports.render import latex as render_latex
from nco_bench.reports.render import markdown as render_markdown

SUFFIXES = {"latex": ".tex", "markdown": ".md", "csv": ".csv", "json": ".json"}


def render(form: str, reproduction: Reproduction, layout: str = "") -> str:
    """Return a reproduced table as ``latex``, ``markdown``, ``csv`` or ``json``.

    Parameters
    ----------
    form, reproduction
        What is wanted, and of what.
    layout
        ``list`` or ``paper``; empty: as the paper for LaTeX, else a list.
    """
    layout = layout or ("paper" if form == "latex" else "list")
    table = laid_out(reproduction, layout, reasons="column" if form in ("csv", "json") else "notes")
    renderers = {
        "latex": render_latex.render,
        "markdown": render_markdown.render,
        "csv": render_csv.render,
        "json": render_json.render,
    }
    return renderers[form](table)


def prepare_folder(folder: Path) -> None:
    """Make a folder for tables, and see that files can be written there.

    Raises
    ------
    ResultsError
        When it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultsError(
            f"--out {folder}: cannot be written ({error.strerror}); choose another folder."
        ) from error


def write_tables(
    reproductions: Sequence[Reproduction], form: str, folder: Path, layout: str = ""
) -> list[Path]:
    """Write one file per table, ``PAPER-table-N-SCALE`` with the suffix of the format, and return their paths.

    Raises
    ------
    ResultsError
        When the folder cannot be written.
    """
    paths = []
    for reproduction in reproductions:
        path = folder / f"{table_name(reproduction)}{SUFFIXES[form]}"
        write(path, render(form, reproduction, layout), sync=False, mode=READABLE)
        paths.append(path)
    return paths
