"""What runs in a job: its task's shares, one after the other, going on where the job before was ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import NcoBenchError
from nco_bench.files import write
from nco_bench.problems import problem as problem_module
from nco_bench.runs.cluster.state import TaskState, read, result_of, task_state, write_task
from nco_bench.runs.cluster.work import Call, Share
from nco_bench.runs.display import NO_GAPS, Gaps, Titled, Working
from nco_bench.runs.environment import Capture
from nco_bench.runs.judge import Place, judge
from nco_bench.runs.ready import usable
from nco_bench.runs.records import Cell, record_keys
from nco_bench.runs.request import RunRequest, describe, load_datasets, plan_cells, seed_of
from nco_bench.runs.runner import run
from nco_bench.runs.store import RunWriter
from nco_bench.runs.store import done as stored_before
from nco_bench.solvers.protocol import Begins, Failure

TELL_SECONDS = 1.0
RESERVE_SECONDS = 5
"""Of the time between SLURM's warning and the end, for being queued again."""
CAREFUL_MOST = 64
"""Instances that are solved one by one after a death that may be one's fault; it was among the first that were left."""


class Job:
    """A task as submitit takes it: to be called, and asked by SLURM's signal for what is to be called next.

    Parameters
    ----------
    folder, index
        The submission's folder and the task's number in it; all else is read where it runs.
    """

    def __init__(self, folder: str, index: int) -> None:
        self.folder, self.index = folder, index
        self._began = 0.0
        self._caller: Caller | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "index": self.index, "_began": 0.0, "_caller": None}

    def __call__(self) -> str:
        """Run the task and say on disk what becomes of it."""
        self._began = time.time()
        folder = Path(self.folder)
        submission = read(folder)
        teller = _Teller(folder, self.index)
        teller.tell(
            state="running", started=self._began, job=_job_name(), host=socket.gethostname(), message=""
        )
        task = submission.tasks[self.index]
        try:
            for number, share in enumerate(task.shares):
                _run_share(share, number, teller)
            if task.call is not None:
                self._call(task.call, teller)
        except NcoBenchError as error:
            teller.tell(state="failed", message=str(error))
            raise
        except Exception as error:
            teller.tell(state="failed", message=f"{type(error).__name__}: {error}")
            raise
        teller.tell(state="done", trying=None)
        return teller.state.state

    def _call(self, call: Call, teller: _Teller) -> None:
        """Call a function, unless its result is there, and store the result."""
        folder = Path(self.folder)
        if result_of(folder, self.index) is not None:
            return
        self._caller = Caller(folder, self.index, teller.tell)
        before = signal.signal(signal.SIGTERM, self._warned)
        try:
            found = function_of(call)(call.arguments, self._caller)
        finally:
            signal.signal(signal.SIGTERM, before)
        if found is None:  # on every node but the first, and where it was warned
            raise SystemExit(1 if self._caller.warned else 0)
        write(folder / f"result-{self.index}.json", orjson.dumps(found))

    def _warned(self, number: int, frame: object) -> None:
        assert self._caller is not None
        self._caller.warn()

    def checkpoint(self) -> Any:
        """Take SLURM's warning: the job is about to reach its time limit, or makes room for another.

        What is solved is stored already. Where it may not go on this ends here, and not by an exception that a solver's
        handling of failures would take for its own.
        """
        from submitit.helpers import DelayedSubmission

        folder = Path(self.folder)
        submission = read(folder)
        if self._caller is not None:
            self._caller.warn()
            self._caller.wait(submission.profile.warning - RESERVE_SECONDS)
        state = task_state(folder, self.index)
        margin = submission.profile.warning + 120
        timed_out = time.time() - self._began >= 60 * submission.profile.time - margin
        deaths = state.deaths + timed_out
        if deaths > submission.profile.retries:
            said = f"reached its time limit {deaths} times; raise time or retries, or start the same command again"
            write_task(folder, self.index, replace(state, state="failed", deaths=deaths, message=said))
            raise SystemExit(1)
        if shutil.which("scontrol") is None:  # in a container: who watches submits it anew
            raise SystemExit(1)
        write_task(folder, self.index, replace(state, state="waiting", deaths=deaths))
        return DelayedSubmission(self)


