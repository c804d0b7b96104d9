"""``nco-bench doctor``."""

from __future__ import annotations

import typer

from nco_bench.cli.options import Json


def doctor(json: Json = False) -> None:
    """Say what is installed, what is missing, and the command that fixes it."""
    from nco_bench.cli.inventory import diagnose
    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_object, print_objects

    found = diagnose()
    if json:
        print_json(found)
        return
    print_object(found["machine"])
    typer.echo()
    print_objects(found["solvers"])
    typer.echo()
    print_objects(found["extras"])


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Say what is installed, what is missing, and how to get it.")(doctor)
