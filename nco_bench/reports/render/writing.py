"""From a table's name and an output format to text."""

from __future__ import annotations

from nco_bench.datasets.places import Places
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.render import csv as render_csv
from nco_bench.reports.render import json as render_json
from nco_bench.reports.render import latex as render_latex
from nco_bench.reports.render import markdown as render_markdown
from nco_bench.reports.render import terminal as render_terminal
from nco_bench.reports.tables.table import build_table


def render(
    form: str | None,
    name: str,
    frame: ResultFrame,
    *,
    gap: str,
    document: bool = False,
    places: Places | None = None,
) -> str:
    """Return a table in a format.

    Parameters
    ----------
    form
        ``latex``, ``markdown``, ``csv``, ``json``, ``html``, or None for plain text.
    name, frame, gap
        As `nco_bench.reports.tables.table.build_table`.
    document
        LaTeX: a whole document instead of a table environment.
    places
        HTML: where the datasets of the pictures are; by default as the command line finds them.
    """
    if form == "html":
        from nco_bench.reports.html import page as render_html

        return render_html.render(frame, gap=gap, places=places)
    table = build_table(name, frame, gap=gap)
    if form == "latex":
        return render_latex.render(table, document=document)
    if form is None:
        return render_terminal.render(table)
    renderers = {"markdown": render_markdown.render, "csv": render_csv.render, "json": render_json.render}
    return renderers[form](table)
