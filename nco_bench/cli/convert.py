"""``nco-bench convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json
from nco_bench.errors import counted


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="File to read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="File to write.")],
    from_format: Annotated[
        str | None, typer.Option("--from", help="Format of IN; default: recognised.")
    ] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="Format of OUT; default: by its name.")
    ] = None,
    instance: Annotated[
        int | None, typer.Option("--instance", help="Only this instance, counted from 1.", min=1)
    ] = None,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Convert a dataset from one file format to another.

    Solutions that IN lacks are those that 'reference' has stored.
    """
    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets.convert import convert_file

    dataset = convert_file(source, target, from_format, to_format, instance, instances)
    if json:
        print_json(
            {"out": str(target), "count": len(dataset), "problem": dataset.problem, "sha256": dataset.sha256}
        )
    else:
        say(f"{counted(len(dataset), f'{dataset.problem} instance')} written to {target}")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(convert)
