"""``nco-bench calibrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import Json


def calibrate(
    model: Annotated[str, typer.Argument(help="Model, such as pens-a.")],
    sizes: Annotated[str, typer.Option("--sizes", help="Numbers of nodes.")] = "100,250,500,1000",
    weights: Annotated[str | None, typer.Option("--weights", help="Name or file of the weights.")] = None,
    grid: Annotated[
        str | None,
        typer.Option("--grid", help="Factors, FROM:TO:STEP. Default: by 0.2 from 1 on, then by 0.05."),
    ] = None,
    instances: Annotated[
        int, typer.Option("--instances", "--count", help="Held-out instances per size.", min=1)
    ] = 32,
    seed: Annotated[int, typer.Option("--seed", help="Of the held-out instances.", min=0)] = 5678,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Json = False,
) -> None:
    """Fit the coordinate scale of a model per size, for --coordinate-scale auto."""
    from dataclasses import asdict

    from nco_bench.cli.options import factors, whole_numbers
    from nco_bench.cli.output import print_json, say
    from nco_bench.runs.calibrating import calibrate as fit
    from nco_bench.runs.calibrating import refuse_unscaled
    from nco_bench.runs.devices import resolve_device
    from nco_bench.weights.calibration import calibration_path, write_calibration
    from nco_bench.weights.choice import find

    wanted = list(dict.fromkeys(whole_numbers("--sizes", sizes, least=2)))
    tried = None if grid is None else factors("--grid", grid)
    refuse_unscaled(model)
    file = find(weights or model, model, "tsp")
    on = resolve_device(device)
    write_calibration(
        file, []
    )  # what is known: a place that cannot be written is refused before hours are spent
    found = fit(
        model, wanted, weights=weights, device=on, instances=instances, grid=tried, seed=seed, say=say,
        keep=lambda one: write_calibration(file, [one]),
    )  # fmt: skip
    path = calibration_path(file)
    if json:
        sizes_found = [{**asdict(c), "differs_from_1": c.differs_from_1} for c in found]
        print_json({"weights": file.manifest.name, "path": str(path), "sizes": sizes_found})
    else:
        say(f"written to {path}")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Fit the coordinate scale of a model per size.")(calibrate)
