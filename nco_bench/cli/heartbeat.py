"""A sign of life on a terminal for whatever takes longer than two seconds and has no bar of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_SECONDS = 2.0
NEXT_SECONDS = 1.0


@contextmanager
def heartbeat(words: str) -> Iterator[None]:
    """Show on stderr, if it is a terminal, what is worked on and since when.

    By a signal, as in `nco_bench.cli.output.RunDisplay`, which takes its place while a run is on; the line is left at its
    beginning, so that whatever is printed next stands over it.

    Parameters
    ----------
    words
        The command.
    """
    main = threading.current_thread() is threading.main_thread()
    if not (main and sys.stderr.isatty() and hasattr(signal, "setitimer")):
        yield
        return
    started = time.monotonic()

    def beat(number: int, frame: object) -> None:
        text = f"\r\x1b[2m{words} {time.monotonic() - started:.0f} s\x1b[0m\x1b[K\r"
        os.write(2, text.encode())  # not through a buffer that may be in use

    before = signal.signal(signal.SIGALRM, beat)
    signal.setitimer(signal.ITIMER_REAL, FIRST_SECONDS, NEXT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if time.monotonic() - started > FIRST_SECONDS:
            sys.stderr.write("\x1b[K")
