"""``nco-bench weights pull|import|export|list|show|verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Json

group = typer.Typer(help="Weights: shipped, official, imported.", no_args_is_help=True)


@group.command("list")
def listing(json: Json = False) -> None:
    """List cached and shipped weights with what their manifests say.

    Of several of one name, the cached ones are used.
    """
    from nco_bench.cli.listing import listing as list_command

    list_command("weights", DEFAULT_INSTANCES, json)  # no weights are there


@group.command(short_help="Check every weights file against its manifest.")
def verify(json: Json = False) -> int:
    """Check every weights file against its manifest; status 1 if one differs."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.weights.shelf import verify_all

    checked = verify_all()
    if json:
        print_json(
            [{"path": str(path), "ok": problem is None, "problem": problem} for path, problem in checked]
        )
    else:
        for path, problem in checked:
            typer.echo(
                f"{'ok  ' if problem is None else 'FAIL'} {path}{'' if problem is None else ': ' + problem}"
            )
        say(f"{len(checked)} weights files checked")
    return 1 if any(problem for _, problem in checked) else 0


@group.command("import")
def import_(
    model: Annotated[str, typer.Argument(help="Model that the checkpoint is for, such as lehd.")],
    file: Annotated[
        Path, typer.Argument(help="Official checkpoint (.pt, .pth, .best, .safetensors); a folder for glop.")
    ],
    problem: Annotated[str, typer.Option("--problem", help="tsp or cvrp.")] = "tsp",
    name: Annotated[
        str | None, typer.Option("--name", help="Name to give the weights; default: the model's.")
    ] = None,
    json: Json = False,
) -> None:
    """Import an official checkpoint; no code in it is ever run."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.weights.importing import import_checkpoint

    made = import_checkpoint(model, file, problem, name)
    if json:
        print_json(made.summary())
    else:
        say(f"{made.manifest.name}: {made.manifest.parameters:,} parameters -> {made.path}")


@group.command(short_help="Fetch official weights; the git blob hash is checked.")
def pull(
    name: Annotated[str, typer.Argument(help="Official weights, see 'nco-bench weights list'.")],
    json: Json = False,
) -> None:
    """Fetch official weights from NCO_BENCH_MIRROR or the authors' repository; the git blob hash is checked."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.weights.pulling import pull as pull_weights

    pulled = pull_weights(name, say)
    if json:
        print_json([made.summary() for made in pulled])
    else:
        for made in pulled:
            say(f"{made.manifest.name}: {made.manifest.parameters:,} parameters -> {made.path}")


@group.command(short_help="Show all that the manifest of some weights says.")
def show(
    name: Annotated[str, typer.Argument(help="Name of shipped or cached weights, or a .safetensors file.")],
    json: Json = False,
) -> None:
    """Show all that the manifest of some weights says, after checking the file against it; or where official ones are."""
    from nco_bench.cards import official_weights
    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_object
    from nco_bench.weights.choice import at_hand, before_pull
    from nco_bench.weights.exporting import describe, find
    from nco_bench.weights.manifest import as_dict
    from nco_bench.weights.store import hidden_by

    official = official_weights().get(name)
    if official is not None and not at_hand(name):
        facts = before_pull(official)
        print_json(facts) if json else print_object(facts)
        return
    file = find(name)
    if json:
        print_json({**as_dict(file.manifest), "path": str(file.path), "hides": hidden_by(file.path)})
    else:
        typer.echo(describe(file))


@group.command()
def export(
    name: Annotated[str, typer.Argument(help="Name of shipped or cached weights, or a .safetensors file.")],
    out: Annotated[Path, typer.Option("--out", help="Weights file to write; the manifest goes beside it.")],
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="fp32, bf16 or fp16 (half the size); default: as they are stored."),
    ] = None,
    json: Json = False,
) -> None:
    """Copy weights with their manifest, in any precision."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.weights.exporting import export_copy

    made = export_copy(name, out, precision)
    if json:
        print_json(made.summary())
    else:
        say(
            f"{made.path}: {made.path.stat().st_size / 2**20:.1f} MiB, {made.manifest.parameters:,} parameters"
        )


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="weights")
