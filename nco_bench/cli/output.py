"""What commands print: JSON on stdout, talk on stderr, progress as bars on a terminal and plain lines elsewhere."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson

from nco_bench.runs.relay import NO_GAPS, Gaps, Titled, title_of

PLAIN_INTERVAL_SECONDS = 10.0
BAR_INTERVAL_SECONDS = 0.1
TICK_SECONDS = 1.0


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.buffer.write(
        orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n"
    )
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a message on stderr."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class _Line:
    """How far one cell is."""

    total: int
    started: float
    stored: int = 0
    solved: int = 0
    gaps: Gaps = NO_GAPS
    told: float = 0.0
    bar: Any = None

    @property
    def done(self) -> int:
        """Solved now or before."""
        return self.stored + self.solved

    def rate(self) -> str:
        """Instances per second and the time that the rest will take; empty before the first."""
        seconds = time.monotonic() - self.started
        if not self.solved or not seconds:
            return ""
        rate = self.solved / seconds
        left = f", {_clock((self.total - self.done) / rate)} left" if self.done < self.total else ""
        return f"{rate:.3g}/s{left}"

    def gap(self) -> str:
        """Mean gap of the whole set so far."""
        return "" if self.gaps.mean is None else f"gap {self.gaps.mean:z.3f} %"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


class RunDisplay:
    """Progress of a run: per cell a bar with rate, time left and mean gap, or plain lines where there is no terminal.

    A timer keeps the clock running while a solver is silent. It is a signal, since a thread would forbid to fork the
    children of native solvers.
    """

    def __init__(self) -> None:
        self._bars: Any = None
        self._lines: dict[str, _Line] = {}
        self._current = ""
        self._busy = False
        self._before: Any = None

    def __enter__(self) -> RunDisplay:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bars = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=8), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("{task.fields[rate]} {task.fields[gap]}"), console=Console(stderr=True), auto_refresh=False,
            )  # fmt: skip
            with self._alone():
                self._bars.start()
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
            self._before = signal.signal(signal.SIGALRM, self._tick)
            signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            if self._before in (signal.SIG_DFL, signal.SIG_IGN):  # else a heartbeat goes on
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
        if self._bars is not None:
            with self._alone():
                self._bars.stop()
        if kind is KeyboardInterrupt:
            for title, line in self._lines.items():
                say(f"{title}: {line.done} of {line.total} are solved and kept")

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        """Announce a cell."""
        self._current = title = title_of(cell)
        now = time.monotonic()
        line = self._lines[title] = _Line(total, now, stored=done, gaps=gaps, told=now)
        kept = f" ({done} of {total} stored before)" if done else ""
        if self._bars is not None:
            if kept:
                self.message(f"{title}: {done} of {total} stored before")
            with self._alone():
                line.bar = self._bars.add_task(title, total=total, completed=done, rate="", gap=line.gap())
                self._bars.refresh()
        else:
            say(f"{title}: {total - done} to solve{kept}")

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        """Count solved instances."""
        line = self._lines[title or self._current]
        line.solved, line.stored, line.gaps = line.solved + count, line.stored + stored, gaps
        if count or stored:
            self._show(title or self._current, line, ended=line.done == line.total)

    def _show(self, title: str, line: _Line, *, ended: bool) -> None:
        now = time.monotonic()
        if (
            now - line.told < (PLAIN_INTERVAL_SECONDS if self._bars is None else BAR_INTERVAL_SECONDS)
            and not ended
        ):
            return
        line.told = now
        if self._bars is not None:
            with self._alone():
                self._bars.update(line.bar, completed=line.done, rate=line.rate(), gap=line.gap())
                self._bars.refresh()
            return
        facts = ", ".join(fact for fact in (line.rate(), line.gap()) if fact)
        say(f"{title}: {line.done}/{line.total} in {now - line.started:.1f} s{', ' if facts else ''}{facts}")

    def _tick(self, number: int, frame: object) -> None:
        """Show how the time goes while a solver is silent; not while something is being shown, which this may interrupt."""
        if self._busy:
            return
        if self._bars is not None:
            with self._alone():
                self._bars.refresh()
            return
        for title, line in list(self._lines.items()):
            if line.done < line.total:
                self._show(title, line, ended=False)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep the timer out: rich must not be entered while it is at work, or while it imports what it needs."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    def message(self, text: str) -> None:
        """Print one line."""
        with self._alone():
            if self._bars is not None:
                self._bars.console.print(text, markup=False, highlight=False)
            else:
                say(text)
