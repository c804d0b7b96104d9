"""``reproduce --executor slurm``: what tables need is one submission, and the tables are made of what its jobs stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nco_bench import __version__
from nco_bench.errors import NcoBenchError
from nco_bench.papers.entries import Reproduction
from nco_bench.papers.judging import Verdict
from nco_bench.papers.kept import RUNS_NETWORKS, as_document, from_document
from nco_bench.papers.preset import Preset, load_preset
from nco_bench.papers.published import PublishedTable, load_table
from nco_bench.papers.reproducing import plan, reproduce
from nco_bench.papers.running import Computed, Job, Outcome, Runner, compute_numbers, refused, solver_missing
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.running import announce
from nco_bench.runs.cluster.state import read, result_of, submissions
from nco_bench.runs.cluster.status import troubles, wait
from nco_bench.runs.cluster.submitting import Order, submit
from nco_bench.runs.cluster.task import Caller
from nco_bench.runs.cluster.work import Call
from nco_bench.runs.records import Cell, record_key
from nco_bench.runs.request import RunRequest, load_datasets
from nco_bench.runs.store import done as stored_before

FUNCTION = "nco_bench.papers.on_slurm:compute_in_job"
NOT_YET = "its SLURM job has not finished"


def reproduce_on_slurm(
    tables: Sequence[PublishedTable], scale: str, runner: Runner, profile: Profile, *, detach: bool
) -> list[Reproduction] | None:
    """Submit all that tables need and nobody stored or has in hand, wait, and make the tables.

    Parameters
    ----------
    tables, scale
        As `reproduce` takes them.
    runner
        Where results and instances are, and who is told; it runs nothing, and learns of failures.
    profile
        What jobs ask for.
    detach
        Return None once the jobs are submitted; the same command makes the tables later.

    Raises
    ------
    NcoBenchError
        As `reproduce` does, without SLURM, and in SLURM's own words.
    """
    collector = _Collector(runner.results, runner.places, runner.display, runner.limit, runner.command)
    plan(tables, scale, collector)
    results = runner.results.resolve()
    calls = {claim: call for claim, call in collector.calls.items() if _stored(runner, claim) is None}
    order = Order(
        results, runner.command, profile, profile.parallel, tuple(collector.requests.values()),
        tuple((call, profile.gpus > 0) for call in calls.values()), lenient=True,
    )  # fmt: skip
    sent = submit(order, runner.display.message)
    announce(sent, runner.display.message)
    if detach:
        return None
    folders = [one for one in (sent.own, *sent.others) if one is not None]
    for one in wait(folders, runner.display.message) if folders else ():
        lines = troubles(one)
        runner.failed += one.failures + len(lines)
        for line in lines:
            runner.display.message(line)
    answers = dict(zip(collector.requests, sent.sized.answers, strict=True))
    collected = _Collected(
        runner.results, runner.places, runner.display, runner.limit, runner.command, answers=answers
    )
    return reproduce(tables, scale, collected)


def compute_in_job(arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """Compute the numbers of a table that come from networks themselves; a function for jobs."""
    table = load_table(arguments["paper"], arguments["table"])
    preset = load_preset(table.paper, table.number)
    return as_document(compute_numbers(arguments["function"], preset, table, arguments["scale"]))


@dataclass
class _Collector(Runner):
    """Takes note of what is asked for, and runs nothing."""

    requests: dict[Job, RunRequest] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)

    def _run(self, job: Job, source: str) -> Outcome:
        missing = solver_missing(job.solver)
        if missing:
            return Outcome(status="not run", reason=missing)
        self.requests[job] = self.request(job, source)
        return Outcome(
            cell=Cell.__new__(Cell)
        )  # nobody reads it: with one, a cell's reference is asked for too

    def compute(self, target: str, preset: Preset, table: PublishedTable, scale: str) -> Computed | Verdict:
        if target.startswith(RUNS_NETWORKS):
            call = _call(target, table, scale)
            self.calls[call.claim] = call
        return {}


@dataclass
class _Collected(Runner):
    """Answers from what is stored, and runs nothing.

    Attributes
    ----------
    answers
        Of the submission: the cells of a job, or why it cannot run.
    """

    answers: dict[Job, tuple[Cell, ...] | NcoBenchError] = field(default_factory=dict)

    def _run(self, job: Job, source: str) -> Outcome:
        missing = solver_missing(job.solver)
        if missing:
            return Outcome(status="not run", reason=missing)
        answer = self.answers[job]
        if isinstance(answer, NcoBenchError):
            return refused(answer)
        request = self.request(job, source)
        stored = stored_before(self.results, answer[0].config_sha256, job.seed, load_datasets(request)[0])
        have = sum(repeat < job.repeats for repeat, _ in stored)
        if have < job.count * job.repeats:
            return Outcome(
                status="not run", reason=f"{NOT_YET}: {have} of {job.count * job.repeats} are stored"
            )
        return Outcome(cell=answer[0])

    def compute(self, target: str, preset: Preset, table: PublishedTable, scale: str) -> Computed | Verdict:
        if not target.startswith(RUNS_NETWORKS):
            return super().compute(target, preset, table, scale)
        found = _stored(self, _call(target, table, scale).claim)
        return Verdict("not run", NOT_YET) if found is None else from_document(found)


def _call(target: str, table: PublishedTable, scale: str) -> Call:
    arguments = {"function": target, "paper": table.paper, "table": table.number, "scale": scale}
    claim = record_key({**arguments, "version": __version__})
    return Call(FUNCTION, arguments, claim, f"{table.paper} table {table.number}")


def _stored(runner: Runner, claim: str) -> dict[str, Any] | None:
    """Return the latest result of a call among a results folder's submissions; missing weights may be there by now."""
    for folder in reversed(submissions(runner.results.resolve())):
        for index, task in enumerate(read(folder).tasks):
            if task.call is not None and task.call.claim == claim:
                found = result_of(folder, index)
                if found is not None and ("cells" in found or isinstance(runner, _Collected)):
                    return found
    return None
