"""How submissions are doing: jobs by state, how much is solved, how fast, and when it may be done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nco_bench.runs.cluster import slurm
from nco_bench.runs.cluster.state import Submission, read
from nco_bench.runs.cluster.submitting import Seen, look, mend
from nco_bench.runs.planning import duration

KINDS = ("queued", "running", "done", "failed", "lost")
LOOK_SECONDS, LOOK_MOST_SECONDS = 1.0, 15.0
"""Between looks: at first, and after some minutes, so that SLURM is not asked too often."""


@dataclass(frozen=True)
class Status:
    """One submission.

    Attributes
    ----------
    submission, command
        Its id, and what made it.
    jobs
        Number by kind.
    solves, solved, failures
        Solutions that its jobs have to find, that are stored, and of these the failures; of training, updates.
    rate
        Solutions or updates per second of the running jobs together, None where none has found any.
    seconds_left
        Expected; None where nobody knows.
    tasks
        A dict per job.
    """

    submission: str
    command: str
    jobs: dict[str, int]
    solves: int
    solved: int
    failures: int
    rate: float | None
    seconds_left: float | None
    tasks: tuple[dict[str, Any], ...]

    @property
    def lives(self) -> bool:
        """Whether a job may still compute something."""
        return bool(self.jobs["queued"] + self.jobs["running"])

    @property
    def ok(self) -> bool:
        """Whether all jobs are done."""
        return self.jobs["done"] == sum(self.jobs.values())

    def sentence(self) -> str:
        """Return it in a line."""
        jobs = ", ".join(f"{self.jobs[kind]} {kind}" for kind in KINDS if self.jobs[kind])
        rate = f", {self.rate:.3g}/s" if self.rate else ""
        left = "" if self.seconds_left is None else f", {duration(self.seconds_left)} left"
        return f"{self.submission}: jobs {jobs}; {self.solved:,}/{self.solves:,} solved{rate}{left}"


def status_of(folder: Path) -> Status:
    """Return how a submission is doing; nothing is changed.

    Raises
    ------
    MissingDependencyError, SlurmSilentError
        Where SLURM cannot be asked.
    """
    slurm.require()
    submission = read(folder)
    return summed(submission, look(submission, slurm.queue()))


def wait(
    folders: Sequence[Path], tell: Callable[[str], None], timeout: float | None = None, every: float = 10.0
) -> list[Status]:
    """Wait until no job of some submissions lives, submitting again what dies, and return how they ended.

    Parameters
    ----------
    folders
        Of the submissions.
    tell
        Called with a line on what happens, at most every `every` seconds on how far it is.
    timeout
        Seconds after which to return whatever is still running.
    """
    slurm.require()
    known = {folder: read(folder) for folder in folders}
    began, told, before = time.monotonic(), 0.0, ""
    while True:
        try:
            found = [summed(one, mend(one, tell)) for one in known.values()]
        except slurm.SlurmSilentError as error:  # it may answer later; the jobs do not need it to go on
            tell(str(error))
            time.sleep(LOOK_MOST_SECONDS)
            continue
        lines = "; ".join(one.sentence() for one in found)
        over = not any(one.lives for one in found)
        if lines != before and (over or time.monotonic() - told > every or not before):
            tell(lines)
            told, before = time.monotonic(), lines
        passed = time.monotonic() - began
        if over or (timeout is not None and passed > timeout):
            return found
        time.sleep(min(LOOK_MOST_SECONDS, LOOK_SECONDS + passed / 30))


def troubles(status: Status) -> list[str]:
    """Return a line for each job that failed or is lost, the same only once."""
    lines = [
        task["message"]
        or f"job {task['job']} is lost ({task['slurm']}); start the same command again to go on"
        for task in status.tasks
        if task["state"] in ("failed", "lost")
    ]
    return list(dict.fromkeys(lines))


def summed(submission: Submission, seen: Sequence[Seen]) -> Status:
    """Return how a submission is doing by what is known of its tasks."""
    now = time.time()
    counts = Counter(one.kind for one in seen)
    totals = [task.total for task in submission.tasks]
    found = [
        total if one.kind == "done" else min(total, one.state.solved + one.state.stored)
        for one, total in zip(seen, totals, strict=True)
    ]
    rates = {
        index: one.state.solved / max(1e-3, max(one.state.seen, now) - one.state.started)
        for index, one in enumerate(seen)
        if one.kind == "running" and one.state.solved
    }
    rate = sum(rates.values()) or None
    left = sum(total - have for one, total, have in zip(seen, totals, found, strict=True) if one.lives)
    return Status(
        submission=submission.id,
        command=submission.command,
        jobs={kind: counts[kind] for kind in KINDS},
        solves=sum(totals),
        solved=sum(found),
        failures=sum(one.state.failed for one in seen),
        rate=rate,
        seconds_left=left / rate if rate and left else None,
        tasks=tuple(
            _task(submission, index, one, totals[index], found[index]) for index, one in enumerate(seen)
        ),
    )


def _task(submission: Submission, index: int, seen: Seen, total: int, found: int) -> dict[str, Any]:
    known = seen.slurm
    return {
        "task": index,
        "job": seen.job,
        "state": seen.kind,
        "slurm": f"{known.state} {known.reason}".removesuffix(" None") if known else "not in the queue",
        "node": seen.state.host or (known.node if known else ""),
        "work": submission.tasks[index].title,
        "solved": f"{found:,}/{total:,}",
        "deaths": seen.state.deaths,
        "message": seen.state.message,
    }
