"""``nco-bench test-solver``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from nco_bench.cli.options import Json


def test_solver(
    solver: Annotated[str, typer.Argument(help="FILE.py, FILE.py:NAME, or a registered solver.")],
    json: Json = False,
) -> int:
    """Check a solver against the rules; status 1 if one is broken."""
    import sys
    from contextlib import nullcontext, redirect_stdout

    from nco_bench.cli.output import print_json
    from nco_bench.runs.conformance import check_solver
    from nco_bench.solvers.protocol import SolverOptions
    from nco_bench.solvers.registry import choose

    # In this process, where it can be seen whether it writes into an instance.
    with (
        redirect_stdout(sys.stderr) if json else nullcontext()
    ):  # what the solver prints is no part of the document
        checks = check_solver(choose(solver, SolverOptions(in_process=True)))
    broken = [check for check in checks if not check.ok]
    if json:
        print_json({"solver": solver, "ok": not broken, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            typer.echo(
                f"{'ok  ' if check.ok else 'FAIL'} {check.rule}{'' if check.ok else ': ' + check.advice}"
            )
    return 1 if broken else 0


test_solver.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name says to pytest


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("test-solver")(test_solver)
