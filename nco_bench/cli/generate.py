"""``nco-bench generate``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, AllJobs, Instances, Json, Seed, TimeLimit


def generate(
    problem: Annotated[
        str, typer.Argument(help="tsp, cvrp, bpp3d, or an algorithmic task such as knapsack.")
    ],
    n: Annotated[int, typer.Option("--n", help="Nodes (TSP), customers (CVRP), boxes, or length of a task.")],
    count: Annotated[
        int | None, typer.Option("--count", help="Instances; default: the literature's.")
    ] = None,
    distribution: Annotated[
        str | None,
        typer.Option(
            "--distribution", help="See 'nco-bench list distributions'; default: uniform, or a task's id."
        ),
    ] = None,
    seed: Seed = 1234,
    capacity: Annotated[
        float | None, typer.Option("--capacity", help="CVRP; default: the literature's.")
    ] = None,
    bin_base: Annotated[
        str | None, typer.Option("--bin", help="Packing: LENGTHxWIDTH of the bin; default: 120x100.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="Further KEY=VALUE of the generator.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Solver for the references, such as lkh3:runs=10.")
    ] = None,
    time_limit: TimeLimit = None,
    jobs: AllJobs = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards", help="Spread --count over this many files in the folder --out, for training."
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check", help="With --shards: better solver that judges 100 of the labels, such as lkh3."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File; default: in the instances folder.")] = None,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Make a dataset, with references where a solver is named."""
    from nco_bench.cli.options import key_values
    from nco_bench.cli.output import RunDisplay, print_json, say
    from nco_bench.datasets.places import Places
    from nco_bench.errors import BadInputError
    from nco_bench.runs.environment import command_line
    from nco_bench.runs.generating import GenerateRequest, generate_dataset

    params = key_values("--param", param)
    size = None if capacity is None else f"{capacity:.15g}"
    if size is not None and "capacity" in params:
        raise BadInputError(
            f"--capacity {size} and --param capacity={params['capacity']} exclude each other; give one of them."
        )
    if size is not None:
        params["capacity"] = size
    for option, value, owner in (("--capacity", size, "cvrp"), ("--bin", bin_base, "bpp3d")):
        if value is not None and problem != owner:
            raise BadInputError(f"{option} {value}: belongs to {owner}, not to {problem}; leave it out.")
    if bin_base is not None and distribution is not None:
        raise BadInputError("--bin and --distribution exclude each other; give one of them.")
    if bin_base is not None:
        from nco_bench.datasets.packing import parse_bin

        parse_bin(bin_base, "--bin")
    if check is not None and shards is None:
        raise BadInputError(f"--check {check}: judges labels in shards; add --shards, or leave it out.")
    if time_limit is not None and reference is None:
        raise BadInputError(
            f"--time-limit {time_limit:g}: is for --reference; add it, or leave the limit out."
        )
    request = GenerateRequest(
        problem, n, count, bin_base or distribution or "uniform", seed, params, reference, time_limit,
        jobs or os.cpu_count() or 1, out, command_line(), capacity is not None,
    )  # fmt: skip
    if shards is not None:
        from nco_bench.runs.label_shards import generate_shards

        with RunDisplay() as display:
            labels = generate_shards(request, shards, Places.from_environment(instances), display, check)
        print_json(labels.as_dict()) if json else say(labels.describe())
        return
    with RunDisplay() as display:
        made = generate_dataset(request, Places.from_environment(instances), display)
    if json:
        print_json(made.as_dict())
    else:
        say(made.describe())


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(generate)
