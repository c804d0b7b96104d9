"""How long to wait for a child: a machine that is busy with other things must not turn slow answers into failures.

The kernel counts for every thread how long it was ready to run and waited for a processor. That time is no fault of the
child, so it is taken off the time that counts: that of the thread that waited longest. What remains is time in which it
ran, or slept: a hang counts in full.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

UNWATCHED_SECONDS = 0.2
"""Answers that come sooner are taken without looking at the kernel's counts, where the limit is far longer."""

SHORTEST_WAIT_SECONDS = 0.01


class Patience:
    """Waits for an answer of a child for a number of seconds of its own time.

    Parameters
    ----------
    pid
        The child; what it started counts too.
    seconds
        None waits for ever. Where the kernel does not say how long threads waited (macOS), these are seconds of wall time.
    """

    def __init__(self, pid: int, seconds: float | None) -> None:
        self._pid, self._seconds = pid, seconds

    def wait(self, connection: Connection) -> bool:
        """Wait until the connection has a message or is closed; False when the child's time is up first."""
        if self._seconds is None:
            return connection.poll(None)
        seconds = self._seconds
        if seconds > 10 * UNWATCHED_SECONDS:
            if connection.poll(UNWATCHED_SECONDS):
                return True
            seconds -= UNWATCHED_SECONDS
        before, started = waited_seconds(self._pid), time.monotonic()
        left = seconds
        while not connection.poll(max(left, SHORTEST_WAIT_SECONDS)):
            now = waited_seconds(self._pid)
            starved = max((waited - before.get(thread, 0.0) for thread, waited in now.items()), default=0.0)
            left = seconds + starved - (time.monotonic() - started)
            if left <= 0:
                return False
        return True


def waited_seconds(pid: int) -> dict[int, float]:
    """Return how long each thread of a process and its descendants has waited for a processor; empty if nobody counts it."""
    found: dict[int, float] = {}
    for process in (pid, *descendants(pid)):
        for task in _tasks(process):
            try:
                found[int(task.name)] = 1e-9 * int((task / "schedstat").read_bytes().split()[1])
            except (OSError, IndexError, ValueError):
                continue
    return found


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below one; empty where the kernel does not list them."""
    found: list[int] = []
    for task in _tasks(pid):
        try:
            below = [int(word) for word in (task / "children").read_bytes().split()]
        except (OSError, ValueError):
            continue
        for child in below:
            found += [child, *descendants(child)]
    return found


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
