"""``nco-bench train``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json, Seed


def train(
    model: Annotated[
        str | None, typer.Argument(help="Model name, see 'nco-bench list models'; none with --campaign.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Labelled dataset, name, file or folder of shards; repeatable."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", help="KEY=VALUE over the model's recipe; learner= and recipe= choose it. Repeatable."
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="Wall time such as 90s, 9m or 2h.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint beside --out.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            help="Weights to start from, name or file: the model's own, for the CVRP also its TSP weights, or a "
            "shallower decoder's of its width.",
        ),
    ] = None,
    branch: Annotated[
        Path | None,
        typer.Option(
            "--branch",
            help="Weights file of another run: go on from its last checkpoint with this --config, beside it.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Weights to write, .safetensors; folder of a campaign.")
    ] = None,
    validation: Annotated[
        list[Path] | None,
        typer.Option("--validation", help="Labelled instances to validate on; repeatable, one per size."),
    ] = None,
    problem: Annotated[
        str | None, typer.Option("--problem", help="tsp or cvrp, where data do not say.")
    ] = None,
    campaign: Annotated[
        Path | None, typer.Option("--campaign", help="TOML file of recipes with time slices.")
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option("--stage", help="Of a campaign, only this stage, as in a job array. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check a campaign and say what it costs; train nothing.")
    ] = False,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", help="Folder for TensorBoard events.")
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option("--pack", help="Write a campaign's folder to this folder in files below 16 MB."),
    ] = None,
    unpack: Annotated[
        Path | None, typer.Option("--unpack", help="Read what --pack wrote into the campaign's folder first.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Seed = 1234,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Train a model, with checkpoints; stops cleanly when the budget is used up. Status 1: training had to stop."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.cli.parsing import key_values, parse_duration
    from nco_bench.datasets.places import Places
    from nco_bench.errors import BadInputError
    from nco_bench.runs.devices import resolve_device
    from nco_bench.training.run import train as train_model
    from nco_bench.training.trainer import TrainingStopped

    places = Places.from_environment(instances)
    if campaign is not None:
        from nco_bench.training.campaign import pack as pack_campaign
        from nco_bench.training.campaign import run_campaign
        from nco_bench.training.campaign import unpack as unpack_campaign

        if model is not None:
            raise BadInputError(f"--campaign {campaign}: names the models itself; leave {model!r} out.")
        for option, value in (("--start", start), ("--branch", branch)):
            if value is not None:
                raise BadInputError(
                    f"{option} {value}: belongs to one model; a campaign continues its own weights."
                )
        if dry_run:
            from nco_bench.training.campaign import chosen_stages
            from nco_bench.training.campaign_file import describe_plan, planned, read_campaign

            plans = planned(chosen_stages(read_campaign(campaign), stage or ()))
            print_json([dataclasses.asdict(plan) for plan in plans]) if json else print(describe_plan(plans))
            return 0
        folder = out or campaign.with_suffix("")
        if unpack is not None:
            unpack_campaign(unpack, folder, say)
        done = run_campaign(
            campaign, folder, data or [], parse_duration(budget), resolve_device(device), seed, places,
            only=stage or (),
        )  # fmt: skip
        if pack is not None:
            say(f"{pack}: {len(pack_campaign(folder, pack))} files")
        print_json(done.as_dict()) if json else say(done.describe())
        return 1 if done.stopped else 0
    if pack is not None or unpack is not None or stage or dry_run:
        raise BadInputError(
            "--pack, --unpack, --stage and --dry-run belong to a campaign: name it with --campaign FILE."
        )
    if model is None:
        raise BadInputError("Name a model to train, or a campaign with --campaign FILE.")
    try:
        result = train_model(
            model,
            data or [],
            key_values("--config", config),
            budget_s=parse_duration(budget),
            resume=resume,
            out=out or Path(f"{model}.safetensors"),
            seed=seed,
            device=resolve_device(device),
            progress="bar" if sys.stderr.isatty() else "lines",
            validation=validation or (),
            places=places,
            problem=problem,
            tensorboard=tensorboard,
            start=start,
            branch=branch,
        )
    except TrainingStopped as stop:
        say(f"error: {stop}")
        return 1
    print_json(result.as_dict()) if json else say(result.describe())
    return 0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Train a model; resumable, within a time budget.")(train)
