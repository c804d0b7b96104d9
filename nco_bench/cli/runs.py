"""``nco-bench runs list|show|rm|merge|pack|unpack|export|status|wait``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nco_bench.cli.options import (
    DEFAULT_FOLDERS,
    DEFAULT_INSTANCES,
    DEFAULT_RESULTS,
    Instances,
    Json,
    ResultFolders,
    ResultsFolder,
)
from nco_bench.errors import counted

group = typer.Typer(help="Stored runs: list, show, remove, merge, pack, export.", no_args_is_help=True)

Data = Annotated[
    list[str] | None, typer.Option("--data", help="Only of these datasets, or 'tsp*'; repeatable.")
]
SolverNames = Annotated[
    list[str] | None, typer.Option("--solver", help="Only of these solvers, or 'pens-*'; repeatable.")
]


@group.command("list")
def listing(
    data: Data = None,
    solver: SolverNames = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    json: Json = False,
) -> None:
    """List runs, the latest last: what was run on what, when, and how many records it left."""
    from dataclasses import asdict

    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_objects
    from nco_bench.runs import folders

    facts = [folders.facts_of(run) for run in folders.pick(results, ())]
    fitting = [one for one in facts if folders.is_about(one, data or (), solver or ())]
    if json:
        print_json([asdict(one) for one in fitting])
        return
    print_objects([_in_short(one) for one in fitting])


@group.command(short_help="Show all that is known about runs.")
def show(
    runs: Annotated[list[str], typer.Argument(help="Run ids, their beginnings, or patterns like '2026*'.")],
    results: ResultFolders = DEFAULT_FOLDERS,
    json: Json = False,
) -> None:
    """Show all that is known about runs: command, machine, study, and every cell with its records."""
    from nco_bench.cli.output import print_json
    from nco_bench.cli.tables import print_object
    from nco_bench.runs import folders

    details = [folders.details_of(run) for run in folders.pick(results, runs)]
    if json:
        print_json(details[0] if len(details) == 1 else details)
        return
    for one in details:
        print_object(one)
        typer.echo()


@group.command("rm", short_help="Remove whole runs, after asking.")
def remove(
    runs: Annotated[list[str], typer.Argument(help="Run ids, their beginnings, or patterns like '2026*'.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    results: ResultsFolder = DEFAULT_RESULTS,
    json: Json = False,
) -> None:
    """Remove whole runs, after asking; a name that is unknown, or a run in progress, and none is removed."""
    from nco_bench.cli.output import print_json, say
    from nco_bench.runs import folders

    chosen = folders.pick([results], runs)
    facts = [folders.facts_of(run) for run in chosen]
    records = sum(one.records for one in facts)
    for one in facts:
        say(
            f"{one.run}: {', '.join(one.solvers)} on {', '.join(one.datasets)}, {counted(one.records, 'record')}"
        )
    which = "this run" if len(facts) == 1 else f"these {len(facts)} runs"
    if not yes and not _confirmed(f"Remove {which} with {counted(records, 'record')}?"):
        say("nothing was removed")
        return
    folders.remove(chosen)
    if json:
        print_json({"removed": [one.run for one in facts], "records": records})
    else:
        say(f"{counted(len(facts), 'run')} with {counted(records, 'record')} removed")


@group.command(short_help="Copy the runs of other folders here.")
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Folders of runs, single runs, or archives.")],
    results: ResultsFolder = DEFAULT_RESULTS,
    json: Json = False,
) -> None:
    """Copy the runs of other folders into --results; nothing is lost, nothing is there twice.

    A run that is there already stays, or is replaced by the longer copy of itself. What two runs both computed stays in
    both; tables count the later.
    """
    from dataclasses import asdict

    from nco_bench.cli.output import print_json, say
    from nco_bench.runs.merging import merge

    done = merge(sources, results)
    if json:
        print_json(asdict(done))
        return
    longer = f", {len(done.extended)} longer than here before" if done.extended else ""
    say(f"{results}: {_runs(len(done.added))} arrived{longer}, {len(done.present)} were there already")


@group.command(short_help="Write runs, solutions included, to one file that travels.")
def pack(
    out: Annotated[Path, typer.Option("--out", help="The archive, a file that ends in .parquet.")],
    runs: Annotated[
        list[str] | None, typer.Argument(help="Run ids, their beginnings, or patterns; default: all.")
    ] = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Pack from a checkout with changes, and mark the archive.")
    ] = False,
    solutions_up_to: Annotated[
        int | None,
        typer.Option(
            "--solutions-up-to",
            min=0,
            help="Of instances with more nodes keep the solution's hash alone; default: keep all.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write runs to one archive: a row per instance with all identities and the solution, and what stands once per run.

    Archives are read wherever folders of runs are: given as --results, or lying in such a folder. The folders stay.
    A cost without its solution cannot be scored again: 'verify' counts such records, and 'site add' refuses them.
    """
    from nco_bench.cli.output import print_json, say
    from nco_bench.runs import archives, environment, folders, packing

    chosen = folders.pick(results, runs or ())
    revision = environment.code_revision()
    packing.pack(chosen, out, revision, allow_dirty=allow_dirty, largest=solutions_up_to)
    facts = archives.facts_of_archive(out)
    if json:
        from dataclasses import asdict

        print_json(asdict(facts))
    else:
        size = out.stat().st_size / 1e6
        say(f"{out}: {_runs(facts.runs)} with {counted(facts.records, 'record')}, {size:.2f} MB")


