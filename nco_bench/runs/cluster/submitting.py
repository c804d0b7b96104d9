"""Submitting runs, watching them, and submitting again what died."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nco_bench.errors import BadInputError
from nco_bench.nn.device import CUDA, kind
from nco_bench.runs.cluster import slurm
from nco_bench.runs.cluster.profile import Profile, read_profile
from nco_bench.runs.cluster.sizing import NOTHING, Sized, cut
from nco_bench.runs.cluster.state import (
    Submission,
    TaskState,
    create,
    jobs_of,
    locked,
    note_jobs,
    read,
    submissions,
    task_state,
    write_task,
)
from nco_bench.runs.cluster.task import Job as TaskJob
from nco_bench.runs.cluster.work import Call, Task, as_request
from nco_bench.runs.request import RunRequest

LAUNCH_FAILED = "JobLaunchFailure"
"""SLURM's reason where a node could not start a job, such as for a folder that it does not see."""

FREE_BYTES = 1 << 20
"""With less than this on its disk a results folder counts as full."""


@dataclass(frozen=True)
class Seen:
    """A task as it is now.

    Attributes
    ----------
    kind
        ``queued``, ``running``, ``done``, ``failed`` or ``lost``: SLURM knows its job no more, or ended it, and it did not
        finish.
    state, job, slurm
        What the task says, the SLURM job that has it, and what SLURM says of that.
    """

    kind: str
    state: TaskState
    job: str
    slurm: slurm.Job | None

    @property
    def lives(self) -> bool:
        """Whether it may still compute something."""
        return self.kind in ("queued", "running")


@dataclass(frozen=True)
class Order:
    """What a command wants to be computed.

    Attributes
    ----------
    results
        Folder of all runs, of the weights to train.
    command
        As it was given.
    profile, parallel
        What jobs ask for, and how many run at once.
    requests
        Runs, which store to `results`.
    calls
        Other work, and whether it wants the profile's GPUs.
    lenient
        Whether a run that cannot be is an answer, see `Sized`, and no error.
    """

    results: Path
    command: str
    profile: Profile
    parallel: int
    requests: tuple[RunRequest, ...] = ()
    calls: tuple[tuple[Call, bool], ...] = ()
    lenient: bool = False


@dataclass(frozen=True)
class Submitted:
    """What became of a command: its own submission, if anything was left to do, and others that have part of it in hand."""

    own: Path | None
    others: tuple[Path, ...]
    sized: Sized


def order_of(requests: Sequence[RunRequest]) -> Order:
    """Return the order of a run; the requests differ in nothing but their seed.

    Raises
    ------
    UnknownNameError, BadInputError
        For a profile that makes no sense.
    """
    first = requests[0]
    profile = read_profile(first.cluster, first.slurm)
    parallel = first.jobs if first.jobs > 1 else profile.parallel
    return Order(first.results, first.command, profile, parallel, tuple(requests))


def submit(order: Order, tell: Callable[[str], None], refuse: Callable[[], None] = lambda: None) -> Submitted:
    """Submit all that is neither stored nor in hand.

    Parameters
    ----------
    order
        What is wanted.
    tell
        Called with a line before an instance is solved for an estimate.
    refuse
        Called before anything is submitted that nobody has in hand; may raise.

    Raises
    ------
    MissingDependencyError, BadInputError
        Without SLURM, for more than there is, or in SLURM's own words.
    """
    slurm.require()
    profile = order.profile
    if not profile.gpus and any(kind(request.device) == CUDA for request in order.requests):
        profile = replace(profile, gpus=1)
    refuse_too_many(profile)
    requests = [as_request(request) for request in order.requests]
    results = order.results.resolve()
    with locked(results):
        queue = slurm.queue()
        open_ones = {folder: read(folder) for folder in submissions(results, only_open=True)}
        seen = {folder: look(one, queue) for folder, one in open_ones.items()}
        claims: dict[str, list[tuple[int, int]]] = {}
        holders: dict[str, set[Path]] = {}
        for folder, one in open_ones.items():
            for task, now in zip(one.tasks, seen[folder], strict=True):
                for claim, first, last in task.claims if now.lives else ():
                    claims.setdefault(claim, []).append((first, last))
                    holders.setdefault(claim, set()).add(folder)
        sized = NOTHING
        if requests:
            sized = cut(requests, profile, order.parallel, claims, tell, lenient=order.lenient)
        free = [Task(gpu=gpu, call=call) for call, gpu in order.calls if call.claim not in claims]
        held = [call.claim for call, _ in order.calls if call.claim in claims]
        sized = replace(sized, tasks=(*sized.tasks, *free), claims=(*sized.claims, *held))
        others = _holding(sized, holders)
        if not sized.tasks:
            return Submitted(None, others, sized)
        refuse()
        submission = create(results, order.command, profile, order.parallel, sized.tasks)
        wanted = {claim for task in sized.tasks for claim, _, _ in task.claims}
        _take_over(submission, wanted, open_ones, seen)
        send(submission, range(len(sized.tasks)))
    return Submitted(submission.folder, others, sized)


