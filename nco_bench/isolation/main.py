"""The child's side of `ChildProcess`: import one module, solve what is sent, die with the parent.

What a child imports before its first instance is waited for, so this file imports little.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import io
import mmap
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from nco_bench.interrupts import outlive_a_job
from nco_bench.isolation.outcomes import Failure, Outcome, Solved
from nco_bench.isolation.transport import new_solved, pack_outcomes, receive, send, unpack_instances
from nco_bench.problems import Instance

FLUSH_SECONDS = 0.05
TAIL_CHARACTERS = 400
PR_SET_PDEATHSIG = 1


def serve(connection_fd: int, lifeline_fd: int, parent: int, from_main_thread: bool) -> None:
    """Run the child's loop until the parent is gone; called by what `ChildProcess` launches."""
    die_with_parent(lifeline_fd, parent if from_main_thread else None)
    connection = Connection(connection_fd)
    target, params, fresh = receive(connection)
    try:
        module = importlib.import_module(target.partition(":")[0])
        function = getattr(module, target.partition(":")[2])
        getattr(module, "warm_up", lambda _: None)(params)
    except Exception as error:
        send(connection, f"{type(error).__name__}: {error}")
        return
    send(connection, None)
    with open("index", "r+b") as file, mmap.mmap(file.fileno(), 8) as page:
        while True:
            try:
                time_limit, packed, seeds = receive(connection)
            except EOFError:
                return
            os.ftruncate(1, 0)
            attempt = partial(_attempt, function, time_limit=time_limit, params=params)
            chunk = list(zip(unpack_instances(packed), seeds, strict=True))
            _serve_chunk(connection, page, chunk, attempt, fresh)


def _serve_chunk(
    connection: Connection,
    page: mmap.mmap,
    chunk: list[tuple[Instance, int]],
    attempt: Callable[[Instance, int], Outcome],
    fresh: bool,
) -> None:
    results: list[Outcome] = []
    sent = time.perf_counter()
    for k, (instance, seed) in enumerate(chunk):
        struct.pack_into("<q", page, 0, k)
        results.append(_in_fork(connection, attempt, instance, seed) if fresh else attempt(instance, seed))
        now = time.perf_counter()
        if now - sent > FLUSH_SECONDS or k == len(chunk) - 1:
            send(connection, (now, pack_outcomes(results)))  # this clock is the parent's as well
            results, sent = [], now


def _attempt(
    function: Callable[..., Any],
    instance: Instance,
    seed: int,
    time_limit: float | None,
    params: dict[str, Any],
) -> Outcome:
    start = time.perf_counter()
    try:
        found = function(instance, seed, time_limit, params)
        seconds = time.perf_counter() - start
        if isinstance(found, Failure):
            return found
        optimal, trace = (found.optimal, found.trace) if isinstance(found, Solved) else (False, ())
        solution = np.asarray(found.solution if isinstance(found, Solved) else found)
    except MemoryError as error:
        return Failure("oom", f"MemoryError: {error}")
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure("failed", f"{message}{log_tail(Path('log'))}", _traceback())
    if solution.ndim != 1 or solution.dtype.kind not in "iu":
        return Failure(
            "failed", f"returned {solution.dtype} values with shape {solution.shape}, not a solution"
        )
    return new_solved(solution.astype(np.int32, copy=False), optimal, seconds, trace)


def _traceback() -> str:
    """Return where the error in hand came from; the module is imported only here, for what a child imports is waited for."""
    import traceback

    return traceback.format_exc()


def _in_fork(
    connection: Connection, attempt: Callable[[Instance, int], Outcome], instance: Instance, seed: int
) -> Outcome:
    """Solve in a fork of this small process, so that whatever the native code leaves behind goes with it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        death_signal()
        connection.close()
        os.close(read)
        with open(write, "wb") as out:
            out.write(pickle.dumps(attempt(instance, seed), protocol=5))
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    try:
        return pickle.load(io.BytesIO(data))
    except (EOFError, pickle.UnpicklingError):
        how = describe_exit(os.waitstatus_to_exitcode(status))
        return Failure("failed", f"the solver's process {how}{log_tail(Path('log'))}")


def die_with_parent(lifeline_fd: int, parent: int | None) -> None:
    """Have the kernel kill this process when its parent is gone, even inside native code.

    The death signal follows the thread that started us, so it is used only if that was the main thread; SIGIO,
    whose default action ends a process, comes when the last writer of the lifeline is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline_fd, fcntl.F_GETFL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, flags | getattr(os, "O_ASYNC", getattr(fcntl, "FASYNC", 0)))
    if parent is not None:
        death_signal()
        if os.getppid() != parent:
            os._exit(1)


def death_signal() -> None:
    """Have the kernel kill this process when the process that started it is gone; Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def describe_exit(code: int) -> str:
    """Say in words how a process ended, from `subprocess`'s return code.

    Where SLURM kills the whole job, this process is killed before it says so, see `outlive_a_job`.
    """
    if code >= 0:
        return f"ended with exit status {code}"
    if code == -signal.SIGKILL:
        outlive_a_job()
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def log_tail(log: Path) -> str:
    """Return ``: `` and the end of what the child printed, on one line; empty if it printed nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4 * TAIL_CHARACTERS))
            text = " ".join(file.read().decode(errors="replace").split())
    except OSError:
        return ""
    return f": {text[-TAIL_CHARACTERS:]}" if text else ""
