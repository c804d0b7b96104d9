"""How the best gap of anytime solvers falls with time, from the traces that they leave beside their records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.runs.records import Record, Run, find_runs

GRID = 200
"""Points of a curve."""

Curve = tuple[list[float], list[float]]


def anytime_curves(
    results: Path, datasets: Collection[str] = (), solvers: Collection[str] = ()
) -> dict[str, Curve]:
    """Average the traces of each solver and dataset over its solves.

    A solver's own costs are scaled so that its last one is the cost that nco-bench scored. A curve begins where every
    solve has a solution.

    Parameters
    ----------
    results
        Folder that holds the runs' folders.
    datasets, solvers
        Names or labels to keep; empty means all.

    Returns
    -------
    dict
        By label: seconds, rising, and the mean gap in percent reached by then.

    Raises
    ------
    ResultsError
        When no record with a reference has a trace.
    """
    solves: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = defaultdict(list)
    for run in find_runs(results):
        names = {
            cell.cell: f"{cell.label} {cell.decoding} on {cell.dataset}".replace("  ", " ")
            for cell in run.cells()
            if (not datasets or cell.dataset in datasets or cell.source in datasets)
            and (not solvers or {cell.label, cell.solver} & set(solvers))
        }
        traces = _traces(run) if names else {}
        for record in run.records() if traces else ():
            gaps = _gaps(record, traces.get(record.key))
            if gaps is not None and record.cell in names:
                solves[names[record.cell]].append(gaps)
    if not solves:
        raise ResultsError(
            f"{results}: no anytime solver with references here; make some with: "
            "nco-bench run decoder-6x128 --data tsp100 --decoding prc:50"
        )
    return {name: _mean(kept) for name, kept in solves.items()}


def _traces(run: Run) -> dict[str, list[tuple[float, float]]]:
    path = run.folder / "traces.jsonl"
    if not path.exists():
        return {}
    lines = (line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    return {one["key"]: one["points"] for one in map(orjson.loads, lines)}


def _gaps(
    record: Record, points: list[tuple[float, float]] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return times and gaps of one solve, or None without a trace, a cost or a reference."""
    if not points or record.cost is None or not record.reference:
        return None
    times, costs = np.array(points, dtype=np.float64).T
    costs = costs * (record.cost / costs[-1])
    return times, 100.0 * (costs - record.reference) / abs(record.reference)


def _mean(solves: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Curve:
    times = np.unique(np.concatenate([t for t, _ in solves]))
    times = times[times >= max(t[0] for t, _ in solves)]
    if len(times) > GRID:
        times = times[np.unique(np.linspace(0, len(times) - 1, GRID).astype(int))]
    steps = [gaps[np.searchsorted(t, times, side="right") - 1] for t, gaps in solves]
    return times.tolist(), np.mean(steps, axis=0).tolist()
