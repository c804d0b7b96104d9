"""Ctrl-C at any moment ends a command with one line: also while its processes start, and where Python would swallow it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_SECONDS = 0.02
OF_A_JOB = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2})
"""Signals by which SLURM warns the processes of a job."""
KILLING_SECONDS = 2.0
"""How long SLURM's killing of a job's processes may take on a busy node."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block; processes that are started in it begin, and stay, with it held back.

    A terminal sends it to all processes of a command, and one whose Python still imports would print a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def warnings_held() -> Iterator[None]:
    """Start processes that never see what SLURM sends a job: its warning of the time limit, or SIGTERM before it kills.

    SLURM sends them to all processes of a job. A solver's process would die of them, and its instance be taken for a
    failure, though it is the job that ends. Does nothing outside of a job.
    """
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_JOB)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive_a_job() -> None:
    """Wait where SLURM may be killing all processes of a job, one after the other, and has begun with one of ours.

    Who goes on before its own turn takes the job's end for a failure of what it had in hand. Does nothing outside of a job.
    """
    if "SLURM_JOB_ID" in os.environ:
        time.sleep(KILLING_SECONDS)


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one, perhaps within `interrupts_held`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def insist(number: signal.Signals, raises: type[BaseException]) -> None:
    """Let this process send itself a signal once more where Python swallows what the signal's handler raised.

    An exception out of a destructor or a callback of C code goes nowhere: Python prints its traceback and goes on.

    Parameters
    ----------
    number, raises
        The signal, and the exception that its handler raises.
    """

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, raises):
            threading.Thread(target=_send, args=(number,), daemon=True).start()
        else:
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = hook


def _send(number: signal.Signals) -> None:
    time.sleep(AGAIN_SECONDS)  # until the hook has returned: raised within it, it would be swallowed as well
    os.kill(os.getpid(), number)


class Ending:
    """Ctrl-C or SIGTERM as a request that work looks for between two steps; ``with Ending() as ending:`` takes them over.

    Until the work asks for the first time, and when they come again, they end the process as they ever do. Under torchrun,
    which passes on what the terminal has sent already and kills after half a minute, they may come again. Does nothing
    outside of the main thread.

    Attributes
    ----------
    signal
        What came; 0 as long as nothing did.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._asking = False
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Tell whether the work is to end."""
        self._asking = True
        return self.signal != 0

    def __enter__(self) -> Ending:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def status(self) -> int:
        """The exit status that shells give to a process that the signal ended."""
        return 128 + self.signal

    def _came(self, number: int, _: FrameType | None) -> None:
        if self._asking and not self.signal:
            self.signal = number
            if (
                os.environ.get("RANK", "0") == "0"
            ):  # not by print: the signal may have come in the midst of one
                os.write(2, b"ending with a checkpoint after this update; once more ends at once\n")
        elif not (self.signal and "TORCHELASTIC_RUN_ID" in os.environ):
            signal.signal(number, self._before[signal.Signals(number)])
            os.kill(os.getpid(), number)
