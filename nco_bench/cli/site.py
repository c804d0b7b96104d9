"""``nco-bench site``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import (
    DEFAULT_FOLDERS,
    DEFAULT_INSTANCES,
    DEFAULT_RESULTS,
    Instances,
    Json,
    ResultFolders,
    ResultsFolder,
)
from nco_bench.errors import counted

group = typer.Typer(help="Make the leaderboard, and verify what others add to it.", no_args_is_help=True)

SHOWN = 3
"""Findings of a refused run that are printed; --json has all."""


@group.command(short_help="Make the leaderboard, a static site, from records.")
def build(
    out: Annotated[Path, typer.Option("--out", help="Folder of the site.")] = Path("site"),
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Score every solution again now; else runs from 'site add' count as verified."
        ),
    ] = False,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Make the leaderboard, a static site, from records alone.

    A table and a plot of gap against time per dataset, a page per row with its commands, versions, hashes, records and
    environment, and pictures of the first instances beside the best known solution. Open OUT/index.html in a browser, from
    disk or from any web server; nothing is asked from elsewhere.
    """
    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets.load import Places
    from nco_bench.reports.site.build import build_site

    built = build_site(results, out, Places.from_environment(instances), check=verify)
    if json:
        from dataclasses import asdict

        print_json(asdict(built) | {"out": str(built.out), "remarks": list(built.remarks)})
        return
    for remark in built.remarks:
        say(remark)
    say(
        f"{built.out / 'index.html'}: {counted(built.datasets, 'dataset')}, {counted(built.rows, 'row')} "
        f"({built.verified} verified), {counted(built.records, 'record')}, {counted(built.pictures, 'instance')} drawn; "
        f"{counted(built.files, 'file')}, {built.bytes / 1e6:.2f} MB"
    )


@group.command(short_help="Verify records of others, and add those that hold.")
def add(
    sources: Annotated[list[Path], typer.Argument(help="Folders of runs, single runs, or archives.")],
    results: ResultsFolder = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Verify records of others before they count: score every solution again, check every hash.

    Runs that hold are copied to --results, with a receipt in verified.json; of a run that does not hold nothing is taken,
    and each is said in a line; then the status is 1. Datasets must go by a name, and no reference may be better than the
    best known one.
    """
    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets.load import Places
    from nco_bench.reports.site.adding import add as add_records

    done = add_records(sources, results, Places.from_environment(instances))
    if json:
        refused = {run: [f"{f.place}: {f.problem}" for f in found] for run, found in done.refused.items()}
        print_json({"added": done.added, "refused": refused})
        return 1 if done.refused else 0
    for found in done.refused.values():
        for finding in found[:SHOWN]:
            typer.echo(f"refused: {finding}")
        if len(found) > SHOWN:
            typer.echo(
                f"refused: {found[0].run}: and {len(found) - SHOWN} more like these (--json lists all)"
            )
    for run, records in done.added.items():
        say(f"added: {run}, {counted(records, 'record')}")
    say(f"{results}: {counted(len(done.added), 'run')} added, {len(done.refused)} refused")
    return 1 if done.refused else 0


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="site")
