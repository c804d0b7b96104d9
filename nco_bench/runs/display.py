"""What a run tells while it works, and who is told: cells, gaps so far, how far the batches in hand are."""

from __future__ import annotations

import sys
from typing import NamedTuple, Protocol

from nco_bench.progress import Batch, Level


class Titled(Protocol):
    """A cell, or what will be one: enough to name it."""

    @property
    def label(self) -> str:
        """Solver with its options."""

    @property
    def decoding(self) -> str:
        """Decoding, or an empty string."""

    @property
    def dataset(self) -> str:
        """Name of the dataset."""


class Gaps(NamedTuple):
    """Sum and number of the gaps in percent of a cell so far, those stored before included."""

    total: float = 0.0
    number: int = 0

    @property
    def mean(self) -> float | None:
        """Their mean, None without any."""
        return self.total / self.number if self.number else None


NO_GAPS = Gaps()


class Working(NamedTuple):
    """How far the batches in hand are.

    Attributes
    ----------
    share
        Their instances' worth of work that is done.
    instances
        In these batches.
    place
        Where the first of them is: ``34/100 steps``.
    began
        ``time.monotonic()`` when it did, None where that was in another process.
    """

    share: float = 0.0
    instances: int = 0
    place: str = ""
    began: float | None = None

    def words(self) -> str:
        """Return it in words; empty where nobody counts."""
        if not self.share:
            return self.place
        return f"batch {100 * self.share / self.instances:.0f} %{f' ({self.place})' if self.place else ''}"


NOTHING = Working()


def working_of(root: Level) -> Working:
    """Return how far the batches are whose levels stand within `root`; or, before there are any, where it is."""
    levels = list(root.within)
    batches = [level for level in levels if isinstance(level, Batch)]
    if not batches:
        return Working(place=levels[0].place()) if levels else NOTHING
    share = sum(batch.share() * (batch.total or 0) for batch in batches)
    size = sum(batch.total or 0 for batch in batches)
    return Working(share, size, batches[0].innermost(), batches[0].began)


def title_of(cell: Titled) -> str:
    """Name a cell as progress does."""
    return f"{cell.label}{' ' if cell.decoding else ''}{cell.decoding} on {cell.dataset}"


class Display(Protocol):
    """What the runner tells while it works; the command line shows it as bars or plain lines."""

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        """Announce a cell with `total` solutions to find, `done` of them stored before."""

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        """Tell that `count` more instances are solved, `stored` were before, of the last cell or the one called so."""

    def within(self, title: str, working: Working) -> None:
        """Tell how far the batches in hand are that other processes solve for a cell."""

    def message(self, text: str) -> None:
        """Tell one line."""


class QuietDisplay:
    """A display that prints messages to stderr and shows nothing else."""

    def start_cell(self, cell: Titled, total: int, done: int, gaps: Gaps = NO_GAPS) -> None:
        """Show nothing."""

    def advance(self, count: int, gaps: Gaps, title: str = "", stored: int = 0) -> None:
        """Show nothing."""

    def within(self, title: str, working: Working) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Print the line to stderr."""
        print(text, file=sys.stderr)
