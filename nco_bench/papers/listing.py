"""What ``reproduce`` can reproduce: every published table, and how many of its numbers are answered at each scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nco_bench.papers.preset import SCALES, load_preset, numeric_cells
from nco_bench.papers.published import PublishedTable


@dataclass(frozen=True)
class Reproducible:
    """A published table.

    Attributes
    ----------
    paper, table, title
        As ``reproduce PAPER --table TABLE`` takes them, and what it shows.
    printed
        Numbers that it prints.
    answered
        Of these, how many have a way to be got, by scale: a run or a function. Whether weights and solvers are at hand is
        seen when it is run.
    """

    paper: str
    table: str
    title: str
    printed: int
    answered: dict[str, int]


def list_reproducible(tables: Sequence[PublishedTable]) -> list[Reproducible]:
    """Count what the presets of some tables answer.

    Parameters
    ----------
    tables
        From `nco_bench.papers.reproducing.tables_of`.
    """
    return [_counted(table) for table in tables]


def _counted(table: PublishedTable) -> Reproducible:
    preset = load_preset(table.paper, table.number)
    cells = numeric_cells(table)
    answered = {}
    for scale in SCALES:
        ways = [preset.cell(cell, scale) for cell in cells]
        answered[scale] = sum(bool(way.compute or (way.metric and way.count)) for way in ways)
    return Reproducible(table.paper, str(table.number), table.title, len(cells), answered)
