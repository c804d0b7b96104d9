"""How far long work is, for whoever shows it: a display listens, loops say where they are.

Work falls into levels: sizes, factors of a size, steps with a factor. A level that is opened within another covers the
item that the other is at, so that the share of the whole moves with the innermost loop. Where nobody listens, `tracked`
returns what it was given.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
BYTES = "byte"
"""The unit of downloads, shown in MB."""


class Level:
    """One loop that is under way; as a context manager what levels that are opened meanwhile stand within.

    Attributes
    ----------
    unit
        What it counts, in the singular; an empty string is not shown.
    total
        How many there are; None where nobody knows.
    count
        How many are done.
    item
        How much work the item is that it is at.
    within
        Levels of that item, or of several in threads.
    began
        ``time.monotonic()`` at the start.
    changed
        Called when something was done, here or below.
    """

    __slots__ = (
        "_above", "_all", "_before", "_done", "_seen", "_weight", "began", "changed", "count", "item", "total", "unit",
        "within",
    )  # fmt: skip

    def __init__(
        self,
        unit: str = "",
        total: int | None = 1,
        work: float | None = None,
        above: Level | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.unit, self.total, self.count, self.item = unit, total, 0, 1.0
        self._all, self._done = float(total or 0) if work is None else work, 0.0
        self._seen = True
        self._above, self._weight = above, 1.0 if above is None else above.item
        self.began = time.monotonic()
        self.within: list[Level] = []
        self.changed: Callable[[], None] | None = changed if above is None else above.changed

    def __enter__(self) -> Level:
        self._before = _current.get()
        if self._seen:
            _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        level = _current.get()
        while (
            level is not None and level is not self
        ):  # loops that an exception left, whose generators still live
            level = level._before
        if level is self:
            _current.set(self._before)
        self.close()

    def close(self) -> None:
        """Leave the level above."""
        if self._above is not None and self in self._above.within:
            self._above.within.remove(self)

    def reach(self, count: int, work: float | None = None) -> None:
        """Say that `count` items are done, and how much of the work that is, where they differ."""
        self.count, self._done = count, count if work is None else work
        if self.changed is not None:
            self.changed()

    def share(self) -> float:
        """Return how much of the work is done, 0 to 1; 0 where the total is not known."""
        inside = sum(level._weight * level.share() for level in list(self.within))
        return min(1.0, (self._done + inside) / self._all) if self._all else 0.0

    def place(self) -> str:
        """Return where the work is, from the outermost loop to the innermost: ``2/4 sizes, 3 factors``."""
        inside = next((level.place() for level in list(self.within)), "")
        here = self._counted() if self.unit and self.total != 1 else ""
        return ", ".join(part for part in (here, inside) if part)

    def _counted(self) -> str:
        if self.unit == BYTES:
            return f"{self.count / 1e6:.1f}{f'/{self.total / 1e6:.1f}' if self.total else ''} MB"
        of = "" if self.total is None else f"/{self.total:,}"
        return f"{self.count:,}{of} {self.unit}{'' if (self.total or self.count) == 1 else 's'}"

    def innermost(self) -> str:
        """Return where the innermost loop is."""
        inside = next((level.innermost() for level in list(self.within)), "")
        return inside or (self._counted() if self.unit and self.total != 1 else "")

    def pace(self) -> str:
        """Return the place with how many are done in a second, and the time that the rest will take, as far as known."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        each, share = self.count / seconds, self.share()
        rate = (
            f"{each / 1e6:.1f} MB/s" if self.unit == BYTES and each else per_second(each) if each >= 1 else ""
        )
        left = f"{clock(seconds * (1 - share) / share)} left" if 0 < share < 1 else ""
        return ", ".join(part for part in (self.place(), rate, left) if part)


class Batch(Level):
    """Instances that are solved together: their solver counts them, or levels within say how far all of them are."""

    __slots__ = ()

    def share(self) -> float:
        """Return the larger of the two."""
        inside = sum(level._weight * level.share() for level in list(self.within))
        return min(1.0, max(self._done / self._all, inside)) if self._all else 0.0


_current: ContextVar[Level | None] = ContextVar("level", default=None)


def opened(
    unit: str, total: int | None, work: float | None = None, kind: type[Level] = Level, *, counts: bool = True
) -> Level:
    """Open a level within the current one; where nobody listens it is seen by nobody.

    Parameters
    ----------
    unit, total
        As in `Level`.
    work
        Sum of the work of all items, where they differ.
    kind
        `Batch`, or a plain level.
    counts
        False for what comes before the loop that counts, such as an initial solution: the share does not move with it.
    """
    above = _current.get()
    level = kind(unit, total, work, above)
    level._seen, level._weight = above is not None, level._weight * counts
    if above is not None:
        above.within.append(level)
    return level


def tracked(items: Iterable[Item], unit: str, work: Sequence[float] | None = None) -> Iterable[Item]:
    """Iterate, and let whoever listens know how far that is.

    Parameters
    ----------
    items
        Their number is told if they have a length.
    unit
        What they are, in the singular.
    work
        How much work each of them is, in any unit; None for all alike.
    """
    return items if _current.get() is None else _tracked(items, unit, work)


def _tracked(items: Iterable[Item], unit: str, work: Sequence[float] | None) -> Iterator[Item]:
    total = len(items) if isinstance(items, Sized) else None
    done = 0.0
    with opened(unit, total, None if work is None else float(sum(work))) as level:
        for index, item in enumerate(items):
            level.item = 1.0 if work is None else work[index]
            yield item
            done += level.item
            level.within.clear()  # what `report` has left there
            level.reach(index + 1, done)


def report(count: int, total: int, unit: str) -> None:
    """Say how far a loop is that `tracked` does not fit: one that ends when all is visited, say.

    Parameters
    ----------
    count, total, unit
        As in `Level`; where the total is a guess, more than that is shown as all.
    """
    above = _current.get()
    if above is None:
        return
    level = above.within[-1] if above.within else None
    if level is None or level.unit != unit or level.count > count:
        above.within.clear()
        level = opened(unit, total)
    level.reach(min(count, total))


def per_second(rate: float) -> str:
    """Return a rate as ``1.25/s``; large ones without decimals, and never as a power of ten."""
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def clock(seconds: float) -> str:
    """Return a time as ``h:mm:ss``."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


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
