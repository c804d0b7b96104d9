"""``nco-bench reproduce --status`` and ``--fill``: what stored records answer, and spending a budget on the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from nco_bench.errors import counted
from nco_bench.papers.published import PublishedTable

if TYPE_CHECKING:
    from nco_bench.papers.filling import Filled


def standing(
    tables: Sequence[PublishedTable],
    budget: str | None,
    fill: bool,
    json: bool,
    results: Path,
    instances: Path,
    solvers: tuple[Sequence[str], Sequence[str]],
    limit: int | None = None,
    time_limit: float | None = None,
    least: int = 0,
) -> int:
    """Print how tables stand by stored records, or answer open cells within a budget.

    `solvers` are those whose numbers are kept, all if there are none, and those whose numbers are left out;
    `limit` is how many instances a run solves at most, `time_limit` ends longer searches, in seconds an instance;
    numbers of fewer than `least` instances count as open.
    """
    from nco_bench.cli.output import print_json
    from nco_bench.datasets.load import Places
    from nco_bench.errors import BadInputError
    from nco_bench.papers.choosing import at_most, document, of_solvers, within
    from nco_bench.papers.standing import standings
    from nco_bench.papers.stored import stored_in

    seconds = _to_spend(budget) if fill else 0.0  # before the stored records are read
    if fill and results.is_file():
        raise BadInputError(
            f"{results}: an archive is never added to; name its folder with --results, and --fill puts its runs there."
        )
    places = Places.from_environment(instances)
    stored = stored_in(folders_of(results), places.instances)
    found = of_solvers(standings(tables, stored, least=least), *solvers)
    if limit is not None:
        found = at_most(found, limit)
    if time_limit is not None:
        found = within(found, time_limit, stored)
    if fill:
        known = tuple(folder for folder in folders_of(results) if folder != results)
        return _fill(found, seconds, results, known, places, json)
    if json:
        print_json(document(found))
        return 0
    _show(document(found))
    return 0


def folders_of(results: Path) -> list[Path]:
    """Return the folder of all runs; where none was named, every folder beside it."""
    from nco_bench.cli.options import DEFAULT_RESULTS

    if results != DEFAULT_RESULTS or not results.parent.is_dir():
        return [results]
    return [results, *sorted(f for f in results.parent.iterdir() if f.is_dir() and f != results)]


def _show(counted: dict[str, list[dict[str, object]]]) -> None:
    from nco_bench.cli.output import say
    from nco_bench.cli.tables import print_objects
    from nco_bench.papers.costs import RULE
    from nco_bench.runs.planning import duration

    rows: dict[tuple[object, object], dict[str, object]] = {}
    statuses = list(dict.fromkeys(one["status"] for one in counted["counts"]))
    for one in counted["counts"]:
        key = (one["paper"], one["table"])
        row = rows.setdefault(
            key, {"paper": key[0], "table": key[1], **dict.fromkeys(map(str, statuses), "")}
        )
        row[str(one["status"])] = one["cells"]
    print_objects(list(rows.values()))
    cheapest = counted["open"][:SHOWN]
    print_objects(
        [
            {
                "open": f"{one['paper']} {one['table']}: {one['row']}, {one['column']}", "status": one["status"],
                "needs": one["needs"], "time": duration(one["seconds"]),  # type: ignore[arg-type]
                "from": one["basis"],
            }
            for one in cheapest
        ]
    )  # fmt: skip
    say(f"{len(counted['open'])} open, the {len(cheapest)} cheapest shown; --json lists all. Times: {RULE}.")


SHOWN = 20


def _to_spend(budget: str | None) -> float:
    """Return a budget in seconds."""
    from nco_bench.cli.options import parse_duration
    from nco_bench.errors import BadInputError

    seconds = parse_duration(budget)
    if seconds is None:
        raise BadInputError("--fill needs a budget, for example 'nco-bench reproduce --fill --budget 2h'.")
    return seconds


def _fill(
    found: object, seconds: float, results: Path, known: tuple[Path, ...], places: object, json: bool
) -> int:
    from nco_bench.cli.output import print_json, say
    from nco_bench.papers.filling import fill
    from nco_bench.papers.running import Runner
    from nco_bench.runs.display import QuietDisplay
    from nco_bench.runs.environment import command_line

    runner = Runner(results, places, QuietDisplay(), None, command_line(), known=known)  # type: ignore[arg-type]
    done = fill(found, runner, seconds, say)  # type: ignore[arg-type]
    if json:
        print_json(asdict(done))
    cut = "; the last run was cut short, and goes on at the next start" if done.stopped else ""
    why = "" if done.stopped else _why_left(done)
    say(
        f"{counted(done.answered, 'cell')} answered in {done.seconds:.0f} s, {done.left} left that can run here{cut}{why}"
    )
    return 1 if runner.failed else 0


def _why_left(done: Filled) -> str:
    """Say what a budget would have to be for more, and which cells no budget buys."""
    from nco_bench.runs.planning import duration

    why = ""
    if done.cheapest is not None:
        why += f"; the cheapest takes about {duration(done.cheapest)}"
    if done.unknown:
        why += f"; {done.unknown} without an estimate, as nothing near is stored: --table N without --fill runs them"
    return why
