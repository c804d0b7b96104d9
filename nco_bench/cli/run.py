"""``nco-bench run``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import (
    DEFAULT_INSTANCES,
    DEFAULT_RESULTS,
    Instances,
    Jobs,
    Json,
    Results,
    Seed,
    TimeLimit,
)


def run(
    solvers: Annotated[
        list[str], typer.Argument(help="Solver names, with options like lkh3:runs=10, or FILE.py.")
    ],
    data: Annotated[list[str], typer.Option("--data", help="Dataset name or file; repeatable.")],
    decoding: Annotated[
        list[str] | None, typer.Option("--decoding", help="greedy, beam:16, rrc:1000, ...; repeatable.")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="Name or file of the weights.")] = None,
    logit_scale: Annotated[
        str | None,
        typer.Option("--logit-scale", help="none, ssmax, log-ratio, eie:at=encoder|glimpse|both, ..."),
    ] = None,
    coordinate_scale: Annotated[
        str | None, typer.Option("--coordinate-scale", help="auto, extrapolate or a factor.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Seed = 1234,
    repeats: Annotated[int, typer.Option("--repeats", help="Solve everything this many times.", min=1)] = 1,
    batch_size: Annotated[str, typer.Option("--batch-size", help="auto or a number.")] = "auto",
    limit: Annotated[
        str | None, typer.Option("--limit", help="First K instances, or A-B counted from 1.")
    ] = None,
    time_limit: TimeLimit = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="KEY=VALUE for the solvers; repeatable.")
    ] = None,
    jobs: Jobs = 1,
    executor: Annotated[str, typer.Option("--executor", help="local or slurm.")] = "local",
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what is already stored.")] = False,
    update_references: Annotated[
        bool, typer.Option("--update-references", help="Keep solutions that beat the reference.")
    ] = False,
    results: Results = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Run solvers on datasets; a second start continues where the first one stopped."""
    from nco_bench.cli.output import RunDisplay, print_json
    from nco_bench.cli.parsing import key_values, parse_batch_size
    from nco_bench.cli.tables import console
    from nco_bench.datasets.load import Places
    from nco_bench.reports.aggregate import summarise
    from nco_bench.reports.render_terminal import show
    from nco_bench.reports.selection import frame_of_cells
    from nco_bench.reports.table import build_table
    from nco_bench.runs.environment import command_line
    from nco_bench.runs.executors import execute
    from nco_bench.runs.request import RunRequest, parse_limit

    request = RunRequest(
        solvers=tuple(dict.fromkeys(solvers)),
        datasets=tuple(dict.fromkeys(data)),
        results=results,
        places=Places.from_environment(instances),
        decodings=tuple(dict.fromkeys(decoding or ())),
        weights=weights,
        logit_scale=logit_scale,
        coordinate_scale=coordinate_scale,
        device=device,
        seed=seed,
        repeats=repeats,
        batch_size=parse_batch_size(batch_size),
        limit=parse_limit(limit),
        time_limit=time_limit,
        params=key_values("--param", param),
        jobs=jobs,
        executor=executor,
        fresh=fresh,
        update_references=update_references,
        command=command_line(),
    )
    with RunDisplay() as display:
        outcome = execute(request, display)
    frame = frame_of_cells(results, outcome.cells, repeats, instances)
    if json:
        cells = [summary.as_dict() for summary in summarise(frame)]
        print_json({"cells": cells, "run_ids": outcome.run_ids, "skipped": outcome.skipped})
    else:
        show(build_table("main", frame), console())
    return 1 if outcome.failed else 0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Run solvers on datasets; a second start continues the first.")(run)
