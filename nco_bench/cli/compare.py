"""``nco-bench compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_FOLDERS, DEFAULT_INSTANCES, Instances, Json, ResultFolders


def compare(
    solver_a: Annotated[str, typer.Argument(help="A row of the table, or a solver's name.")],
    solver_b: Annotated[str, typer.Argument(help="The other one.")],
    data: Annotated[
        list[str],
        typer.Option("--data", help="Dataset that both were run on, or a pattern like 'tsp*'; repeatable."),
    ],
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Compare two solvers, paired by instance, with a confidence interval.

    The name of a generated set means its first instances, whatever was run. Prints a line for each --data; --json prints one
    object, or for several --data a list; a set that lacks one of the two is told after the others.
    """
    from nco_bench import stored
    from nco_bench.cli.output import print_json
    from nco_bench.errors import MissingRecordsError, ResultsError
    from nco_bench.reports.frame import compare as comparing

    frame = stored.frame(results=results, instances=instances)
    asked = list(frame.meant(data))
    found, missing = [], []
    for name in asked:
        try:
            found.append(comparing.compare(frame, solver_a, solver_b, name))
        except MissingRecordsError as error:
            missing.append(error)
    if json and found:
        documents = [comparing.as_document(one, comparing.outliers_of(frame, one)) for one in found]
        print_json(documents[0] if len(asked) == 1 else documents)
    else:
        for one in found:
            typer.echo(comparing.sentence(one))
    if missing:
        raise ResultsError("; ".join(map(str, missing)))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Compare two solvers, paired by instance.")(compare)
