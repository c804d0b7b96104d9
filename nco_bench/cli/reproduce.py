"""``nco-bench reproduce``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nco_bench.cli.options import (
    DEFAULT_INSTANCES,
    DEFAULT_RESULTS,
    Cluster,
    Detach,
    Executor,
    Instances,
    Json,
    Results,
    SlurmSettings,
    positive_seconds,
)

if TYPE_CHECKING:
    from nco_bench.papers.entries import Reproduction
    from nco_bench.papers.published import PublishedTable


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="pens, eie, tropical, sit, decoder-scaling, or all.")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table.")] = None,
    scale: Annotated[
        str,
        typer.Option(
            "--scale", help="smoke: all tables in minutes; cpu: 15 minutes of two cores a table; full."
        ),
    ] = "smoke",
    limit: Annotated[
        int | None, typer.Option("--limit", help="At most K instances of any dataset.", min=1)
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="LaTeX with booktabs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV.")] = False,
    json: Json = False,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            help="list: a line per printed number, with its reason; paper: the paper's rows and columns, ours beside; "
            "compact: ours below. Default: compact in the terminal, paper for LaTeX, else list.",
        ),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="The same as --layout list.")] = False,
    list_tables: Annotated[
        bool, typer.Option("--list", help="List the tables, with how many numbers each scale answers.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for one file per table; default: standard output.")
    ] = None,
    stored: Annotated[
        bool,
        typer.Option(
            "--stored",
            help="Make the tables of stored records alone, of all scales; runs nothing. Without --results of all folders "
            "in results.",
        ),
    ] = False,
    status: Annotated[
        bool,
        typer.Option(
            "--status",
            help="Count what stored records answer, and say what each open number would cost; runs nothing. "
            "Without --results of all folders in results.",
        ),
    ] = False,
    fill: Annotated[
        bool,
        typer.Option(
            "--fill",
            help="Answer open numbers, those first that cost least each, within --budget; resumable.",
        ),
    ] = False,
    budget: Annotated[
        str | None, typer.Option("--budget", help="For --fill: wall time such as 9m or 2h.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="For --status and --fill: numbers of this solver; * fits any; repeatable."
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", help="For --status and --fill: no numbers of this solver; repeatable."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            help="For --status and --fill: seconds an instance after which longer RRC and PRC searches end.",
            callback=positive_seconds,
        ),
    ] = None,
    least: Annotated[
        int,
        typer.Option(
            "--least",
            help="For --status and --fill: numbers of fewer than K instances are open, too; one is enough of networks "
            "above 1,000 nodes.",
            min=0,
        ),
    ] = 0,
    executor: Executor = "local",
    cluster: Cluster = None,
    slurm: SlurmSettings = None,
    detach: Detach = False,
    results: Results = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
) -> int:
    """Run what a published table needs, and print its numbers beside ours.

    With --executor slurm all that is missing is one submission; the tables are made of what its jobs stored.
    """
    from nco_bench.cli.options import key_values, one_of
    from nco_bench.cli.output import RunDisplay
    from nco_bench.datasets.places import Places
    from nco_bench.errors import BadInputError, UnknownNameError
    from nco_bench.papers.layout import LAYOUTS
    from nco_bench.papers.reproducing import reproduce as reproduce_tables
    from nco_bench.papers.reproducing import tables_of
    from nco_bench.papers.running import Runner
    from nco_bench.papers.writing import prepare_folder
    from nco_bench.runs.cluster.profile import read_profile, refuse_without_slurm
    from nco_bench.runs.environment import command_line

    if long and layout not in (None, "list"):
        raise BadInputError(f"--long is --layout list, and --layout says {layout}; give one of them.")
    layout = "list" if long else layout
    unprinted = {
        "--latex": latex,
        "--markdown": markdown,
        "--csv": csv,
        "--long or --layout": layout,
        "--out": out,
    }
    if list_tables:
        _refuse_given("--list prints", unprinted)
        _list(tables_of(paper or "all", table), json)
        return 0
    refuse_without_slurm(executor, cluster, slurm, detach)
    if executor == "slurm" and (status or fill or stored):
        raise BadInputError("--status, --fill and --stored work here; leave --executor slurm out.")
    if stored and (status or fill or scale != "smoke" or limit is not None):
        raise BadInputError(
            "--stored makes tables of all that is stored; leave --status, --fill, --scale and --limit out."
        )
    counted = {
        "--status": status, "--fill": fill, "--budget": budget, "--only": only or (), "--skip": skip or (),
        "--time-limit": time_limit, "--least": least,
    }  # fmt: skip
    _check_standing(counted, unprinted)
    if status or fill:
        from nco_bench.cli.standing import standing

        tables, chosen = tables_of(paper or "all", table), (tuple(only or ()), tuple(skip or ()))
        return standing(tables, budget, fill, json, results, instances, chosen, limit, time_limit, least)
    if paper is None:
        raise BadInputError("Name a paper, or all; 'nco-bench reproduce --list' lists their tables.")
    form = one_of(latex=latex, markdown=markdown, csv=csv, json=json)
    wanted = tables_of(paper, table)
    if out is not None:
        prepare_folder(out)  # before the work of hours, not after it
    if layout is not None and layout not in LAYOUTS:
        raise UnknownNameError("layout", layout, LAYOUTS)
    if stored:
        return _print(_from_records(wanted, results, instances), form, out, layout)
    with RunDisplay() as display:
        runner = Runner(results, Places.from_environment(instances), display, limit, command_line())
        if executor == "slurm":
            from nco_bench.papers.on_slurm import reproduce_on_slurm

            profile = read_profile(cluster, key_values("--slurm", slurm))
            found = reproduce_on_slurm(wanted, scale, runner, profile, detach=detach)
            if found is None:
                return 0
            done = found
        else:
            done = reproduce_tables(wanted, scale, runner)
    _print(done, form, out, layout)
    return 1 if runner.failed else 0


def _check_standing(given: Mapping[str, Any], unprinted: Mapping[str, object]) -> None:
    """Refuse what does not go with --status and --fill, and what goes with nothing else; raises `BadInputError`."""
    from nco_bench.errors import BadInputError

    if given["--status"] and given["--fill"]:
        raise BadInputError("--status starts nothing, and --fill runs; give one of them.")
    if given["--budget"] is not None and not given["--fill"]:
        raise BadInputError(f"--budget {given['--budget']} is what --fill may spend; add --fill.")
    if given["--status"] or given["--fill"]:
        _refuse_given("--status and --fill print", unprinted)
        return
    if given["--only"] or given["--skip"]:
        raise BadInputError("--only and --skip choose what --status counts and --fill runs; add one of them.")
    if given["--time-limit"] is not None:
        raise BadInputError("--time-limit is for the searches of --status and --fill; add one of them.")
    if given["--least"]:
        raise BadInputError("--least is what --status counts as open and --fill runs; add one of them.")


def _refuse_given(who: str, unprinted: Mapping[str, object]) -> None:
    """Refuse the options that are given of those that something leaves unread; raises `BadInputError`."""
    from nco_bench.errors import BadInputError

    for option, value in unprinted.items():
        if value:
            raise BadInputError(f"{who} text or --json; leave {option} out.")


def _from_records(tables: Sequence[PublishedTable], results: Path, instances: Path) -> list[Reproduction]:
    from nco_bench.cli.standing import folders_of
    from nco_bench.datasets.places import Places
    from nco_bench.papers.rendering import from_records
    from nco_bench.papers.stored import stored_in

    return from_records(tables, stored_in(folders_of(results), Places.from_environment(instances).instances))


def _print(done: Sequence[Reproduction], form: str | None, out: Path | None, layout: str | None) -> int:
    """Show or write tables as was asked, and count them."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.cli.tables import console
    from nco_bench.papers.entries import count_statuses
    from nco_bench.papers.layout import laid_out, readable
    from nco_bench.papers.writing import render, write_tables
    from nco_bench.reports.render.json import document
    from nco_bench.reports.render.terminal import show

    if out is not None:
        for path in write_tables(done, form or "markdown", out, layout or ""):
            say(f"written to {path}")
    elif form == "json":
        tables = [laid_out(d, layout or "list", reasons="column") for d in done]
        print_json({**document(tables), "statuses": count_statuses(done)})
    elif form is not None:
        for reproduction in done:
            typer.echo(render(form, reproduction, layout or ""))
    else:
        for reproduction in done:
            show(laid_out(reproduction, layout or readable(reproduction)), console())
            console().print()
    counts = count_statuses(done)
    listed = ", ".join(f"{number} {status}" for status, number in counts.items())
    say(f"{sum(counts.values())} printed numbers: {listed or 'none'}")
    return 0


def _list(tables: Sequence[PublishedTable], json: bool) -> None:
    from dataclasses import asdict

    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_objects
    from nco_bench.papers.listing import list_reproducible

    found = list_reproducible(tables)
    if json:
        print_json([asdict(one) for one in found])
        return
    print_objects(
        [
            {"paper": f.paper, "table": f.table, "printed": f.printed, **f.answered, "title": f.title}
            for f in found
        ]
    )


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Print a published table's numbers beside ours.")(reproduce)
