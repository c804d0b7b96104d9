"""``nco-bench run``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nco_bench.cli.options import (
    DEFAULT_INSTANCES,
    DEFAULT_RESULTS,
    Cluster,
    Detach,
    Executor,
    Instances,
    Jobs,
    Json,
    Limit,
    Results,
    SlurmSettings,
    TimeLimit,
)
from nco_bench.errors import BadInputError, NcoBenchError

if TYPE_CHECKING:
    from nco_bench.study import Study

STUDY = "nco_bench.study"
"""Key of the context's notes where the study's file stands."""


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a study's file for those that are not given; click checks them as if they were typed."""
    if path is None or context.resilient_parsing:
        return path
    from nco_bench.study import read_study

    given = read_study(path)
    context.meta[STUDY] = given.pop("source")
    for table in ("param", "slurm"):
        if given.get(table):
            given[table] = [f"{key}={value}" for key, value in given.pop(table).items()]
    context.default_map = {key: _typed(value) for key, value in given.items()}
    return path


@contextmanager
def _blaming_the_file(context: typer.Context) -> Iterator[None]:
    """Name the study's file and its key where an option is refused that stands there and was not typed."""
    try:
        yield
    except NcoBenchError as error:
        option = re.match(r"--([a-z-]+)", str(error))
        source = context.get_parameter_source(option[1].replace("-", "_")) if option else None
        if source is not None and source.name == "DEFAULT_MAP":
            error.args = (f"{context.params['config']}: {str(error)[2:]}",)
        raise


def _typed(value: Any) -> Any:
    """Return a value as it would be typed."""
    if isinstance(value, list):
        return [_typed(one) for one in value]
    return value if isinstance(value, bool) else str(value)


def run(
    context: typer.Context,
    solvers: Annotated[
        list[str],
        typer.Argument(
            help="Solver names, with options like lkh3:runs=10, FILE.py or FILE.toml; may stand in --config instead."
        ),
    ],
    data: Annotated[
        list[str],
        typer.Option("--data", help="Dataset name or file; repeatable; may stand in --config instead."),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="TOML file with these options as keys (a study); options given here win over it.",
            callback=_read_config,
            is_eager=True,
        ),
    ] = None,
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
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu, cuda or cuda:N; cuda:0,1 or all: a process per GPU.")
    ] = "auto",
    seed: Annotated[
        list[int] | None,
        typer.Option(
            "--seed", help="Seed, default 1234; repeatable.", min=0, max=2**32 - 1, show_default=False
        ),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Solve everything this many times.", min=1)] = 1,
    batch_size: Annotated[str, typer.Option("--batch-size", help="auto or a number.")] = "auto",
    limit: Limit = None,
    time_limit: TimeLimit = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="KEY=VALUE for the solvers; repeatable.")
    ] = None,
    jobs: Jobs = 1,
    executor: Executor = "local",
    cluster: Cluster = None,
    slurm: SlurmSettings = None,
    detach: Detach = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what is already stored.")] = False,
    update_references: Annotated[
        bool, typer.Option("--update-references", help="Keep solutions that beat the reference.")
    ] = False,
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", help="Run solvers of files and packages in this process, to debug them."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be solved and how long it may take; write nothing."),
    ] = False,
    results: Results = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Run solvers on datasets; a second start continues where the first one stopped.

    Every solver runs with every decoding and seed on every dataset. --config FILE takes the same keys as the options, with
    lists where they are repeatable, and solvers: solvers = ["lkh3"], data = ["tsp100"], seed = [1, 2]. Its text is kept with
    the records.
    """
    from nco_bench.cli.options import key_values
    from nco_bench.cli.output import RunDisplay, console, print_json
    from nco_bench.reports.render.terminal import show
    from nco_bench.runs.environment import command_line
    from nco_bench.study import Study

    _refuse_datasets(solvers)
    study = Study(
        solvers=solvers,
        data=data,
        decoding=decoding or (),
        weights=weights,
        logit_scale=logit_scale,
        coordinate_scale=coordinate_scale,
        device=device,
        seed=seed or 1234,
        repeats=repeats,
        batch_size=batch_size,
        limit=limit,
        time_limit=time_limit,
        param=key_values("--param", param),
        jobs=jobs,
        executor=executor,
        cluster=cluster,
        slurm=key_values("--slurm", slurm),
        detach=detach,
        fresh=fresh,
        update_references=update_references,
        in_process=in_process,
        results=results,
        instances=instances,
        source=context.meta.get(STUDY, {}),
    )
    if dry_run:
        with _blaming_the_file(context):
            _tell_plan(study, json)
        return 0
    from nco_bench import api

    with _blaming_the_file(context), RunDisplay() as display:
        if detach:
            sent = api.submit_study(study, display, command=command_line())
            if json:
                print_json({"submissions": sent.submissions, "skipped": sent.skipped})
            return 0
        # What a solver in this process prints is no part of the document.
        with redirect_stdout(sys.stderr) if json else nullcontext():
            done = api.run_study(study, display, command=command_line())
        if study.jobs > 1 and study.executor == "local" and done.run_ids:
            display.message(f"{study.jobs} jobs ran at once: their times are not those of an idle machine")
    if json:
        print_json({"cells": done.cells, "run_ids": done.run_ids, "skipped": done.skipped})
    else:
        show(done.table, console())
    return 1 if done.failed else 0


def _refuse_datasets(solvers: list[str]) -> None:
    """Say what a second name behind one --data is taken for; raises `BadInputError`."""
    from nco_bench.cards import find

    for name in solvers:
        if find(name.partition(":")[0]) is None and _is_dataset(name):
            raise BadInputError(
                f"{name!r} is a dataset, and stands where solvers do: --data takes one, so write --data {name} as well."
            )


def _is_dataset(name: str) -> bool:
    from nco_bench.datasets.libraries import library_names
    from nco_bench.datasets.names import parse_generated

    try:
        generated = parse_generated(name) is not None
    except NcoBenchError:  # a dataset's name all the same, with something in it that is wrong
        return True
    return generated or name.endswith(".npz") or name.partition(":")[0] in library_names()


def _tell_plan(study: Study, json: bool) -> None:
    from dataclasses import asdict

    from nco_bench import api
    from nco_bench.cli.output import print_json, say
    from nco_bench.cli.tables import print_objects

    plan = api.plan(study, say)
    for line in plan.skipped:
        say(f"would skip {line}")
    if json:
        print_json(
            {**asdict(plan), "to_solve": plan.to_solve, "stored": plan.stored, "seconds": plan.seconds}
        )
        return
    print_objects([cell.in_short() for cell in plan.cells])
    typer.echo(f"{plan.sentence()}, without loading weights and instances. Nothing was written.")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Run solvers on datasets; a second start continues the first.")(run)
