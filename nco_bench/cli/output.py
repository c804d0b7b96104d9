"""What commands print: JSON on stdout, talk on stderr, progress as bars on a terminal and plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

import orjson

PLAIN_INTERVAL_SECONDS = 10.0
BAR_INTERVAL_SECONDS = 0.1


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.buffer.write(
        orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n"
    )
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a message on stderr."""
    print(text, file=sys.stderr, flush=True)


class RunDisplay:
    """Progress of a run: a bar per cell with ETA and live mean gap, or plain lines where there is no terminal."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._task: Any = None
        self._label, self._total, self._done = "", 0, 0
        self._started = self._last_line = 0.0

    def __enter__(self) -> RunDisplay:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[gap]}"),
                console=Console(stderr=True),
                auto_refresh=False,  # its thread would forbid to fork the children of native solvers
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def start_cell(self, cell: Any, total: int, done: int) -> None:
        """Announce a cell."""
        decoding = f" {cell.decoding}" if cell.decoding else ""
        self._label = f"{cell.label}{decoding} on {cell.dataset}"
        self._total, self._done = total, done
        self._started = self._last_line = time.monotonic()
        kept = f" ({done} of {total} stored before)" if done else ""
        if self._bars is not None:
            self._task = self._bars.add_task(self._label + kept, total=total, completed=done, gap="")
            self._bars.refresh()
        else:
            say(f"{self._label}: {total} to solve{kept}")

    def advance(self, count: int, mean_gap_percent: float | None) -> None:
        """Count solved instances."""
        self._done += count
        gap = "" if mean_gap_percent is None else f"gap {mean_gap_percent:.3f} %"
        if self._bars is not None:
            self._bars.update(self._task, advance=count, gap=gap)
        now = time.monotonic()
        if self._bars is not None:
            if now - self._last_line >= BAR_INTERVAL_SECONDS or self._done == self._total:
                self._last_line = now
                self._bars.refresh()
            return
        if now - self._last_line >= PLAIN_INTERVAL_SECONDS or self._done == self._total:
            self._last_line = now
            say(f"{self._label}: {self._done}/{self._total} in {now - self._started:.1f} s {gap}".rstrip())

    def message(self, text: str) -> None:
        """Print one line."""
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            say(text)
