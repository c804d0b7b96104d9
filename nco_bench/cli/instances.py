"""``nco-bench instances pull|list|verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json

group = typer.Typer(help="Pull, list and verify instance libraries and stored datasets.", no_args_is_help=True)


@group.command()
def pull(
    library: Annotated[str, typer.Argument(help="tsplib, cvrplib, or a set such as cvrplib:X.")],
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Fetch a library from NCO_BENCH_MIRROR or its official site; checksums are checked."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets.load import Places
    from nco_bench.datasets.pulling import pull as pull_library

    pulled = pull_library(library, Places.from_environment(instances), say)
    if json:
        print_json(pulled.as_dict())
    else:
        say(pulled.describe())


@group.command("list")
def listing(instances: Instances = DEFAULT_INSTANCES, json: Json = False) -> None:
    """List what can be named with --data."""
    from nco_bench.cli.listing import listing as list_command

    list_command("datasets", instances, json)


@group.command()
def verify(instances: Instances = DEFAULT_INSTANCES, json: Json = False) -> int:
    """Check every stored dataset and pulled file against its hash; status 1 if one differs."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.datasets.load import Places
    from nco_bench.datasets.pulling import verify_instances

    checked = verify_instances(Places.from_environment(instances))
    if json:
        print_json(checked.as_dict())
    else:
        for line in checked.problems:
            typer.echo(line)
        say(f"{checked.files} files checked, {len(checked.problems)} problems")
    return 1 if checked.problems else 0


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="instances")
