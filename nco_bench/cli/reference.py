"""``nco-bench reference``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, AllJobs, Instances, Json, Limit, Seed, TimeLimit


def reference(
    dataset: Annotated[str, typer.Argument(help="Dataset name or file.")],
    solver: Annotated[str, typer.Option("--solver", help="Solver, such as concorde or lkh3:runs=10.")],
    limit: Limit = None,
    time_limit: TimeLimit = None,
    seed: Seed = 1234,
    jobs: AllJobs = None,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Compute references, or improve those that the ledger has."""
    from nco_bench.cli.output import RunDisplay, print_json, say
    from nco_bench.datasets.places import Places
    from nco_bench.runs.environment import command_line
    from nco_bench.runs.references import ReferenceRun, improve_references
    from nco_bench.runs.request import parse_limit

    how = ReferenceRun(
        solver, jobs or os.cpu_count() or 1, seed, time_limit, command_line(), parse_limit(limit)
    )
    with RunDisplay() as display:
        improved = improve_references(dataset, how, Places.from_environment(instances), display)
    if json:
        print_json(improved.as_dict())
    else:
        say(improved.describe())


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reference)
