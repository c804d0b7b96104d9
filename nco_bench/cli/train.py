"""``nco-bench train``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nco_bench.cli.options import (
    DEFAULT_INSTANCES,
    Cluster,
    Detach,
    Executor,
    Instances,
    Json,
    Seed,
    SlurmSettings,
)
from nco_bench.errors import counted

if TYPE_CHECKING:
    from nco_bench.datasets.places import Places
    from nco_bench.runs.cluster.profile import Profile
    from nco_bench.training.slurm import Trained


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
            help="Weights to start from, name or file: the model's own, for the CVRP also its TSP weights, a "
            "shallower decoder's of its width, or for LEHD a decoder's of its sizes.",
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
        Path | None,
        typer.Option(
            "--out",
            help="Weights to write; default: MODEL.safetensors. Of a campaign its folder; default: FILE without .toml.",
        ),
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
    executor: Executor = "local",
    cluster: Cluster = None,
    slurm: SlurmSettings = None,
    detach: Detach = False,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Train a model, with checkpoints; stops cleanly when the budget is used up. Status 1: training had to stop.

    Ctrl-C or SIGTERM ends it with a checkpoint after the running update, from which --resume goes on; a second one at once.

    With --executor slurm a job trains it, or a job per network of a campaign; 'runs status --results FOLDER' of the weights
    shows it. A job that is preempted or reaches its time limit goes on in the next; --budget is the time of all together.
    """
    from nco_bench.datasets.places import Places
    from nco_bench.errors import BadInputError
    from nco_bench.runs.cluster.profile import refuse_without_slurm

    refuse_without_slurm(executor, cluster, slurm, detach)
    given = _Given(
        out, data or [], budget, device, seed, Places.from_environment(instances), executor, cluster, slurm, detach, json
    )  # fmt: skip
    own = {
        "--config": config, "--validation": validation, "--problem": problem, "--tensorboard": tensorboard, "--start": start,
        "--branch": branch,
    }  # fmt: skip
    if campaign is not None:
        _refuse_of_one_model(campaign, model, own)
        if dry_run:
            return _say_plan(campaign, stage or (), json)
        return _train_campaign(given, campaign, stage or (), pack, unpack)
    if pack is not None or unpack is not None or stage or dry_run:
        raise BadInputError(
            "--pack, --unpack, --stage and --dry-run belong to a campaign: name it with --campaign FILE."
        )
    if model is None:
        raise BadInputError("Name a model to train, or a campaign with --campaign FILE.")
    return _train_model(
        given, model,
        {
            "config": config or [], "resume": resume, "validation": validation or (), "problem": problem,
            "tensorboard": tensorboard, "start": start, "branch": branch,
        },
    )  # fmt: skip


@dataclass(frozen=True)
class _Given:
    """What one model and a campaign have in common: where, how long and on what is trained."""

    out: Path | None
    data: list[str]
    budget: str | None
    device: str
    seed: int
    places: Places
    executor: str
    cluster: str | None
    slurm: list[str] | None
    detach: bool
    json: bool

    def profile(self) -> Profile:
        """Return the cluster's profile with what --slurm sets."""
        from nco_bench.cli.options import key_values
        from nco_bench.runs.cluster.profile import read_profile

        return read_profile(self.cluster, key_values("--slurm", self.slurm))


def _refuse_of_one_model(campaign: Path, model: str | None, own: Mapping[str, object]) -> None:
    """Refuse the options of one model beside a campaign; raises `BadInputError`."""
    from nco_bench.errors import BadInputError

    if model is not None:
        raise BadInputError(f"--campaign {campaign}: names the models itself; leave {model!r} out.")
    for option, value in own.items():
        if option in ("--start", "--branch") and value is not None:
            raise BadInputError(
                f"{option} {value}: belongs to one model; a campaign continues its own weights."
            )
        if value:
            raise BadInputError(f"{option}: belongs to one model; {campaign} says it for each of its own.")


def _say_plan(campaign: Path, stages: Sequence[str], json: bool) -> int:
    """Check a campaign and print what it costs."""
    from nco_bench.cli.output import print_json
    from nco_bench.training.campaign import chosen_stages
    from nco_bench.training.campaign_file import describe_plan, planned, read_campaign

    plans = planned(chosen_stages(read_campaign(campaign), stages))
    print_json([dataclasses.asdict(plan) for plan in plans]) if json else print(describe_plan(plans))
    return 0


