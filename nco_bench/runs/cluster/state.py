"""Submissions on disk: what each job has to do, which SLURM job does it, and how far it is.

``RESULTS/slurm/ID`` holds ``submission.json`` (written once), ``jobs.jsonl`` (which SLURM jobs were submitted for which
tasks, each line after its intent), and ``task-K.json``, which only task K's job writes, with ``result-K.json`` of a call.
A task's file is made at full length before anything is submitted and is written in place: a job can say that the disk is
full when it is. Who submits holds a lock.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nco_bench.errors import BadInputError, ResultsError, UnknownNameError
from nco_bench.files import write
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.work import Task
from nco_bench.runs.records import SUBMISSIONS

TASK_BYTES = 2048
MESSAGE_MOST = 900


@dataclass(frozen=True)
class Submission:
    """Tasks that were submitted together.

    Attributes
    ----------
    directory
        Where the command was given: names of files are relative to it.
    """

    folder: Path
    command: str
    created: float
    profile: Profile
    parallel: int
    tasks: tuple[Task, ...]
    directory: str = ""

    @property
    def id(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def results(self) -> Path:
        """Folder of all runs."""
        return self.folder.parent.parent


@dataclass(frozen=True)
class TaskState:
    """What a task's job says of itself.

    Attributes
    ----------
    state
        ``waiting``, ``running``, ``done`` or ``failed``.
    deaths
        How often its job was ended by its time limit, for memory, or with its node.
    careful
        Whether instances are solved one by one, since the job before died of one that is not known.
    trying
        Share and instance that a careful job has in hand.
    solved, stored, failed
        Solutions found, found stored, and found to be failures.
    killed
        ``memory`` where the job before was ended for the memory that it took.
    """

    state: str = "waiting"
    deaths: int = 0
    careful: bool = False
    trying: tuple[int, int] | None = None
    solved: int = 0
    stored: int = 0
    failed: int = 0
    started: float = 0.0
    seen: float = 0.0
    job: str = ""
    host: str = ""
    killed: str = ""
    message: str = ""


def root_of(results: Path) -> Path:
    """Return the folder of a results folder's submissions."""
    return results / SUBMISSIONS


