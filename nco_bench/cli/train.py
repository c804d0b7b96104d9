"""``nco-bench train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, Instances, Json, Seed


def train(
    model: Annotated[str, typer.Argument(help="Model name, see 'nco-bench list models'.")],
    data: Annotated[list[str], typer.Option("--data", help="Labelled dataset, name or file; repeatable.")],
    config: Annotated[
        list[str] | None, typer.Option("--config", help="KEY=VALUE over the model's recipe; repeatable.")
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="Wall time such as 90s, 9m or 2h.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint beside --out.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Weights to write, .safetensors.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Seed = 1234,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Train a model on labelled instances, with checkpoints; stops cleanly when the budget is used up."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.cli.parsing import key_values, parse_duration
    from nco_bench.datasets.load import Places
    from nco_bench.runs.request import resolve_device
    from nco_bench.training.run import train as train_model

    result = train_model(
        model,
        data,
        key_values("--config", config),
        budget_s=parse_duration(budget),
        resume=resume,
        out=out or Path(f"{model}.safetensors"),
        seed=seed,
        device=resolve_device(device),
        places=Places.from_environment(instances),
    )
    print_json(result.as_dict()) if json else say(result.describe())


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)
