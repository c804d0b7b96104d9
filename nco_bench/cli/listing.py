"""``nco-bench list``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json

IN_SHORT = {
    "solvers": ("name", "problems", "kind", "state"),
    "models": ("name", "problems", "venue", "paper"),
    "distributions": ("name", "description", "used_by"),
    "weights": ("name", "problem", "share_of_paper", "found_in"),
}
"""What a terminal shows of objects with many facts; --json and ``show NAME`` give the rest."""


HEADERS = {"share_of_paper": "of paper", "used_by": "used by"}
"""Headers that differ from the key, so that 80 columns hold the table."""


def listing(
    what: Annotated[
        str,
        typer.Argument(
            help="solvers, datasets, distributions, decodings, models, weights, tables or papers."
        ),
    ],
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """List what there is."""
    from nco_bench.cli.inventory import list_objects
    from nco_bench.cli.output import print_json
    from nco_bench.datasets.places import Places

    objects = list_objects(what, Places.from_environment(instances))
    if json:
        print_json(objects)
        return
    from nco_bench.cli.tables import print_objects

    keys = IN_SHORT.get(what)
    short = (
        [{HEADERS.get(key, key): _short(one, key) for key in keys} for one in objects] if keys else objects
    )
    print_objects(short)
    if what == "solvers":
        _tell_how_to_get(objects)
    if keys:
        typer.echo("nco-bench show NAME tells the rest.")


def _short(one: dict[str, Any], key: str) -> Any:
    """A fact in a list; of weights that others of their name stand behind, where those are too."""
    return f"{one[key]}, before {one['hides']}" if key == "found_in" and one.get("hides") else one.get(key)


def _tell_how_to_get(solvers: list[dict[str, Any]]) -> None:
    """Say under the list what its states mean, with the command of one solver in each; `show` tells everyone's."""
    from rich.text import Text

    from nco_bench.cli.output import console
    from nco_bench.solvers.readiness import STATES

    out = console()
    for state, meaning in STATES.items():
        lacking = [(s, p) for s in solvers for p in s["commands"] if s["states"][p] == state]
        if lacking:
            solver, problem = lacking[0]
            out.print(Text(f"{state}: {meaning}; {solver['name']}: {solver['commands'][problem]}"))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(listing)