@group.command(short_help="Make folders of the runs in archives.")
def unpack(
    sources: Annotated[list[Path], typer.Argument(metavar="ARCHIVE...", help="Archives of 'runs pack'.")],
    results: ResultsFolder = DEFAULT_RESULTS,
    json: Json = False,
) -> None:
    """Make folders of the runs in archives; a run that is there as a folder stays, or is replaced by a longer copy."""
    from dataclasses import asdict

    from nco_bench.cli.output import print_json, say
    from nco_bench.runs.merging import merge

    done = merge(sources, results, unpack=True)
    if json:
        print_json(asdict(done))
        return
    say(f"{results}: {_runs(len(done.added))} unpacked, {len(done.present)} were there already")


@group.command(short_help="Write records to a CSV or Parquet file.")
def export(
    out: Annotated[Path, typer.Option("--out", help="File that ends in .csv or .parquet.")],
    data: Data = None,
    solver: SolverNames = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> None:
    """Write records to a CSV or Parquet file, a row per instance and repeat, with their facts and the gap to the best
    reference known now.
    """
    from nco_bench import stored
    from nco_bench.cli.output import print_json, say
    from nco_bench.reports.frame import tidy

    tidy.check(out)
    records = stored.records(data=data or (), solver=solver or (), results=results, instances=instances)
    tidy.write(records, out)
    if json:
        print_json({"path": str(out), "rows": len(records), "columns": list(records.columns)})
    else:
        say(f"{counted(len(records), 'row')}, {counted(len(records.columns), 'column')} written to {out}")


def _in_short(facts: Any) -> dict[str, Any]:
    """What a terminal shows of a run."""
    failed = facts.records - facts.statuses.get("ok", 0)
    return {
        "run": facts.run,
        "solvers": ", ".join(facts.solvers),
        "datasets": ", ".join(facts.datasets),
        "seeds": ", ".join(map(str, facts.seeds)),
        "records": f"{facts.records:,}",
        "not ok": f"{failed:,}" if failed else "",
        "MB": f"{facts.megabytes:.2f}",
    }


def _confirmed(question: str) -> bool:
    """Ask on a terminal; elsewhere nobody answers, and --yes must have been said."""
    import sys

    from nco_bench.errors import BadInputError

    if not sys.stdin.isatty():
        raise BadInputError(
            f"{question} There is no terminal to ask; nothing was removed. Add --yes to remove."
        )
    return typer.confirm(question, err=True)


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    from nco_bench.cli import jobs

    group.command("status", short_help="Show SLURM jobs: how many, how far, how long.")(jobs.status)
    group.command("wait", short_help="Wait for SLURM jobs; submit again what dies.")(jobs.wait)
    app.add_typer(group, name="runs")


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
