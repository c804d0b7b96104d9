"""``nco-bench verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from nco_bench.cli.options import DEFAULT_INSTANCES, DEFAULT_RESULTS, Instances, Json, Results
from nco_bench.errors import counted


def verify(
    runs: Annotated[list[str] | None, typer.Argument(help="Run ids; default: all.")] = None,
    results: Results = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
    json: Json = False,
) -> int:
    """Score stored solutions again and check every hash; status 1 if something does not hold."""
    from nco_bench import stored
    from nco_bench.cli.output import print_json, say

    checked = stored.verify(runs or (), results=results, instances=instances)
    if json:
        findings = [{"run": f.run, "place": f.place, "problem": f.problem} for f in checked.findings]
        counts = {
            "runs": checked.runs,
            "records": checked.records,
            "unscored": sum(checked.unscored.values()),
        }
        print_json({**counts, "ok": not findings, "findings": findings})
    else:
        for finding in checked.findings:
            typer.echo(str(finding))
        seen = f"{counted(checked.runs, 'run')}, {counted(checked.records, 'record')} checked"
        say(f"{seen}, {counted(len(checked.findings), 'finding')}")
        if checked.unscored:
            say(
                f"of {counted(sum(checked.unscored.values()), 'record')} the hash of the solution alone is kept, so the "
                "cost was not scored again; 'nco-bench run' on the same instances gives the solutions."
            )
    return 1 if checked.findings else 0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Score stored solutions again and check every hash.")(verify)
