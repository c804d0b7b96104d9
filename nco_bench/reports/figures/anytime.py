"""How the best gap of anytime solvers falls with time, from the traces that they leave beside their records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import row_names
from nco_bench.runs.stored_run import Run

GRID = 200
"""Points of a curve."""

Solve = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Seconds and gaps of one solve."""


@dataclass(frozen=True)
class Curve:
    """Mean gap in percent against seconds, which count from the start of the batch that an instance was solved in.

    Attributes
    ----------
    solver
        Its registry name.
    method, dataset
        The row of the table and the set, as a plot names them; without them a curve goes by its label.
    seconds, gaps
        Rising times, and the mean gap reached by then.
    solves
        Solves that the mean is over.
    batch
        Fewest and most instances that were solved together.
    """

    solver: str
    seconds: list[float]
    gaps: list[float]
    solves: int = 1
    batch: tuple[int, int] = (1, 1)
    method: str = ""
    dataset: str = ""

    @property
    def told(self) -> str:
        """How many solves there were, and how many at a time."""
        few, most = self.batch
        together = (
            "one at a time" if most == 1 else f"in batches of {f'{few} to ' if few < most else ''}{most}"
        )
        return f"{self.solves:,} solve{'' if self.solves == 1 else 's'}, {together}"


def anytime_curves(frame: ResultFrame) -> dict[str, Curve]:
    """Average the traces of each solver and dataset over its solves.

    A solver's own costs are scaled so that its last one is the cost that nco-bench scored. A curve begins where every
    solve has a solution.

    Parameters
    ----------
    frame
        From `nco_bench.reports.frame.load.load_frame`, perhaps with a selection.

    Returns
    -------
    dict
        By label.

    Raises
    ------
    ResultsError
        When no record with a reference has a trace.
    """
    solves: dict[str, list[Solve]] = defaultdict(list)
    batches: dict[str, Counter[tuple[str, bytes]]] = defaultdict(
        Counter
    )  # those of one batch have the same times
    told: dict[str, tuple[str, str, str]] = {}
    summaries = summarise(frame, intervals=False)
    names = {id(s.group): name for s, name in zip(summaries, row_names(summaries), strict=True)}
    for number, part in frame.records.groupby("run", sort=True):
        traces = traces_of(frame.runs[int(str(number))])
        columns = (part[name] for name in ("group", "solution_offset", "cost", "reference"))
        for code, offset, cost, reference in zip(*columns, strict=True) if traces else ():
            gaps = _gaps(traces.get(offset), cost, reference)
            if gaps is not None:
                group = frame.groups[code]
                method, cell = names[id(group)], group.cell
                name = f"{method} on {cell.dataset}"
                told[name] = cell.solver, method, cell.dataset
                solves[name].append(gaps)
                batches[name][str(number), gaps[0].tobytes()] += 1
    if not solves:
        raise ResultsError(
            "No anytime solver with references here; make some with: "
            "nco-bench run decoder-6x128 --data tsp100:count=100 --decoding prc:50"
        )
    return {
        name: Curve(
            solver, *_mean(solves[name]), len(solves[name]),
            (min(batches[name].values()), max(batches[name].values())), method, dataset,
        )
        for name, (solver, method, dataset) in told.items()
    }  # fmt: skip


def traces_of(run: Run) -> Mapping[int, list[tuple[float, float]]]:
    """Read a run's traces by the place of their solution, which tells records of one run apart."""
    points = {one["key"]: one["points"] for one in run.lines("traces.jsonl")}
    if not points:
        return {}
    records = (record for record in run.raw_records() if record["solution"] and record["key"] in points)
    return {record["solution"][0]: points[record["key"]] for record in records}


def _gaps(points: list[tuple[float, float]] | None, cost: float, reference: float) -> Solve | None:
    """Return times and gaps of one solve, or None without a trace, a cost or a reference."""
    if not points or np.isnan(cost) or np.isnan(reference) or reference == 0:
        return None
    times, costs = np.array(points, dtype=np.float64).T
    costs = costs * (cost / costs[-1])
    return times, 100.0 * (costs - reference) / abs(reference)


def _mean(solves: list[Solve]) -> tuple[list[float], list[float]]:
    times = np.unique(np.concatenate([t for t, _ in solves]))
    times = times[times >= max(t[0] for t, _ in solves)]
    if len(times) > GRID:
        times = times[np.unique(np.linspace(0, len(times) - 1, GRID).astype(int))]
    steps = [gaps[np.searchsorted(t, times, side="right") - 1] for t, gaps in solves]
    return times.tolist(), np.mean(steps, axis=0).tolist()
