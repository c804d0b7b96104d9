"""Native code in a process of its own: a crash, a hang or nonsense costs one instance, never the run.

`ChildProcess` is the parent's side. It starts a child (see `start`: a fork where that is safe, else a fresh
interpreter) that imports one module with a function ``solve(instance, seed, time_limit, params)``, and sends it chunks
of instances, packed by `transport`. The child reports what is done every 50 ms and writes the index of the
instance in hand into a shared page, so that when it dies the parent knows which instance did it, without a message per
instance.

Nothing the child prints reaches our stdout; the end of it becomes the message of the failure. The child dies with its
parent: by ``PR_SET_PDEATHSIG`` on Linux, and everywhere by SIGIO on a pipe whose other end only the parent holds.
"""

from __future__ import annotations

import pickle
import struct
import subprocess
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal

from nco_bench.errors import SolverFailedError
from nco_bench.isolation.clock import Patience
from nco_bench.isolation.main import FLUSH_SECONDS, describe_exit, log_tail
from nco_bench.isolation.outcomes import Failure, Outcome, Progress
from nco_bench.isolation.start import Process, clean_up, kill_group, launched, temporary_folder
from nco_bench.isolation.transport import (
    framed,
    pack_instances,
    receive,
    send_rest,
    send_what_fits,
    unpack_outcomes,
)
from nco_bench.isolation.work import Ahead, Chunk, Limits, Steps, Work, next_chunk
from nco_bench.problems import Instance

START_SECONDS = 300.0


