"""Solutions of a cell that beat the references of their instances, the best of each, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Reference
from nco_bench.errors import ResultsError
from nco_bench.runs.display import Display
from nco_bench.runs.finding import find_runs
from nco_bench.runs.judge import gap_percent
from nco_bench.runs.records import Cell, Record, settings_of
from nco_bench.runs.store import cells_of

NEGATIVE_GAP_PERCENT = -1e-7
"""Gaps below this beat the reference; above it they are float64 rounding."""


class BetterSolutions:
    """The best solutions of a cell that its references should give way to.

    Parameters
    ----------
    dataset, cell
        Whose.
    kept
        Whether they are to be stored; then the first solutions of instances without a reference count, too.
    """

    def __init__(self, dataset: Dataset, cell: Cell, kept: bool) -> None:
        self._dataset, self._cell, self._kept = dataset, cell, kept
        self._found: dict[int, Reference] = {}

    def beats(self, record: Record) -> bool:
        """Whether a solved record is better than what is known of its instance, here and in what was noted before."""
        if record.status != "ok" or record.cost is None:
            return False
        position = record.instance - self._dataset.first_index
        known = self._found.get(position) or self._dataset.references[position]
        if known is None:
            return self._kept
        gap = gap_percent(record.cost, known.cost, self._cell.objective)
        return gap is not None and gap < NEGATIVE_GAP_PERCENT

    def note(self, record: Record, solution: NDArray[np.integer] | None) -> None:
        """Take a solution that `beats`."""
        assert record.cost is not None
        self._found[record.instance - self._dataset.first_index] = Reference(
            record.cost, self._cell.label, solution, record.optimal, record.seconds, settings_of(self._cell)
        )

    def note_stored(self, folders: Sequence[Path], repeats: int) -> None:
        """Take what results folders hold of the cell, but for records whose solution was not kept."""
        for run in (run for folder in folders for run in find_runs(folder)):
            cells = cells_of(run, self._cell.config_sha256, self._cell.seed, self._dataset)
            same = {cell.cell for cell in cells}
            for record in run.records() if same else ():
                ours = record.cell in same and record.repeat < repeats
                if (
                    ours
                    and self._dataset.holds(record.instance, record.instance_sha256)
                    and self.beats(record)
                ):
                    try:
                        self.note(record, run.solution(record))
                    except ResultsError:  # `verify` tells what is wrong with it
                        continue

    def finish(self, display: Display, instances: Path) -> None:
        """Say which references were beaten; where that was asked for, store them, and count what they were to the ledger.

        Solvers of one command load their dataset before: the ledger may have got references of another one since.
        """
        if not self._found:
            return
        if not self._kept:
            self._tell(display, {"beats": len(self._found)}, "; --update-references keeps them")
            return
        from nco_bench.runs.offering import offer

        outcomes = offer(self._dataset, self._found, instances)
        improved = [kept for kept in outcomes if kept.status == "improved"]
        first = sum(kept.previous is None for kept in improved)
        proved = sum(kept.status == "proved" for kept in outcomes)
        self._tell(display, {"beats": len(improved) - first, "finds": first, "proves": proved})
        for kept in outcomes:
            if kept.status == "refused":
                display.message(f"not kept as a reference of instance {kept.index}: {kept.reason}")

    def _tell(self, display: Display, counts: dict[str, int], then: str = "") -> None:
        """Say what a cell did to how many references, unless it did nothing."""
        done = [
            f"{what} {count}{' new' if what == 'finds' else ''}" for what, count in counts.items() if count
        ]
        if done:
            noun = "reference" if sum(counts.values()) == 1 else "references"
            told = " and ".join(filter(None, (", ".join(done[:-1]), done[-1])))
            display.message(f"{self._cell.label} {told} {noun} of {self._dataset.name}{then}")
