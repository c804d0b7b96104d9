"""Starting the child process of a native solver: a fork of this process where that is safe, else a fresh interpreter.

A fresh interpreter takes some tenths of a second, mostly for importing NumPy; a fork takes milliseconds. A fork copies
the memory of this process but only one of its threads, so what the other threads were doing stays half done in it.
Therefore we fork only on Linux, from the main thread of a process that is small, without other threads and without
libraries that hold devices or thread pools (torch, jax, ...). NumPy's OpenBLAS has threads, but ends them itself before
every fork; whether there were threads of others is seen right after it, and then the fork is killed at once.

The fork leaves nothing of this process in reach of native code: no file descriptors, signal handlers, hooks or
destructors, and it never returns from here.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn, Protocol

from nco_bench.interrupts import OF_A_JOB, interrupts_held, warnings_held
from nco_bench.isolation.main import serve

HOLD_THREADS_OR_DEVICES = frozenset({"torch", "jax", "tensorflow", "cupy", "numba.cuda", "ray", "mpi4py"})
"""Modules after whose import this process is not forked."""

LARGEST_FORKED_BYTES = 2**30
"""Above this resident size copying the page tables, and pages when either side writes, costs more than it saves."""

SEND_BUFFER_BYTES = 2**20
"""Asked for; the system may give less. What does not fit is sent when the child has answered."""

PF_EXITING = 0x4
"""The kernel's flag of a thread that has begun to end."""


class Process(Protocol):
    """What is needed of a started child; `subprocess.Popen` has it."""

    pid: int

    def kill(self) -> None:
        """Kill it, unless it was waited for."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, negative for a signal."""


class Forked:
    """A child made by `os.fork`, with the interface of `Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        """Kill it, unless it was waited for."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, negative for a signal.

        Raises
        ------
        subprocess.TimeoutExpired
            When it has not ended in time.
        """
        if self._code is not None:
            return self._code
        if timeout is not None and not self._ends_within(timeout):
            raise subprocess.TimeoutExpired("child", timeout)
        try:
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # somebody else's wait() took it
            self._code = 0
        return self._code

    def _ends_within(self, timeout: float) -> bool:
        handle = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(1000 * timeout))
        finally:
            os.close(handle)


def may_fork() -> bool:
    """Say whether a fork of this process is safe and cheap, as far as can be seen before."""
    return (
        sys.platform == "linux"
        and hasattr(os, "pidfd_open")
        and threading.current_thread() is threading.main_thread()
        and threading.active_count() == 1
        and not HOLD_THREADS_OR_DEVICES & sys.modules.keys()
        and _resident_bytes() < LARGEST_FORKED_BYTES
    )


def spawn(code: str, folder: Path, descriptors: tuple[int, ...]) -> Process:
    """Start a fresh interpreter that runs `code` in `folder`, in a session of its own, with its output in ``log``."""
    path = os.pathsep.join(_absolute_path())
    with (folder / "log").open("ab") as log, warnings_held():
        return subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env={**os.environ, "PYTHONPATH": path},
            pass_fds=descriptors,
            start_new_session=True,
        )  # fmt: skip


def fork(main: Callable[[], None], folder: Path, descriptors: tuple[int, ...]) -> Process | None:
    """Run `main` in a fork of this process, as `spawn` would; None where a fork turned out not to be safe.

    Parameters
    ----------
    main
        What the fork does; it ends when `main` returns. It must wait for a message before it does anything, so that it
        can be killed before.
    folder, descriptors
        As for `spawn`: working folder, and the file descriptors that stay open.
    """
    if min(descriptors) <= 2:  # this process has closed a standard stream, and theirs took its number
        return None
    # Ctrl-C in between must not find Python's handler in the fork.
    try:
        with interrupts_held(), warnings_held():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads; we look for them ourselves
                pid = os.fork()
            if pid == 0:
                _be_child(main, folder, descriptors)
            process = Forked(pid)
    except OSError:  # no memory for another copy of this process
        return None
    if _other_threads():
        process.kill()
        process.wait()
        return None
    return process


def _be_child(main: Callable[[], None], folder: Path, descriptors: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        gc.freeze()  # destructors of what was inherited must not run here
        sys.settrace(None)
        sys.setprofile(None)
        faulthandler.disable()
        _reset_signals()
        os.setsid()
        _redirect(folder / "log")
        _close_all_but({0, 1, 2, *descriptors})
        sys.path[:] = _absolute_path()
        os.chdir(folder)
        main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.pthread_sigmask(signal.SIG_SETMASK, held & OF_A_JOB)


def _redirect(log: Path) -> None:
    """Point the standard streams to nothing and to the log, for native code and for Python."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the one that listed the folder
                continue


def _absolute_path() -> list[str]:
    return [os.path.abspath(entry or ".") for entry in sys.path]


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_bytes().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _other_threads() -> bool:
    """Say whether this process has more than one thread; a look right after a fork, which ends OpenBLAS's."""
    return sum(map(_runs, Path("/proc/self/task").iterdir())) > 1


def _runs(task: Path) -> bool:
    """Say whether a thread is there to stay: one that was joined may still be listed for a moment, but as exiting."""
    try:
        flags = (task / "stat").read_bytes().rpartition(b")")[2].split()[6]
    except OSError:
        return False
    return not int(flags) & PF_EXITING


def launched(*, fork_it: bool) -> tuple[Process, Connection, int, Path]:
    """Start a child that serves; return it, our end of its connection and of its lifeline, and its folder.

    Parameters
    ----------
    fork_it
        Whether it may be a fork of this process, where that is safe.
    """
    folder = Path(tempfile.mkdtemp(prefix="nco-bench-"))
    (folder / "index").write_bytes(struct.pack("<q", 0))
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    lifeline_read, lifeline_write = os.pipe()
    ends = theirs.fileno(), lifeline_read
    arguments = (*ends, os.getpid(), threading.current_thread() is threading.main_thread())
    process = fork(lambda: serve(*arguments), folder, ends) if fork_it and may_fork() else None
    if process is None:
        code = f"from nco_bench.isolation.main import serve; serve{arguments}"
        process = spawn(code, folder, ends)
    theirs.close()
    os.close(lifeline_read)
    return process, Connection(ours.detach()), lifeline_write, folder


def temporary_folder() -> str:
    """Return where the folders of children are made, for messages."""
    return tempfile.tempdir or os.environ.get("TMPDIR", "the temporary folder")


def kill_group(process: Process) -> None:
    """Kill a child and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()


def clean_up(process: Process, connection: Connection, lifeline: int, folder: Path) -> None:
    """Kill a child, wait for its end, and remove what it had."""
    kill_group(process)
    process.wait()
    connection.close()
    os.close(lifeline)
    shutil.rmtree(folder, ignore_errors=True)
