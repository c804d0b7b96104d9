"""``nco-bench score``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json


def score(
    instance_file: Annotated[Path, typer.Argument(help="An instance file of any supported format.")],
    solution_file: Annotated[Path, typer.Argument(help="A .tour, .sol or JSON list.")],
    convention: Annotated[
        str | None,
        typer.Option(
            "--convention",
            help="Score under another one: euclidean, tsplib-nint, cvrplib-nint, ceil, att, geo, manhattan, maximum.",
        ),
    ] = None,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Score one solution of one instance, against the best that is known; status 1 if it is infeasible."""
    from nco_bench import api
    from nco_bench.cli.output import print_json

    scored = api.score(instance_file, solution_file, convention=convention, instances=instances)
    if json:
        print_json(scored.as_dict())
    else:
        typer.echo(scored.describe())
    return 0 if scored.feasible else 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Score one solution of one instance.")(score)
