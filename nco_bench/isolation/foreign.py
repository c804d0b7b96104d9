"""Code of a stranger in a process of its own, called by name: the parent's side of `foreign_main`.

What travels to the child is pickled; what comes back is JSON and plain bytes, since a pickle from a stranger would run in
this process. The child is a fresh interpreter, so nothing that is loaded here (references, records) is in its memory; its
working folder is its own; and what it prints becomes the end of the message when it dies.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from nco_bench.errors import BadInputError, SolverFailedError
from nco_bench.isolation import guarded
from nco_bench.isolation.clock import Patience
from nco_bench.isolation.main import describe_exit, log_tail
from nco_bench.isolation.outcomes import Failure, Outcome, Solved
from nco_bench.isolation.start import Process, spawn
from nco_bench.isolation.transport import LENGTH, framed, read_bytes, send_rest

HEADER = struct.Struct("<I")
MOST_BYTES = 2**31
"""An answer longer than this is no solution."""

START_FOLDER = "NCO_BENCH_START_FOLDER"
"""Environment variable of the child: where the command was given, since its own folder is another."""


class ChildDiedError(SolverFailedError):
    """The child is gone; `status` is that of the record."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class ForeignProcess:
    """A running child that answers calls by name.

    Parameters
    ----------
    maker, argument
        ``module:function`` that the child calls once with `argument`; what it returns has the methods that `call` names.
    """

    def __init__(self, maker: str, argument: Any) -> None:
        self._maker, self._argument = maker, argument
        self._process: Process | None = None

    @property
    def runs(self) -> bool:
        """Whether the child was started and has not been ended here."""
        return self._process is not None

    def call(
        self, method: str, *arguments: Any, seconds: float | None = None, progress: Callable[[int], None] | None = None
    ) -> Any:  # fmt: skip
        """Call a method in the child, which is started where it does not run.

        Parameters
        ----------
        method, arguments
            The arguments must be picklable.
        seconds
            Of the child's own time, after which it is killed; None waits for ever.
        progress
            Called with what the method reports.

        Raises
        ------
        ChildDiedError
            When the child ends, or is killed because its time is up.
        SolverFailedError, BadInputError, MemoryError
            As the method raised.
        """
        try:
            if self._process is None:
                self._start()
            send_rest(self._connection, memoryview(framed((method, arguments))))
            while True:
                kind, value, blob = self._receive(seconds)
                if kind == "progress":
                    if progress is not None:
                        progress(int(value))
                elif kind == "value":
                    return unpacked(value, blob)
                else:
                    raise _error(kind, str(value))
        except (EOFError, OSError):
            raise self._death() from None
        except (ValueError, KeyError, TypeError, struct.error) as error:
            self.close()
            raise ChildDiedError(
                "failed", f"the solver's process wrote nonsense to its parent ({error})"
            ) from None
        except BaseException as error:
            if not isinstance(error, SolverFailedError | BadInputError | MemoryError):
                self.close()
            raise

    def _receive(self, seconds: float | None) -> tuple[str, Any, memoryview]:
        assert self._process is not None
        if not Patience(self._process.pid, seconds).wait(self._connection):
            message = f"killed after {seconds:.4g} s without an answer{log_tail(self._folder / 'log')}"
            self.close()
            raise ChildDiedError("timeout", message)
        handle = self._connection.fileno()
        size = LENGTH.unpack(read_bytes(handle, LENGTH.size))[0]
        if not HEADER.size <= size <= MOST_BYTES:
            raise ValueError(f"a message of {size} bytes")
        data = memoryview(read_bytes(handle, size))
        begin = HEADER.size + HEADER.unpack(data[: HEADER.size])[0]
        kind, value = json.loads(bytes(data[HEADER.size : begin]))
        return str(kind), value, data[begin:]

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="nco-bench-"))
        ours, theirs = socket.socketpair()
        lifeline_read, lifeline_write = os.pipe()
        ends = theirs.fileno(), lifeline_read
        arguments = (*ends, os.getpid(), threading.current_thread() is threading.main_thread())
        code = f"from nco_bench.isolation.foreign_main import serve; serve{arguments}"
        before = os.environ.get(START_FOLDER)
        os.environ[START_FOLDER] = os.getcwd()
        try:
            self._process = process = spawn(code, folder, ends)
        finally:
            os.environ.pop(START_FOLDER) if before is None else os.environ.update({START_FOLDER: before})
        theirs.close()
        os.close(lifeline_read)
        self._folder, self._connection = folder, Connection(ours.detach())
        self._free = weakref.finalize(self, _clean_up, process, self._connection, lifeline_write, folder)
        send_rest(self._connection, memoryview(framed((self._maker, self._argument, guarded()))))

    def _death(self) -> ChildDiedError:
        if self._process is None:
            return ChildDiedError("failed", "no process could be started for the solver")
        try:
            how = describe_exit(self._process.wait(5.0))
        except subprocess.TimeoutExpired:
            how = "closed its connection"
        message = f"the solver's process {how}{log_tail(self._folder / 'log')}"
        self.close()
        return ChildDiedError("failed", message)

    def close(self) -> None:
        """Kill the child and all that it started; the next call starts another."""
        if self._process is not None:
            self._process = None
            self._free()


def _clean_up(process: Process, connection: Connection, lifeline: int, folder: Path) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
    connection.close()
    os.close(lifeline)
    shutil.rmtree(folder, ignore_errors=True)


def _error(kind: str, message: str) -> Exception:
    return {"input": BadInputError, "oom": MemoryError}.get(kind, SolverFailedError)(message)


def packed(value: Any) -> tuple[Any, bytes]:
    """Return JSON and bytes for what a method returned; lists of outcomes become descriptions and one block."""
    if not (isinstance(value, list) and value and all(isinstance(one, Solved | Failure) for one in value)):
        return value, b""
    lines: list[Any] = []
    blocks: list[bytes] = []
    for one in value:
        if isinstance(one, Failure):
            lines.append(["failure", one.status, one.message, one.traceback])
            continue
        array = np.ascontiguousarray(one.solution)
        lines.append(["solved", array.dtype.str, array.shape, one.optimal, one.seconds, one.trace])
        blocks.append(array.tobytes())
    return {"outcomes": lines}, b"".join(blocks)


def unpacked(value: Any, blob: memoryview) -> Any:
    """Undo `packed`; raises ValueError, KeyError or TypeError for what `packed` cannot have made."""
    if not (isinstance(value, dict) and set(value) == {"outcomes"}):
        return value
    out: list[Outcome] = []
    at = 0
    for line in value["outcomes"]:
        if line[0] == "failure":
            out.append(Failure(*map(str, line[1:4])))
            continue
        _, kind, shape, optimal, seconds, trace = line
        dtype = np.dtype(kind)
        if dtype.hasobject:
            raise ValueError("a solution of objects")
        count = int(np.prod(shape, dtype=np.int64))
        solution = (
            np.frombuffer(blob, dtype, count, at).reshape(shape).copy() if count else np.zeros(shape, dtype)
        )
        at += count * dtype.itemsize
        pairs = tuple((float(a), float(b)) for a, b in trace)
        out.append(Solved(solution, bool(optimal), None if seconds is None else float(seconds), pairs))
    return out


def message_of(kind: str, value: Any, blob: bytes = b"") -> bytes:
    """Return what travels from the child for an answer."""
    head = json.dumps([kind, value]).encode()
    return LENGTH.pack(HEADER.size + len(head) + len(blob)) + HEADER.pack(len(head)) + head + blob
