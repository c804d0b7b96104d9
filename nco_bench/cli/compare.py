"""``nco-bench compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_RESULTS, Json, Results


def compare(
    solver_a: Annotated[str, typer.Argument(help="A row of the table, or a solver's name.")],
    solver_b: Annotated[str, typer.Argument(help="The other one.")],
    data: Annotated[str, typer.Option("--data", help="Dataset that both were run on.")],
    results: Results = DEFAULT_RESULTS,
    json: Json = False,
) -> None:
    """Compare two solvers, paired by instance, with a confidence interval."""
    from nco_bench.cli.output import print_json
    from nco_bench.reports import compare as comparing
    from nco_bench.reports.load import load_frame
    from nco_bench.reports.selection import dataset_called

    frame = load_frame(results)
    dataset = dataset_called(frame, data)
    comparison = comparing.compare(frame, solver_a, solver_b, dataset)
    if json:
        rows = comparing.dataset_rows(frame, dataset)
        names = [comparing.pick_row(rows, solver) for solver in (solver_a, solver_b)]
        outliers = {name: comparing.outlying_instances(frame, rows[name]) for name in names}
        print_json(comparing.as_document(comparison, outliers))
    else:
        typer.echo(comparing.sentence(comparison))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Compare two solvers, paired by instance.")(compare)