class _Died(Exception):
    """The child is gone or had to be killed."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(status, message)


class ChildProcess:
    """A persistent child process that solves instances one after the other.

    Parameters
    ----------
    target
        ``module:function``; the function takes ``(instance, seed, time_limit, params)`` and returns an integer array
        or a `Solved`. A function ``warm_up(params)`` of the same module is called once at the start.
    params
        Passed to the function; must be picklable.
    fresh
        Run every instance in a fork of the child, for native code that keeps state or leaks. Such a child is a fresh
        interpreter, which forks faster than a copy of this process would.
    start_by
        ``spawn`` never forks this process; ``auto`` does where that is safe.
    """

    def __init__(
        self,
        target: str,
        params: Mapping[str, Any],
        *,
        fresh: bool = False,
        start_by: Literal["auto", "spawn"] = "auto",
    ) -> None:
        self._start_message = (target, dict(params), fresh)
        self._forks = start_by == "auto" and not fresh
        self._process: Process | None = None
        self._unused = self._starting = True
        self._answered = 0.0
        self._current: Work | None = None
        self._ready: Work | None = None
        self._ahead: Ahead | None = None
        self._dismissed = False

    def launch(self) -> None:
        """Start the child without waiting for it, which `start` does; does nothing if it runs already.

        Raises
        ------
        SolverFailedError
            If the child cannot be made.
        """
        if self._process is not None and not self._dismissed:
            return
        self.close()
        self._starting = self._unused = True
        try:
            self._launch()
        except OSError as error:
            raise SolverFailedError(
                f"{self._start_message[0]} does not start: no child process or no folder for it in "
                f"{temporary_folder()} ({error.strerror or error}); TMPDIR names another folder."
            ) from error
        except _Died as died:
            self.close()
            raise self._does_not_start(died.failure.message) from None

    def start(self) -> None:
        """Start the child and wait until it has imported and warmed up; does nothing if it runs already.

        Raises
        ------
        SolverFailedError
            If the child cannot be made, cannot import its module or dies at the start.
        """
        self.launch()
        if not self._starting:
            return
        try:
            reply = self._receive(START_SECONDS)
        except _Died as died:
            reply = died.failure.message
        if reply is not None:
            self.close()
            raise self._does_not_start(reply)
        self._starting = False

    def _does_not_start(self, reason: str) -> SolverFailedError:
        return SolverFailedError(f"{self._start_message[0]} does not start: {reason}")

    def solve(
        self,
        batch: Sequence[Instance],
        *,
        seed: int,
        time_limit: float | None,
        kill_after: float | None,
        progress: Progress,
    ) -> list[Outcome]:
        """Solve a batch; one outcome per instance, whatever happens to the child. See `begin`."""
        work = Work(self._steps(batch, Limits(seed, time_limit, kill_after), progress))
        self._send_work(work)
        return self._wait_for(work)

    def begin(
        self,
        batch: Sequence[Instance],
        *,
        seed: int,
        time_limit: float | None,
        kill_after: float | None,
        progress: Progress,
    ) -> Callable[[], tuple[list[Outcome], float]]:
        """Send a batch to the child, or have it ready to be sent when the one before is done, and return at once.

        One batch may be ready while another is worked on. The results are to be called in the order of the batches.

        Parameters
        ----------
        batch
            Instances; number j gets the seed ``seed + j``.
        time_limit
            Passed to the native solver, in seconds per instance.
        kill_after
            Seconds after which an instance is killed and counted as timed out, not counting those that the child waited
            for a processor; None never kills.
        progress
            Called with the number of instances done, while the result waits.

        Returns
        -------
        Callable
            Waits for the child and returns one outcome per instance, whatever happened to the child, and the seconds from
            sending the batch to the child's last answer.
        """
        work = Work(self._steps(batch, Limits(seed, time_limit, kill_after), progress))
        work.advance()
        if self._current is None:
            self._send_work(work)
        else:
            self._ready = work
            self._send_ahead(work)
        return lambda: self._finish(work)

    def _finish(self, work: Work) -> tuple[list[Outcome], float]:
        if work is self._ready:  # it was not sent, because the one before went wrong
            self._ready = None
            self._send_work(work)
        outcomes = self._wait_for(work)
        ready, self._ready = self._ready, None
        if ready is not None:
            try:
                self._send_work(ready)
            except Exception as error:  # belongs to the one who waits for that batch
                ready.error = error
        return outcomes, work.answered - work.sent

    def _send_ahead(self, work: Work) -> None:
        """Give the child its next chunk while it works, as far as the buffer between takes it: it will not have to wait."""
        before = self._current.chunk if self._current is not None else None
        if self._process is None or before is None or not before.is_last or work.chunk is None:
            return
        rest, since = memoryview(work.chunk.message), time.perf_counter()
        try:
            rest = send_what_fits(self._connection, rest)
        except OSError:  # whoever waits for the batch before will see that the child is gone
            return
        self._ahead = Ahead(work.chunk.message, rest, since)

    def _send_work(self, work: Work) -> None:
        self._current = work
        while not work.sent:
            work.advance()

    def _wait_for(self, work: Work) -> list[Outcome]:
        try:
            while work.outcomes is None:
                work.advance()
        finally:
            self._current = None
        return work.outcomes

    def _steps(self, batch: Sequence[Instance], limits: Limits, progress: Progress) -> Steps:
        """Solve a batch chunk by chunk; stops when a chunk is packed and when it is sent."""
        outcomes: list[Outcome | None] = [None] * len(batch)
        todo = list(range(len(batch)))
        suspects: set[int] = set()
        answered = time.perf_counter()
        try:
            while todo:
                chunk = next_chunk(batch, todo, suspects)
                packed, seeds = pack_instances([batch[j] for j in chunk]), [limits.seed + j for j in chunk]
                message = framed((limits.time_limit, packed, seeds))
                yield Chunk(message, len(chunk) == len(todo))
                if chunk[0] in suspects:
                    self.close()
                self.start()
                culprit = yield from self._work_on_chunk(chunk, message, outcomes, limits, progress)
                answered = self._answered
                if culprit is not None:
                    suspects.add(culprit)
                todo = [j for j in todo if outcomes[j] is None]
        except BaseException:
            self.close()
            raise
        return [outcome for outcome in outcomes if outcome is not None], answered

    def _work_on_chunk(
        self,
        chunk: list[int],
        message: bytes,
        outcomes: list[Outcome | None],
        limits: Limits,
        progress: Progress,
    ) -> Generator[float, None, int | None]:
        """Fill in the outcomes of a chunk; return an instance that must be tried again in a new child, or None.

        A crash is the instance's own fault only if it was the first that the child saw: an earlier one may have
        corrupted the heap. A timeout is always its own.
        """
        was_unused, self._unused = self._unused, False
        done, before = 0, len(outcomes) - outcomes.count(None)
        patience = None if limits.kill_after is None else limits.kill_after + 2 * FLUSH_SECONDS
        try:
            yield self._deliver(message)
            while done < len(chunk):
                self._answered, answer = self._receive(patience)
                results = unpack_outcomes(answer)
                for j, result in zip(chunk[done:], results, strict=False):
                    outcomes[j] = result
                done += len(results)
                progress(before + done)
        except _Died as died:
            self._answered = time.perf_counter()
            at = max(done, min(self._progress_index(), len(chunk) - 1))
            self.close()
            if died.failure.status == "failed" and not (was_unused and at == 0):
                return chunk[at]
            outcomes[chunk[at]] = died.failure
            progress(before + done + 1)
        return None

    def _launch(self) -> None:
        process, self._connection, lifeline, self._folder = launched(fork_it=self._forks)
        self._process = process
        self._free = weakref.finalize(self, clean_up, process, self._connection, lifeline, self._folder)
        self._deliver(framed(self._start_message))

    def _deliver(self, message: bytes) -> float:
        """Send a message, or what `_send_ahead` left of it; return since when the child could work on it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.message is not message:  # nobody waits for what this child has in hand
            self.close()
            self.start()
            ahead = None
        if ahead is not None and not ahead.rest:
            return max(ahead.time, self._answered)
        since = time.perf_counter()  # not when it is sent: the child may have answered before we run again
        try:
            send_rest(self._connection, memoryview(message) if ahead is None else ahead.rest)
        except OSError:
            raise self._death() from None
        return since

    def _receive(self, timeout: float | None) -> Any:
        assert self._process is not None
        try:
            if not Patience(self._process.pid, timeout).wait(self._connection):
                raise _Died("timeout", f"killed after {timeout:.4g} s without a solution{self._log_tail()}")
            return receive(self._connection)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._death() from None

    def _death(self) -> _Died:
        assert self._process is not None
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return _Died("failed", f"the child process stopped answering{self._log_tail()}")
        return _Died("failed", f"the child process {describe_exit(code)}{self._log_tail()}")

    def _log_tail(self) -> str:
        return log_tail(self._folder / "log")

    def _progress_index(self) -> int:
        return int(struct.unpack("<q", (self._folder / "index").read_bytes())[0])

    def dismiss(self) -> None:
        """Kill the child without waiting for its end, which takes milliseconds; `close` waits."""
        if self._process is not None:
            self._dismissed = True
            kill_group(self._process)

    def close(self) -> None:
        """Kill the child and all that it started; the next `start` makes a new one."""
        self._ahead = None
        self._dismissed = False
        if self._process is not None:
            self._process = None
            self._free()
