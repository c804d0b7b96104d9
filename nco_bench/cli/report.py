"""``nco-bench report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_FOLDERS, DEFAULT_INSTANCES, Instances, Json, ResultFolders


def report(
    table: Annotated[str, typer.Option("--table", help="See 'nco-bench list tables'.")] = "main",
    latex: Annotated[bool, typer.Option("--latex", help="LaTeX with booktabs.")] = False,
    document: Annotated[
        bool, typer.Option("--document", help="LaTeX: a whole document that compiles as is.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV.")] = False,
    html: Annotated[bool, typer.Option("--html", help="One self-contained page.")] = False,
    json: Json = False,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Only these datasets, or 'tsp*'; repeatable.")
    ] = None,
    solver: Annotated[
        list[str] | None, typer.Option("--solver", help="Only these solvers, or 'pens-*'; repeatable.")
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option("--alias", help="Short name of a dataset in the table, NAME=SHORT; repeatable."),
    ] = None,
    gap: Annotated[
        str | None,
        typer.Option("--gap", help="Of main and --html: mean-of-gaps (default) or gap-of-means."),
    ] = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="In the terminal: the whole caption, as papers need it.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File; its ending chooses the format where no option does; default: standard output.",
        ),
    ] = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Make a table from stored records.

    Gaps are to the best references known now: those of the ledger in the instances folder, or what a run knew. The name of a
    generated set means its first instances, whatever was run: tsp100:count=16 also shows what was run on tsp100.

    Tables: main (cost, gap, time), gaps (both gap definitions, 95 % interval of the mean, standard deviation),
    times, instances (a row per instance), tasks. Repeats are averaged per instance first. The HTML page adds plots, the
    paired scatter of two methods, and outliers beyond three interquartile ranges; 'nco-bench compare' tests a pair
    (difference with interval, wins, ties and losses, Wilcoxon).
    """
    from nco_bench import stored
    from nco_bench.cli.options import form_of, one_of, parse_aliases
    from nco_bench.cli.output import console, say
    from nco_bench.datasets.places import Places
    from nco_bench.files import READABLE, write
    from nco_bench.reports.render.terminal import show
    from nco_bench.reports.render.writing import render
    from nco_bench.reports.tables.table import build_table
    from nco_bench.runs.finding import incomplete

    as_latex = {"document" if document and not latex else "latex": latex or document}
    chosen = one_of(**as_latex, markdown=markdown, csv=csv, html=html, json=json)
    chosen = "latex" if chosen == "document" else chosen
    if out is not None:
        chosen = form_of(out, chosen)
    _refuse_what_means_nothing(table, chosen, gap, notes)
    gap = gap or "mean-of-gaps"
    aliases = parse_aliases(alias)
    for text in (one for folder in results for one in incomplete(folder).values()):
        say(f"warning: left out {text}.")
    frame = stored.frame(
        data=data or (), solver=solver or (), results=results, instances=instances, alias=aliases
    )
    if chosen is None and out is None:
        show(build_table(table, frame, gap=gap), console(), notes=notes)
        return
    text = render(chosen, table, frame, gap=gap, document=document, places=Places.from_environment(instances))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write(out, text, sync=False, mode=READABLE)
        say(f"written to {out}")


def _refuse_what_means_nothing(table: str, form: str | None, gap: str | None, notes: bool) -> None:
    """Refuse tables and options that would be ignored, before records are read.

    Raises
    ------
    BadInputError, UnknownNameError
        With what to give instead.
    """
    from nco_bench.errors import BadInputError, UnknownNameError
    from nco_bench.papers.published import list_tables
    from nco_bench.reports.tables.table import PRESETS

    if table not in PRESETS:
        for one in list_tables():
            if f"{one.paper} {one.label}".lower() == " ".join(table.lower().split()):
                raise BadInputError(
                    f"--table {table!r}: a published table; 'nco-bench reproduce {one.paper} --table {one.number} "
                    "--stored' makes it from stored records."
                )
        raise UnknownNameError("table", table, PRESETS)
    if form == "html" and table != "main":
        raise BadInputError(f"--table {table}: a page holds every table but instances; leave --table out.")
    if gap is not None and table != "main":
        raise BadInputError(f"--gap is of the table main; {table} does not change with it: leave it out.")
    if notes and form in ("csv", "html"):
        raise BadInputError(f"--notes: {form.upper()} has no other caption; leave it out.")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)