def send(submission: Submission, indices: Sequence[int]) -> None:
    """Submit jobs for tasks; the lock is held. It is noted before that it is done, so that a killed shell loses none."""
    kinds = sorted({(submission.tasks[index].gpu, submission.tasks[index].nodes) for index in indices})
    for gpu, nodes in kinds:
        alike = [(task.gpu, task.nodes) == (gpu, nodes) for task in submission.tasks]
        mine = [index for index in indices if alike[index]]
        name = f"nco-{submission.id}-{time.time_ns() // 1_000_000}"
        note_jobs(submission, {"name": name, "tasks": mine})
        work = [TaskJob(str(submission.folder), index) for index in mine]
        try:
            jobs = slurm.submit(
                submission.profile,
                submission.folder / "jobs",
                name,
                work,
                gpu=gpu,
                nodes=nodes,
                parallel=submission.parallel,
                directory=submission.directory,
            )
        except BadInputError as error:
            for index in indices:
                state = task_state(submission.folder, index)
                write_task(submission.folder, index, replace(state, state="failed", message=str(error)))
            (submission.folder / "over").touch()
            raise
        note_jobs(submission, {"name": name, "tasks": mine, "jobs": jobs})


def look(submission: Submission, queue: Mapping[str, slurm.Job]) -> list[Seen]:
    """Return what is known of every task."""
    jobs, unsure = jobs_of(submission)
    named = {job.name for job in queue.values() if job.state in slurm.ALIVE}
    out = []
    for index in range(len(submission.tasks)):
        state, job = task_state(submission.folder, index), jobs.get(index, "")
        known = queue.get(job)
        if state.state in ("done", "failed"):
            kind = state.state
        elif known is not None and known.state in slurm.ALIVE:
            kind = "queued" if known.state in slurm.WAITING else "running"
        elif not job and unsure & named:
            kind = "queued"  # submitted by a shell that was killed before it could note the jobs' ids
        else:
            again = task_state(submission.folder, index)  # it may have ended since it was read
            state, kind = again, again.state if again.state in ("done", "failed") else "lost"
        out.append(Seen(kind, state, job, known))
    return out


def mend(submission: Submission, tell: Callable[[str], None] = lambda _: None) -> list[Seen]:
    """Look at all tasks and submit again those whose jobs died, at most as often as the profile says.

    A job that was cancelled stays so: someone wanted it. The same command submits what it left.
    """
    with locked(submission.results):
        queue = _without_unsure(submission, slurm.queue())
        seen = look(submission, queue)
        again: list[int] = []
        _end_hopeless(submission, seen)
        for index, now in enumerate(seen):
            if now.kind == "lost" and _may_again(submission, index, now, tell):
                again.append(index)
        if again:
            send(submission, again)
        if again or any(now.kind in ("lost", "queued") for now in seen):
            seen = look(submission, slurm.queue())
        if not any(now.lives for now in seen) and all(now.kind in ("done", "failed") for now in seen):
            (submission.folder / "over").touch()
    return seen


