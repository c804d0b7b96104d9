"""What became of every printed number: ours beside it, in its unit, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nco_bench.papers.judging import Verdict, judge_computed
from nco_bench.papers.measuring import Measured
from nco_bench.papers.preset import (
    CellPreset,
)
from nco_bench.papers.published import PublishedCell, PublishedTable
from nco_bench.papers.running import (
    Computed,
)

STORED = "stored"
"""Stands for the scale where every number is read from the stored records of most instances, and nothing is run."""
SECONDS = {"milliseconds": 1e-3, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


@dataclass(frozen=True)
class Entry:
    """One printed number beside ours.

    Attributes
    ----------
    cell, preset
        What is printed, and how ours is got.
    value, low, high
        Ours and its 95 % interval, in the printed unit; None where there is none.
    verdict
        Status and reason.
    measured
        What the number was read from, or None.
    reading
        Name of the reading of the paper that this is, where it is not the first; the cell's row ends with it.
    """

    cell: PublishedCell
    preset: CellPreset
    value: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    measured: Measured | None = None
    reading: str = ""


@dataclass(frozen=True)
class Reproduction:
    """A published table with our numbers."""

    table: PublishedTable
    scale: str
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()


def computed_entry(cell: PublishedCell, preset: CellPreset, computed: Computed | Verdict) -> Entry:
    """Return the entry of a cell whose table a function computed."""
    if isinstance(computed, Verdict):
        return Entry(cell, preset, None, None, None, computed)
    value = computed.get((cell.row, cell.column))
    if value is None:
        return without(cell, preset, "not run", "not known to the function that computes this table")
    if isinstance(value, Verdict):
        return Entry(cell, preset, None, None, None, value)
    number, verdict = value if isinstance(value, tuple) else (value, judge_computed(cell, value))
    return Entry(cell, preset, number, None, None, noted(verdict, preset))


def without(cell: PublishedCell, preset: CellPreset, status: str, reason: str) -> Entry:
    """Return the entry of a cell without a number of ours."""
    return Entry(cell, preset, None, None, None, Verdict(status, reason))


def noted(verdict: Verdict, preset: CellPreset, course: str = "") -> Verdict:
    """Add to the reason where a number was read off another one, and the preset's note."""
    return replace(verdict, reason="; ".join(filter(None, (verdict.reason, course, preset.note))))


def in_printed_unit(measured: Measured, preset: CellPreset, cell: PublishedCell) -> Measured:
    """Turn seconds per instance into what is printed: a total of `printed_count` instances, in the printed unit."""
    if preset.metric not in ("seconds", "latency"):
        return measured
    factor = max(1, preset.printed_count) / SECONDS.get(cell.unit, 1.0)

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * factor

    return replace(
        measured, value=scaled(measured.value), low=scaled(measured.low), high=scaled(measured.high)
    )


def count_statuses(reproductions: Sequence[Reproduction]) -> dict[str, Any]:
    """Count the printed numbers of each status by the first reading, in the order of first occurrence."""
    counts: dict[str, int] = {}
    for reproduction in reproductions:
        for entry in reproduction.entries:
            if entry.reading:
                continue
            counts[entry.verdict.status] = counts.get(entry.verdict.status, 0) + 1
    return counts
