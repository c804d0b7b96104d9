"""What worker processes tell while they work, brought to the one display of the process that started them."""

from __future__ import annotations

import multiprocessing
import queue
import time
from multiprocessing.context import SpawnContext
from typing import Any, NamedTuple

from nco_bench.progress import Level
from nco_bench.runs.display import NO_GAPS, NOTHING, Display, Gaps, Titled, Working, title_of, working_of

WORKING_SECONDS = 1.0
"""How often a worker tells how far its batch is."""


class Announced(NamedTuple):
    """A cell that workers will begin with."""

    label: str
    decoding: str
    dataset: str


class Told(NamedTuple):
    """One thing that a worker tells: a message, or how far a cell of its shard is.

    Attributes
    ----------
    worker, title
        Whose shard, and which cell; the title is empty for a message.
    part
        Number of the cell among those of the worker, which may be given several shards of one.
    stored, solved
        Instances stored before, and solved since the last time.
    gaps
        Of the shard's cell so far.
    message
        A line, or an empty string.
    working
        How far the batch in hand is.
    """

    worker: int
    title: str
    stored: int = 0
    solved: int = 0
    gaps: Gaps = NO_GAPS
    message: str = ""
    part: int = 0
    working: Working = NOTHING


class WorkerDisplay:
    """The display of a worker: passes everything on to the process that started it."""

    def __init__(self, told: Any, worker: int) -> None:
        self._told, self._worker, self._title, self._part = told, worker, "", 0
        self._gaps, self._last = NO_GAPS, time.monotonic()
        self.root = Level(changed=self._tell_working)

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        """Tell which cell is worked on."""
        self._title, self._gaps = title_of(cell), gaps
        self._part += 1
        self._told.put(Told(self._worker, self._title, stored=done, gaps=gaps, part=self._part))

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        """Tell how many instances were solved."""
        self._gaps = gaps
        self._told.put(Told(self._worker, self._title, solved=count, gaps=gaps, part=self._part))

    def message(self, text: str) -> None:
        """Tell one line."""
        self._told.put(Told(self._worker, "", message=text))

    def within(self, title: str, working: Working) -> None:
        """Show nothing: a worker has no workers."""

    def _tell_working(self) -> None:
        """Tell now and then how far the batch is."""
        now = time.monotonic()
        if not self._title or now - self._last < WORKING_SECONDS:
            return
        self._last = now
        working = working_of(self.root)._replace(began=None)
        self._told.put(Told(self._worker, self._title, gaps=self._gaps, part=self._part, working=working))


class Relay:
    """Adds up what all workers tell, cell by cell.

    Parameters
    ----------
    context
        How workers are started.
    display
        Where it is shown.
    totals
        Cells to be run, with the number of solutions to find in all shards together.
    """

    def __init__(self, context: SpawnContext, display: Display, totals: dict[Announced, int]) -> None:
        self.told: multiprocessing.Queue[Told] = context.Queue()
        self._display = display
        self._waiting = {title_of(cell): (cell, total) for cell, total in totals.items()}
        self._gaps: dict[str, dict[tuple[int, int], Gaps]] = {}
        self._working: dict[str, dict[int, Working]] = {}
        self._said: set[str] = set()

    def show(self, wait_s: float) -> None:
        """Show what was told, waiting a moment for the first of it."""
        try:
            self._take(self.told.get(timeout=wait_s))
            while True:
                self._take(self.told.get_nowait())
        except queue.Empty:
            return

    def _take(self, told: Told) -> None:
        if told.message:
            if told.message not in self._said:  # what holds for all shards is said once
                self._said.add(told.message)
                self._display.message(told.message)
            return
        if told.title in self._waiting:
            cell, total = self._waiting.pop(told.title)
            self._display.start_cell(cell, total, 0)
        by_shard = self._gaps.setdefault(told.title, {})
        by_shard[told.worker, told.part] = told.gaps
        gaps = Gaps(sum(g.total for g in by_shard.values()), sum(g.number for g in by_shard.values()))
        self._display.advance(told.solved, gaps, told.title, told.stored)
        by_worker = self._working.setdefault(told.title, {})
        by_worker[told.worker] = told.working
        at_work = by_worker.values()
        share, instances = sum(w.share for w in at_work), sum(w.instances for w in at_work)
        place = "" if share else next((w.place for w in at_work if w.place), "")
        self._display.within(told.title, Working(share, instances, place))