def _may_again(submission: Submission, index: int, now: Seen, tell: Callable[[str], None]) -> bool:
    """Write down why a job is lost; return whether another is to be submitted."""
    state, ended = now.state, now.slurm.state if now.slurm else "GONE"
    launched = now.slurm is None or now.slurm.reason != LAUNCH_FAILED
    if (ended == "CANCELLED" and launched) or (ended == "GONE" and now.job and not state.started):
        return False
    log = slurm.log_tail(submission.folder / "jobs", now.job) if now.job else ""
    memory = ended == "OUT_OF_MEMORY" or slurm.OUT_OF_MEMORY.search(log.rpartition("submitit INFO")[2])
    where = f"job {now.job} on {now.slurm.node if now.slurm else state.host or 'a node'}"
    failed = ""
    if shutil.disk_usage(submission.results).free < FREE_BYTES:
        failed = f"{submission.results}: the disk is full; free some space and start the same command again"
    elif not state.started and now.slurm and (ended in ("FAILED", "COMPLETED") or not launched):
        last = log.strip().splitlines()[-1:] or [
            f"it left no word in {submission.folder}; does that node see the folder?"
        ]
        failed = f"{where} ended ({now.slurm.reason}) before it could begin: {last[0]}"
    elif state.deaths >= submission.profile.retries:
        failed = f"{where} died {state.deaths + 1} times, the last time by {ended}; see {submission.folder / 'jobs'}"
    if failed:
        write_task(submission.folder, index, replace(state, state="failed", message=failed))
        tell(failed)
        return False
    suspect = ended not in ("TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE", "BOOT_FAIL") and bool(now.job)
    died = "memory" if memory else ended
    if now.job:
        tell(f"{where} died ({'out of memory' if memory else ended}); submitted again, to go on where it was")
    found = bool(memory) and state.careful and state.trying is not None  # each such death leaves a record
    next_state = replace(
        state,
        state="waiting",
        deaths=state.deaths + (bool(now.job) and not found),
        careful=suspect,
        killed=died if memory else "",
        message=f"{where} was ended for the memory that it took" if memory else "",
    )
    write_task(submission.folder, index, next_state)
    return True


def _end_hopeless(submission: Submission, seen: Sequence[Seen]) -> None:
    """Cancel jobs that SLURM would keep in its queue for ever, and say why."""
    for index, now in enumerate(seen):
        if now.kind == "queued" and now.slurm is not None and now.slurm.reason in slurm.HOPELESS:
            slurm.cancel([now.job])
            profile = submission.profile
            asked = f"time {profile.time} min, partition {profile.partition or 'default'}"
            message = f"SLURM cannot start the job: {now.slurm.reason} ({asked})."
            write_task(submission.folder, index, replace(now.state, state="failed", message=message))


def _without_unsure(submission: Submission, queue: Mapping[str, slurm.Job]) -> Mapping[str, slurm.Job]:
    """Cancel jobs whose submitting shell was killed before it could note their ids: they are submitted anew.

    Returns the queue as it is then.
    """
    _, unsure = jobs_of(submission)
    orphans = [job.job for job in queue.values() if job.name in unsure and job.state in slurm.ALIVE]
    if orphans:
        slurm.cancel(orphans)
        for _ in range(120):
            queue = slurm.queue()
            if not any(j.job in orphans and j.state in slurm.ALIVE for j in queue.values()):
                break
            time.sleep(0.5)
    return queue


def _take_over(
    new: Submission, wanted: set[str], others: Mapping[Path, Submission], seen: Mapping[Path, list[Seen]]
) -> None:
    """Let dead tasks of other submissions be, of what the new one does."""
    for folder, one in others.items():
        for index, (task, now) in enumerate(zip(one.tasks, seen[folder], strict=True)):
            if now.kind == "lost" and any(claim in wanted for claim, _, _ in task.claims):
                state = replace(now.state, state="failed", message=f"left to {new.id}")
                write_task(folder, index, state)


def _holding(sized: Sized, holders: Mapping[str, set[Path]]) -> tuple[Path, ...]:
    held = [folder for claim in sized.claims for folder in holders.get(claim, ())]
    return tuple(sorted(set(held)))


def refuse_too_many(profile: Profile) -> None:
    """Refuse more GPUs per job than a node has, which SLURM may keep in its queue for ever.

    Raises
    ------
    BadInputError
        With how many there are.
    """
    most = slurm.gpus_per_node(profile.partition) if profile.gpus else None
    if most is not None and profile.gpus > most:
        where = f"partition {profile.partition}" if profile.partition else "this cluster"
        raise BadInputError(f"gpus is {profile.gpus}; the nodes of {where} have at most {most}.")
