"""``run --executor slurm``: submit, and, where the shell stays, watch and collect."""

from __future__ import annotations

from collections.abc import Sequence

from nco_bench.errors import BadInputError
from nco_bench.runs.cluster.status import troubles, wait
from nco_bench.runs.cluster.submitting import Submitted, submit
from nco_bench.runs.finding import find_runs
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import Display, RunOutcome


def on_slurm(requests: Sequence[RunRequest], display: Display) -> RunOutcome:
    """Run requests, which differ in nothing but their seed, as SLURM jobs.

    Raises
    ------
    MissingDependencyError, BadInputError
        Without SLURM, or where it refuses the jobs or they could not begin.
    """
    results = requests[0].results
    before = {run.run_id for run in find_runs(results)}
    done = submit(requests, display.message)
    for line in done.sized.skipped:
        display.message(f"skipped {line}")
    _announce(done, display)
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
    for run in find_runs(results):
        if run.run_id not in before and run.info.get("command") == requests[0].command:
            outcome.run_ids.append(run.run_id)
            known = {(c.config_sha256, c.seed) for c in outcome.cells}
            outcome.cells += [c for c in run.cells() if (c.config_sha256, c.seed) not in known]
    return outcome


def _announce(done: Submitted, display: Display) -> None:
    sized = done.sized
    for folder in done.others:
        display.message(f"jobs of {folder.name} have {sized.claimed:,} solutions of this in hand")
    if done.own is None:
        if not done.others:
            display.message(f"all {sized.stored:,} solutions are stored; nothing was submitted")
        return
    solves = sum(share.solves for task in sized.tasks for share in task.shares)
    expected = [share.seconds for task in sized.tasks for share in task.shares]
    known = [one for one in expected if one is not None]
    time = f", about {sum(known):.3g} s of computing" if len(known) == len(expected) else ""
    display.message(
        f"submitted {done.own.name}: {len(sized.tasks):,} jobs for {solves:,} solutions{time}; {sized.stored:,} are stored"
    )
    display.message(f"nco-bench runs status {done.own.name} --results {done.own.parent.parent} shows them")
