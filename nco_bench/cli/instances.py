"""``nco-bench instances pull|list|verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json

SHOWN = 5
"""Instances that could not be had are told in a line each up to so many."""

group = typer.Typer(
    help="Pull, list and verify instance libraries and stored datasets.", no_args_is_help=True
)


@group.command(short_help="Fetch a library or test sets; checksums are checked.")
def pull(
    library: Annotated[
        str,
        typer.Argument(help="tsplib, cvrplib:X, tsplib:pens-100, testsets, one test set, lra or lra-text."),
    ],
    archive: Annotated[
        Path | None,
        typer.Option("--archive", help="A .zip, a .tar.gz such as TSPLIB's, or a folder of unpacked files."),
    ] = None,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Fetch a library or test set from NCO_BENCH_MIRROR or its public address; checksums are checked, whole files are kept.

    Status 1 if some of what was named failed, 2 if all of it did.
    """
    from dataclasses import asdict

    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets.places import Places
    from nco_bench.datasets.pull import pull as pull_library

    report = pull_library(
        library, instances, mirror=Places.from_environment(instances).mirror, archive=archive
    )
    if json:
        print_json(asdict(report))
    else:
        for name, reason in report.failed[:SHOWN]:
            say(f"{name}: {reason}")
        if len(report.failed) > SHOWN:
            say(f"{library}: and {len(report.failed) - SHOWN} more failed (--json lists all)")
        say(
            f"{library}: {len(report.fetched)} fetched, {len(report.present)} were there, {len(report.failed)} failed"
        )
    if not report.failed:
        return 0
    return 1 if report.fetched or report.present else 2


@group.command("list")
def listing(instances: Instances = DEFAULT_INSTANCES, json: Json = False) -> None:
    """List what can be named with --data."""
    from nco_bench.cli.listing import listing as list_command

    list_command("datasets", instances, json)


@group.command(short_help="Check stored datasets against their hashes.")
def verify(
    library: Annotated[
        str | None,
        typer.Argument(help="A library, a test set, or lra; default: the stored generated datasets."),
    ] = None,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Check stored datasets, or the files of a library, against their hashes; status 1 if one is not whole."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets import lra
    from nco_bench.datasets.checking import verify_stored
    from nco_bench.datasets.pull import verify as verify_library

    if library is None:
        states = verify_stored(instances)
    elif library.partition("-")[0] == lra.FOLDER:
        states = lra.verify_lra(library, instances)
    else:
        states = verify_library(library, instances)
    wrong = {name: state for name, state in states.items() if state != "ok"}
    if json:
        print_json([{"name": name, "ok": state == "ok", "state": state} for name, state in states.items()])
    else:
        for name, state in wrong.items():
            typer.echo(f"{name}: {state}")
        say(f"{len(states)} checked, {len(wrong)} not whole")
    return 1 if wrong else 0


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="instances")
