"""``nco-bench parity``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import Json


def parity(
    fixtures: Annotated[list[Path], typer.Argument(help="Fixtures: official weights, inputs and outputs.")],
    json: Json = False,
) -> int:
    """Import official weights and compare with official outputs; status 1 if one differs."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.errors import NcoBenchError
    from nco_bench.parity import check_fixture
    from nco_bench.progress import tracked

    results = []
    refused = []
    for path in tracked(fixtures, "fixture"):
        try:
            results.append(check_fixture(path))
        except NcoBenchError as error:
            if len(fixtures) == 1:
                raise
            refused.append(f"{path}: {error}")
    if json:
        print_json([asdict(result) for result in results])
    else:
        for result in results:
            tours = "tours identical" if result.tours_identical else "tours differ"
            typer.echo(
                f"{'ok  ' if result.ok else 'FAIL'} {result.fixture}: {result.model} on {result.problem}, "
                f"largest relative error {result.max_relative_error:.2g}, {tours}"
            )
            for line in result.details.get("failed", ()):
                typer.echo(f"     out of tolerance: {line}")
            if result.not_compared:
                typer.echo(f"     expected, but not compared: {', '.join(result.not_compared)}")
    for line in refused:
        say(f"error: {line}")
    return 2 if refused else int(not all(result.ok for result in results))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Compare our models with official outputs.")(parity)