class Caller:
    """What a called function knows of its job: where it may write, who is told how far it is, and SLURM's warning.

    Attributes
    ----------
    folder, index
        The submission's folder and the task's number in it.
    tell
        Takes fields of `TaskState`, such as ``solved=7``.
    stop
        File that appears when the job is warned: what is computed is to be saved, and the function to return None.
    """

    def __init__(self, folder: Path, index: int, tell: Callable[..., None]) -> None:
        self.folder, self.index, self.tell = folder, index, tell
        self.stop = folder / f"stop-{index}"
        self.stop.unlink(missing_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def warned(self) -> bool:
        """Whether the job is about to end."""
        return self.stop.exists()

    def warn(self) -> None:
        """Say that the job is about to end."""
        self.stop.touch()

    def wait(self, seconds: float) -> None:
        """Wait until the function's process has ended, for so long at most; the function takes its status."""
        deadline = time.monotonic() + seconds
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while self.process is not None and time.monotonic() < deadline:
                if os.waitid(os.P_PID, self.process.pid, ended) is not None:
                    return
                time.sleep(0.1)


def function_of(call: Call) -> Callable[[dict[str, Any], Caller], dict[str, Any] | None]:
    """Import the function of a call."""
    module, _, name = call.function.partition(":")
    found: Callable[[dict[str, Any], Caller], dict[str, Any] | None] = getattr(import_module(module), name)
    return found


class _Teller:
    """Keeps the task's file current; also the runner's display."""

    def __init__(self, folder: Path, index: int) -> None:
        self._folder, self._index = folder, index
        self.state: TaskState = task_state(folder, index)
        self._told = 0.0
        self._careful: tuple[int, RunRequest, Dataset] | None = None
        self._pending: list[int] = []
        self.state = replace(self.state, solved=0, stored=0, failed=0)

    def tell(self, **changes: Any) -> None:
        self._told = time.monotonic()
        self.state = replace(self.state, seen=time.time(), **changes)
        if os.environ.get("SLURM_PROCID", "0") == "0":  # the job's first node speaks for all
            write_task(self._folder, self._index, self.state)

    def be_careful(self, number: int, request: RunRequest, dataset: Dataset) -> None:
        """Say before each instance of a share that it is tried; None of it is batched then."""
        self._careful = (number, request, dataset)

    def be_quick(self) -> None:
        self._careful = None
        self.tell(trying=None)

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        if self._careful is None:
            self.tell(stored=self.state.stored + done)
            return
        assert isinstance(cell, Cell)
        number, request, dataset = self._careful
        self._pending = _pending(cell, request, dataset)
        self._try_next(number)

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        if self._careful is not None:
            self._pending = self._pending[count:]
            self._try_next(self._careful[0])
            return
        first = not self.state.solved
        self.state = replace(self.state, solved=self.state.solved + count)
        if first or time.monotonic() - self._told > TELL_SECONDS:
            self.tell()

    def _try_next(self, number: int) -> None:
        self.tell(trying=(number, self._pending[0]) if self._pending else None)

    def within(self, title: str, working: Working) -> None:
        """Nobody asks how far a batch is."""

    def message(self, text: str) -> None:
        print(text, flush=True)  # SLURM keeps it in the job's log


def _run_share(share: Share, number: int, teller: _Teller) -> None:
    """Run a share; after a death that one of its instances may have caused, its next ones are first solved alone."""
    request = share.request
    if teller.state.careful:
        dataset = load_datasets(request)[0]
        if teller.state.killed == "memory" and teller.state.trying is not None:
            of, index = teller.state.trying
            if of == number:
                _record_out_of_memory(request, index, teller.state.message)
                teller.tell(killed="", trying=None, failed=teller.state.failed + 1)
        first = _first_left(request, dataset)
        if first is not None:
            last = min(share.last, first + min(CAREFUL_MOST, 2 * share.batch))
            alone = replace(request, limit=(first, last), batch_size=1)
            teller.be_careful(number, alone, load_datasets(alone)[0])
            careful = run(alone, teller)
            teller.be_quick()
            teller.tell(failed=teller.state.failed + careful.failed, careful=False, killed="")
    outcome = run(request, teller)
    teller.tell(failed=teller.state.failed + outcome.failed)


def _pending(cell: Cell, request: RunRequest, dataset: Dataset) -> list[int]:
    """Return the instances of a dataset's part that are not stored, in the order that the runner takes them."""
    stored = stored_before(request.results, cell.config_sha256, request.seed, dataset)
    first, last = dataset.first_index, dataset.first_index + len(dataset)
    return [i for repeat in range(request.repeats) for i in range(first, last) if (repeat, i) not in stored]


def _first_left(request: RunRequest, dataset: Dataset) -> int | None:
    return min(_pending(_cell_of(request, dataset), request, dataset), default=None)


def _cell_of(request: RunRequest, dataset: Dataset) -> Cell:
    """Return the facts of a share's cell."""
    plan, solver = usable(plan_cells(request, [dataset]), whole=False)[0][0]
    if isinstance(solver, Begins):
        solver.launch(dataset)
        solver.ready()
    else:
        solver.prepare(dataset)
    try:
        return describe(request, plan, solver, 0)
    finally:
        getattr(solver, "close", lambda: None)()


def _record_out_of_memory(request: RunRequest, index: int, message: str) -> None:
    """Store that an instance's job was killed for its memory: what a solver that survives says itself, batch size 1."""
    one = replace(request, limit=(index, index + 1))
    dataset = load_datasets(one)[0]
    cell = _cell_of(one, dataset)
    stored = stored_before(one.results, cell.config_sha256, one.seed, dataset)
    repeat = next((r for r in range(one.repeats) if (r, index) not in stored), None)
    if repeat is None:
        return
    key = record_keys(
        cell.config_sha256, dataset.instance_hashes, cell.seed, range(index, index + 1), repeat
    )[0]
    place = Place(key, 0, index, repeat, seed_of(one.seed, index, repeat), 0.0, dataset.instance_hashes[0])
    text = message or "its job was ended for the memory that it took"
    judged = judge(
        problem_module(dataset.problem),
        dataset.instances[0],
        dataset.references[0],
        Failure("oom", text),
        place,
    )
    with Capture() as environment:
        info = {"command": one.command, "seed": one.seed, "environment": environment.facts}
        with RunWriter(one.results, info) as writer:
            writer.cell(cell)
            writer.append([judged.record])


def _job_name() -> str:
    array, job = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_JOB_ID", "")
    return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}" if array else job
