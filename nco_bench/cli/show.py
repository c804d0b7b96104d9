"""``nco-bench show``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json


def show(
    name: Annotated[str, typer.Argument(help="A solver, dataset, table or weights file.")],
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Show all that is known about a name."""
    from nco_bench.cli.inventory import show_object
    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_object
    from nco_bench.datasets.places import Places

    known = show_object(name, Places.from_environment(instances))
    print_json(known) if json else print_object(known)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(show)
