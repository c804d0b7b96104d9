"""``nco-bench runs status|wait``: what becomes of SLURM jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nco_bench.cli.options import DEFAULT_RESULTS, Json, ResultsFolder

if TYPE_CHECKING:
    from nco_bench.runs.cluster.status import Status

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SUBMISSION]...", help="Ids or their beginnings; none: all that are not over."),
]


def status(submission: Names = None, results: ResultsFolder = DEFAULT_RESULTS, json: Json = False) -> None:
    """Show the SLURM jobs of submissions: queued, running, done, failed or lost; what is solved, how fast, what is left."""
    from nco_bench.cli.output import say
    from nco_bench.runs.cluster.state import pick
    from nco_bench.runs.cluster.status import status_of

    found = [status_of(folder) for folder in pick(results, tuple(submission or ()))]
    if not found and not json:
        say(f"{results}: no submissions; 'nco-bench run --executor slurm' makes them")
    _tell(found, json, jobs=bool(submission) or len(found) == 1)


def wait(
    submission: Names = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="Seconds after which to return whatever still runs.", min=0),
    ] = None,
    results: ResultsFolder = DEFAULT_RESULTS,
    json: Json = False,
) -> int:
    """Wait until the jobs of submissions are over; those that die are submitted again, as often as the profile says.

    The exit status is 0 when all are done, and 1 when a job failed, is lost or still runs, or an instance failed.
    """
    from nco_bench.cli.output import say
    from nco_bench.runs.cluster.state import pick
    from nco_bench.runs.cluster.status import troubles
    from nco_bench.runs.cluster.status import wait as wait_for

    folders = pick(results, tuple(submission or ()))
    if not folders:
        say(f"{results}: no submissions to wait for; 'nco-bench run --executor slurm' makes them")
    found = wait_for(folders, say, timeout) if folders else []
    for line in dict.fromkeys(line for one in found for line in troubles(one)):
        say(line)
    _tell(found, json, jobs=False)
    return 0 if all(one.ok and not one.failures for one in found) else 1


def _tell(found: list[Status], json: bool, *, jobs: bool) -> None:
    from dataclasses import asdict

    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_objects

    if json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        typer.echo(one.sentence())
        if jobs:
            print_objects(
                [{key: value for key, value in task.items() if key != "task"} for task in one.tasks]
            )