@contextmanager
def locked(results: Path) -> Iterator[None]:
    """Keep others from submitting; the lock of a process that was killed is free."""
    root = root_of(results)
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ResultsError(
            f"{root}: cannot be written ({error.strerror}); choose another folder with --results."
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def create(
    results: Path, command: str, profile: Profile, parallel: int, tasks: tuple[Task, ...]
) -> Submission:
    """Write a new submission; nothing is submitted yet."""
    now = datetime.now(UTC)
    folder = root_of(results) / f"{now:%m%d-%H%M%S}-{secrets.token_hex(2)}"
    submission = Submission(folder, command, time.time(), profile, parallel, tasks, os.getcwd())
    try:
        folder.mkdir(parents=True)
        for index in range(len(tasks)):
            (folder / f"task-{index}.json").write_bytes(_padded(TaskState()))
    except OSError as error:
        raise ResultsError(f"{folder}: cannot be written ({error.strerror}).") from error
    document = {
        "command": command, "created": submission.created, "profile": asdict(profile), "parallel": parallel,
        "directory": submission.directory,
        "tasks": [task.as_document() for task in tasks],
    }  # fmt: skip
    write(folder / "submission.json", orjson.dumps(document, default=str))
    return submission


def read(folder: Path) -> Submission:
    """Read what was submitted; raises `ResultsError` for a folder of another version, or a damaged one."""
    try:
        document = orjson.loads((folder / "submission.json").read_bytes())
        profile = document["profile"]
        tasks = tuple(Task.from_document(task) for task in document["tasks"])
        return Submission(
            folder, document["command"], document["created"], Profile(**{**profile, "setup": tuple(profile["setup"])}),
            document["parallel"], tasks, document["directory"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{folder}: no submission of this version ({error}).") from error


def submissions(results: Path, *, only_open: bool = False) -> list[Path]:
    """Return the folders of submissions, the latest last; without those of which all is over if `only_open`."""
    found = sorted(path.parent for path in root_of(results).glob("*/submission.json"))
    return [one for one in found if not (only_open and (one / "over").exists())]


def pick(results: Path, names: tuple[str, ...]) -> list[Path]:
    """Return submissions by id or its beginning; none means all that are not over, or else the latest.

    Raises
    ------
    UnknownNameError
        For a name that fits none.
    ResultsError
        Where the results folder is absent: whoever waits for its jobs would take them for done.
    """
    known = submissions(results)
    if not known and not results.exists():
        raise ResultsError(
            f"{results}: no such folder, so no submissions; 'nco-bench run --executor slurm' makes them."
        )
    if not names:
        return submissions(results, only_open=True) or known[-1:]
    chosen = []
    for name in names:
        fitting = [one for one in known if one.name.startswith(name)]
        if not fitting:
            raise UnknownNameError(
                "submission", name, [one.name for one in known], "See 'nco-bench runs status'."
            )
        if len(fitting) > 1:
            raise BadInputError(f"{name!r} is the beginning of {len(fitting)} submissions; add letters.")
        chosen += fitting
    return chosen


def task_state(folder: Path, index: int) -> TaskState:
    """Read what a task's job says; a file that is being written is read again."""
    path = folder / f"task-{index}.json"
    for _ in range(20):
        try:
            found = orjson.loads(path.read_bytes().rstrip())
            found["trying"] = tuple(found["trying"]) if found["trying"] else None
            return TaskState(**found)
        except orjson.JSONDecodeError:
            time.sleep(0.05)
        except (OSError, TypeError) as error:
            raise ResultsError(f"{path}: cannot be read ({error}).") from error
    raise ResultsError(f"{path}: damaged; remove the submission's folder.")


def write_task(folder: Path, index: int, state: TaskState) -> None:
    """Write a task's file in place, which needs no space."""
    with (folder / f"task-{index}.json").open("r+b", buffering=0) as file:
        file.write(_padded(state))
        os.fsync(file.fileno())


def result_of(folder: Path, index: int) -> dict[str, Any] | None:
    """Return what a task's call came to, None before it did."""
    try:
        return dict(orjson.loads((folder / f"result-{index}.json").read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ResultsError(f"{folder}: the result of task {index} cannot be read ({error}).") from error


def note_jobs(submission: Submission, line: dict[str, Any]) -> None:
    """Append a line on what is being, or was, submitted."""
    handle = os.open(submission.folder / "jobs.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        os.fsync(handle)
    except OSError as error:
        raise ResultsError(f"{submission.folder}: cannot be written ({error.strerror}).") from error
    finally:
        os.close(handle)


def jobs_of(submission: Submission) -> tuple[dict[int, str], set[str]]:
    """Return the latest job of each task, and names of jobs of which it is not known whether they were submitted."""
    latest: dict[int, str] = {}
    unsure: set[str] = set()
    try:
        lines = (submission.folder / "jobs.jsonl").read_bytes().splitlines()
    except FileNotFoundError:
        return latest, unsure
    for line in lines:
        try:
            told = orjson.loads(line)
        except orjson.JSONDecodeError:  # torn: its writer was killed, and its intent stands above
            continue
        if "jobs" in told:
            latest |= dict(zip(told["tasks"], told["jobs"], strict=True))
            unsure.discard(told["name"])
        else:
            for index in told["tasks"]:
                latest.pop(index, None)
            unsure.add(told["name"])
    return latest, unsure


def _padded(state: TaskState) -> bytes:
    short = replace(state, message=state.message[:MESSAGE_MOST])
    text = orjson.dumps(short)
    if len(text) > TASK_BYTES:  # a message of letters that need several bytes
        text = orjson.dumps(replace(short, message=short.message[: MESSAGE_MOST // 4]))
    return text.ljust(TASK_BYTES)