def _train_campaign(
    given: _Given, campaign: Path, stages: Sequence[str], pack: Path | None, unpack: Path | None
) -> int:
    """Train the networks of a campaign, here or on SLURM; the exit status."""
    from nco_bench.cli.options import parse_duration
    from nco_bench.cli.output import print_json, say
    from nco_bench.errors import BadInputError
    from nco_bench.interrupts import Ending
    from nco_bench.runs.devices import resolve_device
    from nco_bench.runs.environment import command_line
    from nco_bench.training.campaign import pack as pack_campaign
    from nco_bench.training.campaign import run_campaign
    from nco_bench.training.campaign import unpack as unpack_campaign
    from nco_bench.training.distributed import reports
    from nco_bench.training.run import train as train_model

    folder = given.out or campaign.parent / campaign.stem
    if unpack is not None:
        unpack_campaign(unpack, folder, say)
    if given.executor == "slurm":
        from nco_bench.training.slurm import campaign_on_slurm

        if given.budget is not None or pack is not None:
            raise BadInputError(
                "--budget and --pack end a session; on SLURM the profile's time does, and jobs go on by themselves."
            )
        sent = campaign_on_slurm(
            campaign, folder, given.data, stages, (given.device, given.seed, given.places), given.profile(), say,
            detach=given.detach, command=command_line(),
        )  # fmt: skip
        return _tell_trained(sent, given.json)
    with Ending() as ending:
        done = run_campaign(
            campaign, folder, given.data, parse_duration(given.budget), resolve_device(given.device), given.seed,
            given.places, only=stages, trained=partial(train_model, asked_to_end=ending),
        )  # fmt: skip
    if reports():
        if pack is not None:
            say(f"{pack}: {counted(len(pack_campaign(folder, pack)), 'file')}")
        print_json(done.as_dict()) if given.json else say(done.describe())
    if ending.signal and not done.complete:
        return ending.status
    return 1 if done.stopped else 0


def _train_model(given: _Given, model: str, own: Mapping[str, Any]) -> int:
    """Train one model with the options that are its own, here or on SLURM; the exit status."""
    from nco_bench.cli.options import parse_duration
    from nco_bench.cli.output import print_json, say
    from nco_bench.interrupts import Ending
    from nco_bench.runs.devices import resolve_device
    from nco_bench.runs.environment import command_line
    from nco_bench.training.distributed import reports
    from nco_bench.training.options import given_options
    from nco_bench.training.run import train as train_model
    from nco_bench.training.trainer import TrainingStopped

    arguments: dict[str, Any] = {
        **own, "model": model, "data": given.data, "config": given_options(own["config"]),
        "budget_s": parse_duration(given.budget), "out": given.out or Path(f"{model}.safetensors"), "seed": given.seed,
        "places": given.places,
    }  # fmt: skip
    if given.executor == "slurm":
        from nco_bench.training.slurm import train_on_slurm

        profile = given.profile()
        arguments["device"] = given.device
        sent = train_on_slurm(arguments, profile, say, detach=given.detach, command=command_line())
        return _tell_trained(sent, given.json)
    try:
        with Ending() as ending:
            result = train_model(
                **arguments,
                device=resolve_device(given.device),
                progress="bar" if sys.stderr.isatty() else "lines",
                asked_to_end=ending,
            )
    except TrainingStopped as stop:
        if stop.alone or reports():
            say(f"error: {stop}")
        return 1
    if reports():
        print_json(result.as_dict()) if given.json else say(result.describe())
    return ending.status if result.interrupted else 0


def _tell_trained(done: Trained, json: bool) -> int:
    """Print what jobs came to; the exit status."""
    from dataclasses import asdict

    from nco_bench.cli.output import print_json, say
    from nco_bench.training.campaign import CampaignResult
    from nco_bench.training.run import TrainResult

    if json:
        print_json(asdict(done))
    for line in done.troubles:
        say(line)
    stopped = False
    for one in done.results:
        result = CampaignResult(**one) if "turns" in one else TrainResult.from_dict(one)
        stopped = stopped or bool(isinstance(result, CampaignResult) and result.stopped)
        if not json:
            say(result.describe())
    return 1 if done.troubles or stopped else 0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Train a model; resumable, within a time budget.")(train)
