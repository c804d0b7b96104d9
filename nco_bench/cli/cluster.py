"""``nco-bench cluster check|show``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_RESULTS, Json, ResultsFolder

group = typer.Typer(help="SLURM profiles: show one, check that it works.", no_args_is_help=True)

Name = Annotated[
    str | None,
    typer.Argument(metavar="[PROFILE]", help="Name of a profile, or cluster.toml; none: SLURM's defaults."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--slurm", help="KEY=VALUE over the profile; repeatable.")
]


@group.command(short_help="Submit a job of a minute and say what is wrong.")
def check(
    profile: Name = None,
    slurm: Settings = None,
    patience: Annotated[
        float, typer.Option("--patience", help="Seconds to wait for the job.", min=1)
    ] = 120.0,
    results: ResultsFolder = DEFAULT_RESULTS,
    json: Json = False,
) -> None:
    """Submit a job of a minute with a profile; say in one line that it ran, or what is wrong."""
    from dataclasses import asdict

    from nco_bench.cli.options import key_values
    from nco_bench.cli.output import print_json
    from nco_bench.runs.cluster import checking
    from nco_bench.runs.cluster.profile import read_profile

    found = checking.check(read_profile(profile, key_values("--slurm", slurm)), results, patience)
    if json:
        print_json(asdict(found))
    else:
        typer.echo(found.sentence())


@group.command(short_help="Show a profile, or which there are.")
def show(profile: Name = None, slurm: Settings = None, json: Json = False) -> None:
    """Show all settings of a profile; without a name, the profiles of the user's configuration."""
    from dataclasses import asdict

    from nco_bench.cli.options import key_values
    from nco_bench.cli.output import print_json, say
    from nco_bench.cli.tables import print_object
    from nco_bench.runs.cluster import profile as profiles

    if profile is None and not slurm:
        known = {name: str(path) for name, path in profiles.named_profiles().items()}
        if json:
            print_json(known)
        elif known:
            print_object(known)
        else:
            say(f"no profiles in {profiles.profiles_folder()}; docs/cluster.md says what stands in one")
        return
    found = asdict(profiles.read_profile(profile, key_values("--slurm", slurm)))
    if json:
        print_json(found)
    else:
        print_object(found)


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="cluster")
