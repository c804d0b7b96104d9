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
from typing import TYPE_CHECKING, Any

import orjson

from nco_bench.progress import Level, clock, per_second
from nco_bench.runs.display import NO_GAPS, NOTHING, Gaps, Titled, Working, title_of, working_of

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_INTERVAL_SECONDS = 10.0
BAR_INTERVAL_SECONDS = 0.1
TICK_SECONDS = 1.0
BAR_COLUMNS = 8 + 7 + 4
"""Of the bar itself, the clock beside it, and the spaces between."""


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.buffer.write(
        orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n"
    )
    sys.stdout.flush()


def console() -> Console:
    """Return a console for stdout; wide where the output is no terminal, so that nothing is cut."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `nco_bench.cli.app`: rich would end with status 1, which stands for failed instances."""
            raise BrokenPipeError

    out = Output()
    return out if out.is_terminal else Output(width=200)


def say(text: str) -> None:
    """Print a message on stderr."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class _Line:
    """How far one cell is: what is solved, and what of the batches in hand; `first` is when the first of them began."""

    total: int
    started: float
    stored: int = 0
    solved: int = 0
    gaps: Gaps = NO_GAPS
    told: float = 0.0
    bar: Any = None
    working: Working = NOTHING
    first: float | None = None

    @property
    def done(self) -> int:
        """Solved now or before."""
        return self.stored + self.solved

    def rate(self) -> str:
        """Instances per second and the time that the rest will take; empty before anything is solved."""
        seconds = time.monotonic() - (self.first or self.started)
        solved = self.solved + self.working.share
        if not solved or not seconds:
            return ""
        rate = solved / seconds
        left = f", {clock((self.total - self.stored - solved) / rate)} left" if self.done < self.total else ""
        return f"{per_second(rate)}{left}"

    def facts(self) -> str:
        """What stands behind the count: rate, time left, gap, how far the batch is."""
        inside = self.working.words() if self.done < self.total else ""
        return ", ".join(fact for fact in (self.rate(), self.gap(), inside) if fact)

    def gap(self) -> str:
        """Mean gap of the whole set so far."""
        return "" if self.gaps.mean is None else f"gap {self.gaps.mean:z.3f} %"


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
        self._root = Level()
        self._preparing: Any = None

    def __enter__(self) -> RunDisplay:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bars = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=8), TextColumn("{task.fields[count]}"),
                TimeElapsedColumn(), TextColumn("{task.fields[facts]}"), console=Console(stderr=True), auto_refresh=False,
            )  # fmt: skip
            with self._alone():
                self._bars.start()
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
            self._before = signal.signal(signal.SIGALRM, self._tick)
            signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)
        self._root.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._root.__exit__()
        if self._before is not None:
            if self._before in (signal.SIG_DFL, signal.SIG_IGN):  # else a heartbeat goes on
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
        if self._bars is not None:
            with self._alone():
                self._prepared()
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
                self._prepared()
                line.bar = self._bars.add_task(
                    title, total=total, completed=done, count=f"{done}/{total}", facts=line.gap()
                )
                self._bars.refresh()
        else:
            say(f"{title}: {total - done} to solve{kept}")

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        """Count solved instances."""
        line = self._lines[title or self._current]
        line.solved, line.stored, line.gaps = line.solved + count, line.stored + stored, gaps
        line.working = working_of(self._root)
        if count or stored:
            self._show(title or self._current, line, ended=line.done == line.total)

    def within(self, title: str, working: Working) -> None:
        """Take how far the batches in hand of a cell are, which other processes solve."""
        self._lines[title].working = working

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
                count, room = f"{line.done}/{line.total}", self._bars.console.width - len(title)
                facts = line.facts()[
                    : max(0, room - len(count) - BAR_COLUMNS)
                ]  # else rich cuts into the clock
                self._bars.update(
                    line.bar, completed=line.done + line.working.share, count=count, facts=facts
                )
                self._bars.refresh()
            return
        facts = line.facts()
        say(f"{title}: {line.done}/{line.total} in {now - line.started:.1f} s{', ' if facts else ''}{facts}")

    def _tick(self, number: int, frame: object) -> None:
        """Show how the time goes, and how far the batch is; not while something is being shown, which this may interrupt."""
        if self._busy:
            return
        unfinished = [title for title, line in self._lines.items() if line.done < line.total]
        if self._current in unfinished and self._root.within:
            line = self._lines[self._current]
            line.working = working_of(self._root)
            line.first = line.first or line.working.began
        for title in unfinished:
            self._show(title, self._lines[title], ended=False)
        if self._bars is not None:
            with self._alone():
                if not unfinished and self._preparing is None:
                    self._preparing = self._bars.add_task("working", total=None, count="", facts="")
                self._bars.refresh()

    def _prepared(self) -> None:
        """Take away the bar of what is done between cells: packages, weights, child processes."""
        if self._preparing is not None:
            self._bars.remove_task(self._preparing)
            self._preparing = None

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
