"""``nco-bench parity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import Json


def parity(
    fixtures: Annotated[list[Path], typer.Argument(help="Fixtures: official weights, inputs and outputs.")],
    json: Json = False,
) -> int:
    """Import official weights and compare with official outputs; status 1 if one differs."""
    from nco_bench.cli.output import print_json
    from nco_bench.models.parity import check_fixture

    results = [check_fixture(path) for path in fixtures]
    if json:
        print_json([result.as_dict() for result in results])
    else:
        for result in results:
            typer.echo(result.describe())
    return 0 if all(result.ok for result in results) else 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(parity)
