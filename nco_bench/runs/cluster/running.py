"""``run --executor slurm``: submit, and, where the shell stays, watch and collect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nco_bench.errors import BadInputError, counted
from nco_bench.runs.cluster.status import troubles, wait
from nco_bench.runs.cluster.submitting import Submitted, order_of, submit
from nco_bench.runs.display import Display
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import RunOutcome

CALLS_SHOWN = 3


def on_slurm(requests: Sequence[RunRequest], display: Display) -> RunOutcome:
    """Run requests, which differ in nothing but their seed, as SLURM jobs.

    Raises
    ------
    MissingDependencyError, BadInputError
        Without SLURM, or where it refuses the jobs or they could not begin.
    """
    results = requests[0].results
    before = {run.run_id for run in find_runs(results)}
    done = submit(order_of(requests), display.message)
    for line in done.sized.skipped:
        display.message(f"skipped {line}")
    announce(done, display.message)
    folders = [one for one in (done.own, *done.others) if one is not None]
    outcome = RunOutcome(skipped=list(done.sized.skipped), cells=list(done.sized.cells))
    outcome.submissions = [folder.name for folder in folders]
    if requests[0].detach or not folders:
        return outcome
    try:
        ended = wait(folders, display.message)
    except KeyboardInterrupt:
        display.message(f"the jobs go on; nco-bench runs wait --results {results} waits for them")
        raise
    lines = [line for one in ended for line in troubles(one)]
    for line in lines:
        display.message(line)
    if lines and all("could begin" in line or "cannot start" in line for line in lines):
        raise BadInputError(lines[0])
    outcome.failed = sum(one.failures for one in ended) + len(lines)
    stored = find_runs(results)
    if lines and not stored:  # no job came so far as to write anything: there is nothing to tabulate
        raise BadInputError(lines[0])
    for run in stored:
        if run.run_id not in before and run.info.get("command") == requests[0].command:
            outcome.run_ids.append(run.run_id)
            known = {(c.config_sha256, c.seed) for c in outcome.cells}
            outcome.cells += [c for c in run.cells() if (c.config_sha256, c.seed) not in known]
    return outcome


def announce(done: Submitted, tell: Callable[[str], None]) -> None:
    """Say what was submitted, and what others have in hand."""
    sized = done.sized
    what = f"{sized.claimed:,} solutions of this" if sized.claimed else "this"
    for folder in done.others:
        tell(f"jobs of {folder.name} have {what} in hand")
    if done.own is None:
        if not done.others:
            what = f"all {sized.stored:,} solutions are" if sized.stored else "all is"
            tell(f"{what} stored; nothing was submitted")
        return
    solves = sum(task.total for task in sized.tasks if task.call is None)
    calls = [task.title for task in sized.tasks if task.call is not None]
    parts = [counted(solves, "solution")] * (solves > 0) + calls[:CALLS_SHOWN]
    parts += [f"{len(calls) - CALLS_SHOWN} more"] * (len(calls) > CALLS_SHOWN)
    expected = [share.seconds for task in sized.tasks for share in task.shares]
    known = [one for one in expected if one is not None]
    time = f", about {sum(known):.3g} s of computing" if known and len(known) == len(expected) else ""
    stored = f"; {sized.stored:,} are stored" if solves else ""
    tell(
        f"submitted {done.own.name}: {counted(len(sized.tasks), 'job')} for {', '.join(parts)}{time}{stored}"
    )
    tell(f"nco-bench runs status {done.own.name} --results {done.own.parent.parent} shows them")
