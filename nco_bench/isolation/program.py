"""A program of somebody else as a process: a line of JSON in, a line of JSON out, whatever it does in between.

The program stays for all instances; where it ends after an answer, crashes, hangs or writes nonsense, it is started anew
for the next instance. No shell is involved.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from nco_bench.interrupts import warnings_held
from nco_bench.isolation.main import describe_exit

STDERR_SHOWN = 300
MOST_BYTES = 1 << 28
"""An answer longer than this is no solution."""

BLOCK = 1 << 16
LAST_WORDS_SECONDS = 2.0


class NoAnswerError(Exception):
    """The program gave no answer; `status` is that of the record."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class ExternalProcess:
    """A running program.

    Parameters
    ----------
    argv
        The program and its arguments.
    folder
        Where it runs.
    """

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._argv, self._folder = list(argv), folder
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._pending = b""
        self._answered = self._ended_well = False

    def start(self) -> None:
        """Start the program if it does not run.

        Raises
        ------
        NoAnswerError
            If it cannot be started.
        """
        if self._process is not None and self._process.poll() is None and not self._has_more_to_say():
            return
        self.close()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        try:
            with warnings_held():
                self._process = subprocess.Popen(
                    self._argv,
                    cwd=self._folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    start_new_session=True,  # so that its own children can be killed with it
                )
        except OSError as error:
            raise NoAnswerError("failed", f"{self._argv[0]}: cannot be started ({error.strerror})") from error

    def _has_more_to_say(self) -> bool:
        """Whether there is output that belongs to no question: it would be taken for the next answer."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return bool(self._pending.strip()) or bool(selector.select(0))

    def ask(self, question: bytes, patience: float | None) -> bytes:
        """Write a line and return the next line that the program writes.

        Parameters
        ----------
        question
            Without its newline.
        patience
            Seconds after which the program is killed; None waits.

        Raises
        ------
        NoAnswerError
            When it ends, or says nothing in time; the message holds the end of its stderr.
        """
        served = self._answered
        try:
            return self._ask(question, patience)
        except NoAnswerError:
            # A program that serves one instance may still have been there when the next question was written.
            if not (served and self._ended_well):
                raise
            return self._ask(question, patience)

    def _ask(self, question: bytes, patience: float | None) -> bytes:
        self.start()
        assert self._process is not None
        self._ended_well = False
        writer = threading.Thread(target=self._write, args=(self._process, question + b"\n"), daemon=True)
        writer.start()
        try:
            answer = self._read(self._process, None if patience is None else time.monotonic() + patience)
            self._answered = True
            return answer
        except NoAnswerError:
            self.close()
            raise
        finally:
            writer.join(LAST_WORDS_SECONDS)

    @staticmethod
    def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdin is not None
        # A program that is gone says so on the other side; one that closed its input may still answer.
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(data)
            process.stdin.flush()

    def _read(self, process: subprocess.Popen[bytes], deadline: float | None) -> bytes:
        assert process.stdout is not None
        parts, size = [self._pending], len(self._pending)
        self._pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not selector.select(left):
                    raise NoAnswerError("timeout", f"no answer in time, killed{self._last_words()}")
                block = os.read(process.stdout.fileno(), BLOCK)
                if not block:
                    raise NoAnswerError("failed", self._obituary(process) + self._last_words())
                line, newline, rest = block.partition(b"\n")
                parts.append(line)
                size += len(line)
                if newline:
                    self._pending = rest
                    return b"".join(parts)
                if size > MOST_BYTES:
                    raise NoAnswerError("failed", f"wrote {size >> 20} MiB without the end of a line")

    def _obituary(self, process: subprocess.Popen[bytes]) -> str:
        try:
            status = process.wait(LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output without an answer"
        self._ended_well = status == 0
        if status >= 0:
            return f"ended with status {status} without an answer"
        return describe_exit(status)

    def _last_words(self) -> str:
        """Return the last line of stderr, for a message."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4 * STDERR_SHOWN))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()[-STDERR_SHOWN:]}" if lines else ""

    def close(self) -> None:
        """Kill the program and its children."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        if self._stderr is not None:
            self._stderr.close()
        self._process, self._stderr, self._pending, self._answered = None, None, b"", False
