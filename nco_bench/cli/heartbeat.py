"""How far a command without a display of its own is: on a terminal after two seconds, elsewhere in a line now and then."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nco_bench.progress import Level

FIRST_SECONDS, NEXT_SECONDS = 2.0, 1.0
"""On a terminal."""
PLAIN_SECONDS = 10.0
"""Elsewhere, and only where something is counted."""


@contextmanager
def heartbeat(words: str) -> Iterator[None]:
    """Show on stderr what is worked on and since when, how much of it is done, at which rate, and how long the rest takes.

    By a signal, as in `nco_bench.cli.output.RunDisplay`, which takes its place while a run is on; on a terminal the line is
    left at its beginning, so that whatever is printed next stands over it.

    Parameters
    ----------
    words
        The command.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    root, terminal, started = Level(), sys.stderr.isatty(), time.monotonic()

    def beat(number: int, frame: object) -> None:
        outermost = root.within[:1]
        far = outermost[0].pace() if outermost else ""
        text = f"{words} {time.monotonic() - started:.0f} s{', ' if far else ''}{far}"
        # Not through a buffer that may be in use.
        if terminal:
            os.write(2, f"\r\x1b[2m{text[: _columns() - 1]}\x1b[0m\x1b[K\r".encode())
        elif far:
            os.write(2, f"{text}\n".encode())

    before = signal.signal(signal.SIGALRM, beat)
    intervals = (FIRST_SECONDS, NEXT_SECONDS) if terminal else (PLAIN_SECONDS, PLAIN_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, *intervals)
    try:
        with root:
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if terminal and time.monotonic() - started > FIRST_SECONDS:
            sys.stderr.write("\x1b[K")


def _columns() -> int:
    """Return the width of the terminal: a longer line would not be written over."""
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80
