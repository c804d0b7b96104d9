"""``nco-bench doctor``."""

from __future__ import annotations

from typing import Any

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
    print_objects(alike(found["solvers"]))
    typer.echo()
    print_objects(found["extras"])


def alike(solvers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put neighbours that differ in nothing but their name into one row: most networks need torch and nothing else."""
    rows: list[dict[str, Any]] = []
    for solver in solvers:
        facts = {key: value for key, value in solver.items() if key not in ("name", "fix")}
        facts["install"] = solver["fix"] or solver["install"]  # one column: six do not fit 80 characters
        if rows and all(rows[-1][key] == value for key, value in facts.items()):
            rows[-1]["solvers"].append(solver["name"])
        else:
            rows.append({"solvers": [solver["name"]], **facts})
    return rows


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Say what is installed, what is missing, and how to get it.")(doctor)
